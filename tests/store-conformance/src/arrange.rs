//! Builders and shortcuts for the behaviours. Everything panics on failure: it only runs in tests.

use context_model::{
    EntryUpdate, Filter, JsonObject, Metadata, MetadataChange, NewEntry, NewImage, Reason, Source,
    Tags, ThreadId, Timestamp,
};
use context_store::{
    DeleteCriteria, Idempotency, ItemOutcome, Memory, OwnerId, Page, Read, RowSelection, Store,
    StoreError, StoredBatch, StoredEntry, ThreadsPage, WriteOptions, Written,
};
use serde_json::{Value, json};

/// The start time of the clock of all behaviours.
pub(crate) const START: i64 = 1_764_410_400_000_000;

/// The time this many seconds after [`START`].
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp(START + seconds * 1_000_000)
}

/// The owner for which behaviours write by default.
pub(crate) fn me() -> OwnerId {
    OwnerId::default()
}

/// The options of a write at this time, without an idempotency key.
pub(crate) fn options(seconds: i64) -> WriteOptions {
    WriteOptions {
        now: at(seconds),
        idempotency: None,
        key_id: Some("key-1".to_owned()),
        embeddings: Vec::new(),
    }
}

/// The options of a write with this idempotency key and request hash.
pub(crate) fn with_key(seconds: i64, key: &str, hash: u8) -> WriteOptions {
    WriteOptions {
        idempotency: Some(Idempotency {
            key: key.to_owned(),
            request_hash: [hash; 32],
            rejected: Vec::new(),
        }),
        ..options(seconds)
    }
}

pub(crate) fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

/// A user's entry in thread `t`.
pub(crate) fn entry(text: &str) -> Entry {
    Entry(NewEntry {
        thread_id: ThreadId::from_stored("t".to_owned()),
        source: Source::User,
        text: text.to_owned(),
        images: None,
        metadata: None,
        tags: None,
    })
}

#[derive(Clone)]
pub(crate) struct Entry(pub NewEntry);

impl Entry {
    pub fn thread(mut self, thread: &str) -> Self {
        self.0.thread_id = ThreadId::from_stored(thread.to_owned());
        self
    }

    pub fn agent(mut self) -> Self {
        self.0.source = Source::Agent;
        self
    }

    pub fn tags(mut self, given: &[&str]) -> Self {
        self.0.tags = Some(tags(given));
        self
    }

    pub fn metadata(mut self, metadata: Value) -> Self {
        self.0.metadata = Some(Metadata::from_stored(object(metadata)));
        self
    }

    pub fn images(mut self, given: &[&[u8]]) -> Self {
        self.0.images = Some(images(given));
        self
    }

    /// Stores it at this second and returns its outcome.
    pub async fn store(self, store: &dyn Store, seconds: i64) -> ItemOutcome {
        self.store_for(store, &me(), seconds).await
    }

    pub async fn store_for(self, store: &dyn Store, owner: &OwnerId, seconds: i64) -> ItemOutcome {
        let written = store
            .store_contexts(owner, vec![self.0], true, options(seconds))
            .await
            .expect("the entry is stored");
        applied(&written.outcome)[0].clone()
    }
}

pub(crate) fn tags(given: &[&str]) -> Tags {
    let mut violations = context_model::Violations::default();
    let tags = Tags::parse(
        given.iter().map(ToString::to_string).collect(),
        "tags",
        &mut violations,
    );
    assert!(violations.is_empty());
    tags
}

pub(crate) fn images(given: &[&[u8]]) -> Vec<NewImage> {
    given
        .iter()
        .map(|data| NewImage {
            data: data.to_vec(),
            mime_type: "image/png".to_owned(),
            metadata: None,
        })
        .collect()
}

/// The outcomes of a batch in which every item was applied.
pub(crate) fn applied(batch: &StoredBatch) -> Vec<ItemOutcome> {
    batch
        .items
        .iter()
        .map(|item| item.clone().expect("the item is applied"))
        .collect()
}

/// An update without changes.
pub(crate) fn update(id: i64) -> Update {
    Update(EntryUpdate {
        id,
        text: None,
        metadata: None,
        tags: None,
        images: None,
        expected_version: None,
    })
}

pub(crate) struct Update(pub EntryUpdate);

impl Update {
    pub fn text(mut self, text: &str) -> Self {
        self.0.text = Some(text.to_owned());
        self
    }

    pub fn tags(mut self, given: &[&str]) -> Self {
        self.0.tags = Some(tags(given));
        self
    }

    pub fn images(mut self, given: &[&[u8]]) -> Self {
        self.0.images = Some(images(given));
        self
    }

    pub fn metadata(mut self, metadata: Value) -> Self {
        self.0.metadata = Some(MetadataChange::Replace(Metadata::from_stored(object(
            metadata,
        ))));
        self
    }

    pub fn patch(mut self, patch: Value) -> Self {
        self.0.metadata = Some(MetadataChange::Patch(object(patch)));
        self
    }

    pub fn expecting(mut self, version: i64) -> Self {
        self.0.expected_version = Some(version);
        self
    }

    pub async fn apply(
        self,
        store: &dyn Store,
        seconds: i64,
    ) -> Result<Written<StoredBatch>, StoreError> {
        store
            .update_contexts(&me(), vec![self.0], true, options(seconds))
            .await
    }
}

pub(crate) const EVERYTHING: RowSelection = RowSelection {
    images: true,
    text_chars: None,
    explain: false,
    max_bytes: 1 << 30,
    memory: Memory::UNCOUNTED,
};

/// A read of the current state, which requires no revision.
pub(crate) fn now() -> Read {
    Read::default()
}

pub(crate) fn page(limit: u32, offset: u64) -> Page {
    Page { limit, offset }
}

pub(crate) async fn get(store: &dyn Store, ids: &[i64]) -> Vec<StoredEntry> {
    store
        .get_contexts(&me(), ids.to_vec(), EVERYTHING, now())
        .await
        .expect("the entries are read")
        .entries
}

pub(crate) async fn get_one(store: &dyn Store, id: i64) -> StoredEntry {
    let mut found = get(store, &[id]).await;
    assert_eq!(found.len(), 1, "entry {id} exists");
    found.remove(0)
}

pub(crate) async fn search(store: &dyn Store, filter: Filter) -> Vec<StoredEntry> {
    store
        .search_contexts(&me(), filter, page(100, 0), EVERYTHING, now())
        .await
        .expect("the search works")
        .entries
}

pub(crate) async fn all(store: &dyn Store) -> Vec<StoredEntry> {
    search(store, Filter::default()).await
}

pub(crate) fn texts(entries: &[StoredEntry]) -> Vec<&str> {
    entries.iter().map(|entry| entry.text.as_str()).collect()
}

pub(crate) async fn threads(store: &dyn Store) -> ThreadsPage {
    store
        .list_threads(&me(), None, None, page(1000, 0), now())
        .await
        .expect("the threads are read")
}

pub(crate) async fn delete(store: &dyn Store, criteria: DeleteCriteria) -> u64 {
    store
        .delete_contexts(&me(), criteria, options(0))
        .await
        .expect("the entries are deleted")
        .outcome
}

pub(crate) async fn delete_ids(store: &dyn Store, ids: &[i64]) -> u64 {
    delete(
        store,
        DeleteCriteria {
            ids: Some(ids.to_vec()),
            ..DeleteCriteria::default()
        },
    )
    .await
}

pub(crate) async fn revision(store: &dyn Store) -> i64 {
    store
        .list_threads(&me(), None, None, page(1, 0), now())
        .await
        .expect("the threads are read")
        .revision
}

/// The reason why the store rejected a call.
pub(crate) fn reason<T: std::fmt::Debug>(result: Result<T, StoreError>) -> Reason {
    match result.expect_err("the request is refused") {
        StoreError::Rejected(error) | StoreError::Item { error, .. } => error.reason,
        other => panic!("not refused but failed: {other}"),
    }
}

pub(crate) fn rich_metadata() -> Value {
    json!({"status": "Active", "n": 5, "f": 5.5, "big": i64::MAX, "none": null, "yes": true,
           "nested": {"list": [1, "Zwei", null, {"deep": false}]}, "ключ": "Ä"})
}
