//! Content of every kind for a whole database. The same seed generates the same content.

use context_model::{
    ArtifactId, ArtifactPath, ArtifactUpdate, ContentChange, EntryUpdate, Metadata, MetadataChange,
    NewArtifact, NewEntry, NewImage, Source, Tags, ThreadId, Timestamp, TitleChange,
};
use context_store::{
    ArtifactRestore, DeleteCriteria, Denial, Embedded, EmbeddedChunk, Embedding, EmbeddingModel,
    Idempotency, KeyChange, KeyEvent, LateSummary, ModelUse, OwnerId, Retention, Store, StoredKey,
    WriteOptions,
};
use context_test_support::Random;
use serde_json::json;

use super::Pools;

/// Number of entries stored with one call.
const BATCH: usize = 100;
const START: i64 = 1_764_410_400_000_000;
const WORDS: [&str; 24] = [
    "running",
    "database",
    "the",
    "Äpfel",
    "naïve",
    "数据库设计",
    "データ",
    "emoji 🦀",
    "don't",
    "C++",
    "foo_bar",
    "x=1",
    "https://example.org/a?b",
    "İstanbul",
    "ΣΑΣ",
    "straße",
    "decided",
    "agents",
    "remember",
    "\u{1}odd",
    "line\nbreak",
    "tab\t",
    "e\u{301}",
    "\u{10ffff}",
];

/// The owners that have content after [`fill`], in the order of their names.
pub const OWNERS: [&str; 3] = ["default", "o'wner \"2\"", "öwner"];

/// Fills an empty store with approximately this many entries, and with artifacts, keys, denials, idempotency keys,
/// summaries and, if the store supports them, vectors of entries. Some entries and artifacts are then changed or
/// deleted. One more owner has no content. The oldest changes are removed from the feed.
///
/// # Panics
/// When the store rejects a call.
pub async fn fill(store: &dyn Store, seed: u64, entries: usize) {
    let mut random = Random::new(seed);
    let model = EmbeddingModel {
        identity: "test@1".to_owned(),
        dimensions: 8,
    };
    let used = store.vectors().use_model(&model).await;
    let embeds = used.expect("the model is taken") == ModelUse::Ready;
    for (place, name) in OWNERS.into_iter().enumerate() {
        let owner = OwnerId::new(name);
        // Most entries belong to the first owner.
        let wanted = if place == 0 {
            entries - entries / 4
        } else {
            entries / 8
        };
        let mut content = Content {
            store,
            owner,
            pools: Pools::new(&mut random),
            model: embeds.then(|| model.clone()),
            clock: 0,
        };
        content.contexts(&mut random, wanted).await;
        content
            .artifacts(&mut random, 3 + wanted.min(2_000) / 40)
            .await;
        content.keys(&mut random).await;
    }
    store
        .keys()
        .create_owner(&OwnerId::new("üser without anything"), Timestamp(START))
        .await
        .expect("the owner is created");
    // Removes the oldest changes of each owner from the feed.
    let retention = Retention {
        before: Timestamp(START + 10_000_000),
        max_rows: i64::MAX,
    };
    let changes = store.changes();
    let mut removed = 0;
    loop {
        match changes.compact(retention).await.expect("compacted") {
            0 => break,
            batch => removed += batch,
        }
    }
    assert!(removed > 0, "the oldest changes are removed");
}

struct Content<'s> {
    store: &'s dyn Store,
    owner: OwnerId,
    pools: Pools,
    model: Option<EmbeddingModel>,
    clock: i64,
}

impl Content<'_> {
    fn options(&mut self, random: &mut Random) -> WriteOptions {
        self.clock += 1 + i64::try_from(random.below(3_000_000)).expect("small");
        let key_id = (!random.one_in(3)).then(|| "key-1".to_owned());
        WriteOptions {
            now: Timestamp(START + self.clock),
            idempotency: None,
            key_id,
            embeddings: Vec::new(),
        }
    }

    fn text(random: &mut Random) -> String {
        let words = if random.one_in(60) {
            4_000
        } else {
            1 + random.below(90)
        };
        let mut text = String::new();
        for _ in 0..words {
            let word = *random.pick(&WORDS);
            text.push_str(word);
            text.push(' ');
        }
        // No two texts are the same, so that none is taken for a retransmit.
        text.push_str(&format!("n{}", random.next()));
        text
    }

    fn metadata(&self, random: &mut Random) -> Metadata {
        Metadata::from_stored(
            self.pools
                .entry(random, 1)
                .metadata
                .to_object()
                .expect("it was made from an object"),
        )
    }

    fn images(&self, random: &mut Random) -> Vec<NewImage> {
        let image = |random: &mut Random| NewImage {
            data: (0..=random.below(3_000))
                .map(|_| u8::try_from(random.below(256)).expect("a byte"))
                .collect(),
            mime_type: (*random.pick(&["image/png", "image/jpeg"])).to_owned(),
            metadata: random.one_in(2).then(|| self.metadata(random)),
        };
        (0..=random.below(3)).map(|_| image(random)).collect()
    }

    fn tags(random: &mut Random) -> Tags {
        let mut tags: Vec<String> = (0..random.below(4))
            .map(|_| format!("täg {}", random.below(30)))
            .collect();
        tags.sort_unstable();
        tags.dedup();
        Tags::from_normalised(tags)
    }

    fn entry(&self, random: &mut Random) -> NewEntry {
        NewEntry {
            thread_id: ThreadId::from_stored(format!("thread '{}'", random.below(40))),
            source: *random.pick(&[Source::User, Source::Agent]),
            text: Self::text(random),
            images: random.one_in(20).then(|| self.images(random)),
            metadata: (!random.one_in(5)).then(|| self.metadata(random)),
            tags: (!random.one_in(4)).then(|| Self::tags(random)),
        }
    }

    fn embedding(&self, random: &mut Random) -> Embedding {
        let Some(model) = self.model.clone().filter(|_| !random.one_in(8)) else {
            return Embedding::Later;
        };
        let chunk = |random: &mut Random, at: u32| {
            let vector: Vec<f32> = (0..8)
                .map(|_| {
                    f32::from(i16::try_from(random.below(2_000)).expect("small")) / 1_000.0 - 1.0
                })
                .collect();
            let length = vector
                .iter()
                .map(|value| value * value)
                .sum::<f32>()
                .sqrt()
                .max(1e-6);
            let tokens = random.one_in(2).then(|| {
                (0..random.below(5_000))
                    .map(|_| u8::try_from(random.below(256)).expect("a byte"))
                    .collect()
            });
            EmbeddedChunk {
                start: at * 10,
                end: at * 10 + 10,
                vector: vector.iter().map(|value| value / length).collect(),
                tokens,
            }
        };
        let chunks = 1 + u32::try_from(random.below(3)).expect("small");
        Embedding::Now(Embedded {
            model,
            chunks: (0..chunks).map(|at| chunk(random, at)).collect(),
        })
    }

    async fn contexts(&mut self, random: &mut Random, wanted: usize) {
        let mut stored = 0;
        while stored < wanted {
            let count = BATCH.min(wanted - stored);
            let entries: Vec<NewEntry> = (0..count).map(|_| self.entry(random)).collect();
            let mut options = self.options(random);
            options.embeddings = (0..count).map(|_| self.embedding(random)).collect();
            if stored == 0 || random.one_in(4) {
                options.idempotency = Some(Idempotency {
                    key: format!("key {stored} ü"),
                    request_hash: [7; 32],
                    rejected: Vec::new(),
                });
            }
            let written = self
                .store
                .store_contexts(&self.owner, entries, true, options)
                .await
                .expect("the entries are stored");
            stored += count;
            let ids: Vec<i64> = written
                .outcome
                .items
                .iter()
                .map(|item| item.as_ref().expect("it is stored").id)
                .collect();
            self.summaries(&ids).await;
            self.change(random, &ids).await;
        }
    }

    async fn summaries(&self, ids: &[i64]) {
        for &id in ids.iter().step_by(5) {
            let summary = LateSummary {
                id,
                version: 1,
                summary: format!("Summary ü of {id}"),
            };
            let added = self
                .store
                .summaries()
                .add_summary(&self.owner, summary)
                .await;
            assert!(added.expect("the summary is stored"), "{id} exists");
        }
    }

    async fn change(&mut self, random: &mut Random, ids: &[i64]) {
        let update = |random: &mut Random, id: i64, content: &Self| EntryUpdate {
            id,
            text: random.one_in(2).then(|| Self::text(random)),
            metadata: random
                .one_in(2)
                .then(|| MetadataChange::Replace(content.metadata(random))),
            tags: random.one_in(2).then(|| Self::tags(random)),
            images: random.one_in(6).then(|| content.images(random)),
            expected_version: None,
        };
        let updates: Vec<EntryUpdate> = ids
            .iter()
            .step_by(7)
            .map(|&id| update(random, id, self))
            .collect();
        let options = self.options(random);
        let updated = self
            .store
            .update_contexts(&self.owner, updates, true, options)
            .await
            .expect("the entries are changed");
        for item in &updated.outcome.items {
            let version = item.as_ref().expect("it is changed").version;
            assert_eq!(version, 2);
        }
        let gone: Vec<i64> = ids.iter().copied().skip(3).step_by(13).collect();
        let count = gone.len() as u64;
        let criteria = DeleteCriteria {
            ids: Some(gone),
            ..DeleteCriteria::default()
        };
        let options = self.options(random);
        let deleted = self
            .store
            .delete_contexts(&self.owner, criteria, options)
            .await
            .expect("the entries are deleted");
        assert_eq!(deleted.outcome, count);
    }

    async fn artifacts(&mut self, random: &mut Random, count: usize) {
        let artifacts = self.store.artifacts();
        for place in 0..count {
            let high = random.next();
            let id =
                ArtifactId::parse(&format!("{high:016x}{:016x}", random.next())).expect("a UUID");
            let title = random.one_in(2).then(|| format!("Title 'Ä' {place}"));
            let path = random.one_in(2).then(|| {
                let path = format!("/generated/ä/{place}/{id}");
                ArtifactPath::from_stored(path)
            });
            let new = NewArtifact {
                path,
                title,
                content: format!("# Ünicode\n{}", Self::text(random)),
                metadata: self.metadata(random),
            };
            let options = self.options(random);
            artifacts
                .create_artifact(&self.owner, id, new, options)
                .await
                .expect("the artifact is made");
            for _ in 0..random.below(3) {
                let content = Some(ContentChange::Replace(Self::text(random)));
                let title = random.one_in(3).then_some(TitleChange::Generated);
                let update = ArtifactUpdate {
                    path: None,
                    id,
                    title,
                    content,
                    metadata: random.one_in(2).then(|| self.metadata(random)),
                    expected_version: None,
                };
                let options = self.options(random);
                artifacts
                    .update_artifact(&self.owner, update, options)
                    .await
                    .expect("the artifact is changed");
            }
            if random.one_in(3) {
                let options = self.options(random);
                let restore = ArtifactRestore {
                    id,
                    version: 1,
                    expected_version: None,
                };
                artifacts
                    .restore_artifact(&self.owner, restore, options)
                    .await
                    .expect("the artifact is restored");
            }
            if random.one_in(6) {
                let options = self.options(random);
                artifacts
                    .delete_artifact(&self.owner, id, options)
                    .await
                    .expect("the artifact is deleted");
            }
        }
    }

    async fn keys(&mut self, random: &mut Random) {
        let keys = self.store.keys();
        for place in 0..3_u8 {
            let key = StoredKey {
                id: format!("{}-{place}", self.owner.as_str()),
                owner: self.owner.clone(),
                name: format!("Ä key {place}"),
                lookup: [place; 32],
                hash: format!("$2b$12$not-a-real-hash-{place}"),
                digest: (place > 0).then(|| format!("{place:064x}")),
                scopes: vec!["read".to_owned(), "write".to_owned()],
                narrowing: json!({"only": "contexts"}).to_string(),
                created_at: Timestamp(START + i64::from(place)),
                expires_at: random.one_in(2).then_some(Timestamp(START * 2)),
                last_used_at: None,
                deactivated_at: None,
            };
            let id = key.id.clone();
            let event = |operation: &str, at| KeyEvent {
                id: format!("{at} {id}"),
                at: Timestamp(START + at),
                actor: (place > 1).then(|| id.clone()),
                operation: operation.to_owned(),
                key_id: id.clone(),
            };
            keys.insert_key(key, event("create_api_key", 1))
                .await
                .expect("the key is stored");
            if place == 1 {
                let off = KeyChange {
                    deactivated_at: Some(Timestamp(START + 9)),
                    ..KeyChange::default()
                };
                keys.update_key(&self.owner, &id, off, event("deactivate_api_key", 9))
                    .await
                    .expect("the key is deactivated")
                    .expect("it exists");
                keys.touch_key(&self.owner, &id, Timestamp(START + 5))
                    .await
                    .expect("the use is recorded");
            }
            // Several equal denials are allowed.
            for _ in 0..=place {
                let reason = "SCOPE_MISSING".to_owned();
                let denial = Denial {
                    at: Timestamp(START),
                    key_id: id.clone(),
                    operation: "delete_context".to_owned(),
                    reason,
                    attempts: 2,
                };
                keys.record_denial(&self.owner, denial)
                    .await
                    .expect("the denial is recorded");
            }
        }
    }
}
