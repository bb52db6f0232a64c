//! Artifacts in ranked searches.

use context_model::{
    ArtifactId, ArtifactUpdate, Condition, ContentChange, Filter, FilterInput, Metadata,
    MetadataFilter, NewArtifact, ThreadId, TitleChange, Violations,
};
use context_store::{
    ArtifactPage, ArtifactRestore, ArtifactSelection, DocumentKind, Embedding, FtsSearch,
    LateEmbedding, Moved, PageStart, RankSearch, Ranking, Read, Store, WriteOptions,
};
use context_text::{Analyzer, Language, Mode};
use serde_json::{Value, json};

use crate::arrange::*;
use crate::suite::behaviour;
use crate::vectors::{at_angles, model, near_angle, ranking, ready};

fn id(number: u32) -> ArtifactId {
    ArtifactId::parse(&format!("00000000-0000-7000-8000-{number:012}")).expect("an id")
}

fn with(embedding: Embedding) -> WriteOptions {
    WriteOptions {
        embeddings: vec![embedding],
        ..options(0)
    }
}

async fn create(store: &dyn Store, number: u32, content: &str, embedding: Embedding) {
    let new = NewArtifact {
        path: None,
        title: Some(format!("title{number}")),
        content: content.to_owned(),
        metadata: Metadata::from_stored(object(json!({"n": number, "Team": "Blue"}))),
    };
    store
        .artifacts()
        .create_artifact(&me(), id(number), new, with(embedding))
        .await
        .expect("created");
}

async fn replace(store: &dyn Store, number: u32, content: &str, embedding: Embedding) {
    let update = ArtifactUpdate {
        path: None,
        id: id(number),
        title: None,
        content: Some(ContentChange::Replace(content.to_owned())),
        metadata: None,
        expected_version: None,
    };
    store
        .artifacts()
        .update_artifact(&me(), update, with(embedding))
        .await
        .expect("updated");
}

/// A search for this word, and for what is near this angle.
fn search(kind: DocumentKind, word: &str, degrees: f32) -> RankSearch {
    let query = context_text::parse(Mode::Match, word, &Analyzer::new(Language::English))
        .expect("is a query")
        .expect("has words");
    RankSearch {
        kind,
        fts: Some(FtsSearch {
            query,
            ranking_cap: 100,
            context_weight: 0.3,
        }),
        ..near_angle(degrees, 10)
    }
}

async fn find(store: &dyn Store, kind: DocumentKind, word: &str, degrees: f32) -> Ranking {
    let search = search(kind, word, degrees);
    ranking(store.vectors(), search, Filter::default()).await
}

/// The artifacts that this word finds, and those that have vectors, nearest first.
async fn found(store: &dyn Store, word: &str) -> (Vec<ArtifactId>, Vec<ArtifactId>) {
    let found = find(store, DocumentKind::Artifact, word, 0.0).await;
    let by_words = found.fts.iter().map(|found| found.id).collect();
    let by_vectors = found.semantic.iter().map(|found| found.id).collect();
    (named(store, by_words).await, named(store, by_vectors).await)
}

/// Checks that the only artifact with vectors has one at this angle.
async fn assert_at(store: &dyn Store, degrees: f32) {
    let search = RankSearch {
        kind: DocumentKind::Artifact,
        ..near_angle(degrees, 10)
    };
    let found = ranking(store.vectors(), search, Filter::default()).await;
    assert!(
        matches!(&found.semantic[..], [hit] if hit.distance < 1e-3),
        "{degrees}: {found:?}"
    );
}

/// The artifacts with these documents, in this order.
async fn named(store: &dyn Store, documents: Vec<i64>) -> Vec<ArtifactId> {
    let read = store
        .artifacts()
        .artifact_documents(&me(), documents.clone(), now())
        .await
        .expect("read");
    let of = |document: &i64| {
        let found = read.iter().find(|found| found.document == *document);
        found.expect("it exists").id
    };
    documents.iter().map(of).collect()
}

fn parsed(filter: MetadataFilter) -> Vec<Condition> {
    let given = FilterInput {
        metadata_filters: Some(vec![filter]),
        ..FilterInput::default()
    };
    Filter::parse(given, &mut Violations::default()).conditions
}

/// The condition that this metadata field has this value.
fn conditions(key: &str, value: Value) -> Vec<Condition> {
    comparison(key, "eq", value)
}

fn comparison(key: &str, operator: &str, value: Value) -> Vec<Condition> {
    parsed(MetadataFilter {
        key: key.to_owned(),
        operator: Some(operator.to_owned()),
        value: Some(value),
        ..MetadataFilter::default()
    })
}

/// A comparison that distinguishes case.
fn exactly(key: &str, operator: &str, value: Value) -> Vec<Condition> {
    parsed(MetadataFilter {
        key: key.to_owned(),
        operator: Some(operator.to_owned()),
        value: Some(value),
        case_sensitive: Some(true),
    })
}

async fn artifacts_and_entries_are_ranked_apart(store: &dyn Store) {
    ready(store).await;
    let options = with(at_angles(&[5.0]));
    let entries = vec![entry("a walrus in an entry").0];
    let stored = store.store_contexts(&me(), entries, true, options).await;
    let entry = applied(&stored.expect("stored").outcome)[0].id;
    create(store, 1, "a walrus in an artifact", at_angles(&[10.0])).await;
    create(store, 2, "another animal", at_angles(&[20.0])).await;
    let entries = find(store, DocumentKind::Context, "walrus", 0.0).await;
    assert_eq!((entries.fts.len(), entries.semantic.len()), (1, 1));
    assert_eq!((entries.fts[0].id, entries.semantic[0].id), (entry, entry));
    assert_eq!(
        found(store, "walrus").await,
        (vec![id(1)], vec![id(1), id(2)])
    );
    assert_eq!(found(store, "title2").await.0, [id(2)], "the title counts");
    let documents = find(store, DocumentKind::Artifact, "walrus", 0.0).await;
    assert!(documents.fts[0].id < 0, "its id is no entry's");
}
behaviour!(artifacts_and_entries_are_ranked_apart(store));

async fn a_ranking_follows_what_happens_to_an_artifact(store: &dyn Store) {
    ready(store).await;
    create(store, 1, "first walrus", at_angles(&[10.0])).await;
    replace(store, 1, "second heron", Embedding::Later).await;
    assert_eq!(found(store, "walrus").await, (vec![], vec![]));
    assert_eq!(found(store, "heron").await, (vec![id(1)], vec![]));
    replace(store, 1, "third heron", at_angles(&[30.0, 40.0])).await;
    assert_eq!(found(store, "heron").await, (vec![id(1)], vec![id(1)]));
    assert_at(store, 40.0).await;
    let restore = ArtifactRestore {
        id: id(1),
        version: 1,
        expected_version: None,
    };
    let restoring = with(at_angles(&[10.0]));
    let restored = store
        .artifacts()
        .restore_artifact(&me(), restore, restoring)
        .await;
    restored.expect("restored");
    assert_eq!(found(store, "walrus").await, (vec![id(1)], vec![id(1)]));
    assert_at(store, 10.0).await;
    let deleted = store
        .artifacts()
        .delete_artifact(&me(), id(1), options(9))
        .await;
    deleted.expect("deleted");
    assert_eq!(found(store, "walrus").await, (vec![], vec![]));
    create(store, 2, "walrus again", at_angles(&[10.0])).await;
    assert_eq!(found(store, "walrus").await, (vec![id(2)], vec![id(2)]));
}
behaviour!(a_ranking_follows_what_happens_to_an_artifact(store));

async fn a_change_of_metadata_alone_keeps_the_vectors(store: &dyn Store) {
    ready(store).await;
    create(store, 1, "walrus", at_angles(&[10.0])).await;
    let update = ArtifactUpdate {
        path: None,
        id: id(1),
        title: None,
        content: None,
        metadata: Some(Metadata::from_stored(object(json!({"n": 7})))),
        expected_version: None,
    };
    let updated = store
        .artifacts()
        .update_artifact(&me(), update, options(1))
        .await;
    updated.expect("updated");
    assert_eq!(found(store, "walrus").await, (vec![id(1)], vec![id(1)]));
    assert_at(store, 10.0).await;
    let update = ArtifactUpdate {
        path: None,
        id: id(1),
        title: Some(TitleChange::parse("Otter", &mut Violations::default())),
        content: None,
        metadata: None,
        expected_version: None,
    };
    let options = with(at_angles(&[50.0]));
    let updated = store
        .artifacts()
        .update_artifact(&me(), update, options)
        .await;
    updated.expect("updated");
    assert_eq!(found(store, "otter").await, (vec![id(1)], vec![id(1)]));
    assert_at(store, 50.0).await;
    assert_eq!(found(store, "title1").await.0, []);
}
behaviour!(a_change_of_metadata_alone_keeps_the_vectors(store));

async fn conditions_on_metadata_select_artifacts(store: &dyn Store) {
    ready(store).await;
    for number in 1..=3 {
        create(
            store,
            number,
            "walrus",
            at_angles(&[f32::from(number as u8)]),
        )
        .await;
    }
    for (wanted, numbers) in [
        (conditions("n", json!(2)), vec![2]),
        (conditions("Team", json!("BLUE")), vec![1, 2, 3]),
        (conditions("n", json!(9)), vec![]),
        (comparison("Team", "gte", json!("Blub")), vec![1, 2, 3]),
        (comparison("Team", "lt", json!("Blue")), vec![]),
        (exactly("Team", "eq", json!("Blue")), vec![1, 2, 3]),
        (exactly("Team", "ne", json!("blue")), vec![1, 2, 3]),
        (exactly("Team", "starts_with", json!("bl")), vec![]),
        (exactly("Team", "in", json!(["x", "Blue"])), vec![1, 2, 3]),
    ] {
        let filter = Filter {
            conditions: wanted.clone(),
            ..Filter::default()
        };
        let ranked = search(DocumentKind::Artifact, "walrus", 0.0);
        let ranked = ranking(store.vectors(), ranked, filter).await;
        let ids: Vec<ArtifactId> = numbers.iter().map(|number| id(*number)).collect();
        let by_vectors = ranked.semantic.iter().map(|found| found.id).collect();
        assert_eq!(named(store, by_vectors).await, ids, "{wanted:?}");
        assert_eq!(ranked.fts.len(), ids.len(), "{wanted:?}");
        for substring in [None, Some("WALRUS".to_owned())] {
            let selection = ArtifactSelection {
                path_prefix: None,
                substring,
                conditions: wanted.clone(),
            };
            let page = ArtifactPage {
                limit: 2,
                start: PageStart::Offset(0),
                preview_chars: 5,
                max_bytes: 1 << 30,
            };
            let listed = store
                .artifacts()
                .list_artifacts(&me(), selection, page, now())
                .await;
            let listed = listed.expect("listed");
            assert_eq!(listed.total, ids.len() as i64, "{wanted:?}");
            let mut newest: Vec<ArtifactId> = ids.clone();
            newest.reverse();
            newest.truncate(2);
            let listed: Vec<ArtifactId> = listed
                .artifacts
                .iter()
                .map(|artifact| artifact.id)
                .collect();
            assert_eq!(listed, newest, "{wanted:?}");
        }
    }
}
behaviour!(conditions_on_metadata_select_artifacts(store));

/// Artifacts have no thread, source or tags.
async fn a_filter_of_entries_alone_finds_no_artifact(store: &dyn Store) {
    ready(store).await;
    create(store, 1, "walrus", at_angles(&[10.0])).await;
    let filter = Filter {
        thread_id: Some(ThreadId::from_stored("t".to_owned())),
        ..Filter::default()
    };
    let ranked = search(DocumentKind::Artifact, "walrus", 0.0);
    let ranked = ranking(store.vectors(), ranked, filter).await;
    assert_eq!((ranked.fts.len(), ranked.semantic.len()), (0, 0));
    assert_eq!(ranked.revision, 1);
    assert_eq!(found(store, "walrus").await, (vec![id(1)], vec![id(1)]));
}
behaviour!(a_filter_of_entries_alone_finds_no_artifact(store));

async fn an_artifact_without_vectors_waits_for_them(store: &dyn Store) {
    let vectors = ready(store).await;
    create(store, 1, "first", Embedding::Later).await;
    assert_eq!(
        vectors.unembedded_entries(&model()).await.expect("counted"),
        1
    );
    let waiting = vectors.unembedded(&model(), None, 10).await.expect("read");
    assert_eq!(waiting.entries.len(), 1);
    let stale = &waiting.entries[0];
    assert_eq!(stale.text, "title1\n\nfirst");
    assert_eq!(stale.artifact_id, Some(id(1).to_string()));
    replace(store, 1, "second", Embedding::Later).await;
    let embedding = |document: &context_store::Unembedded| LateEmbedding {
        id: document.id,
        version: document.version,
        embedded: match at_angles(&[10.0]) {
            Embedding::Now(embedded) => embedded,
            Embedding::Later => unreachable!("it is made with vectors"),
        },
    };
    let added = vectors.add_embeddings(&me(), vec![embedding(stale)]).await;
    assert_eq!(added.expect("answers"), 0, "its text has changed");
    let waiting = vectors.unembedded(&model(), None, 10).await.expect("read");
    let current = &waiting.entries[0];
    assert_eq!(current.text, "title1\n\nsecond");
    let added = vectors
        .add_embeddings(&me(), vec![embedding(current)])
        .await;
    assert_eq!(added.expect("answers"), 1);
    assert_eq!(found(store, "second").await, (vec![id(1)], vec![id(1)]));
    assert_eq!(
        vectors.unembedded_entries(&model()).await.expect("counted"),
        0
    );
    let embedded = vectors.embedded_entries(&me(), &model(), None).await;
    assert_eq!(embedded.expect("counted"), 0, "it is no entry");
}
behaviour!(an_artifact_without_vectors_waits_for_them(store));

async fn a_move_to_another_model_includes_artifacts(store: &dyn Store) {
    let vectors = ready(store).await;
    create(store, 1, "walrus", at_angles(&[10.0])).await;
    let mut newer = model();
    newer.identity = "test@2".to_owned();
    vectors.begin_move(&newer).await.expect("begins");
    let moved = vectors.finish_move(&newer, 0).await.expect("answers");
    assert_eq!(moved, Moved::Waiting);
    let waiting = vectors.unembedded(&newer, None, 10).await.expect("read");
    let Embedding::Now(mut embedded) = at_angles(&[60.0]) else {
        unreachable!("it is made with vectors")
    };
    embedded.model = newer.clone();
    let late = LateEmbedding {
        id: waiting.entries[0].id,
        version: waiting.entries[0].version,
        embedded,
    };
    assert_eq!(
        vectors
            .add_embeddings(&me(), vec![late])
            .await
            .expect("added"),
        1
    );
    let moved = vectors.finish_move(&newer, 0).await.expect("answers");
    assert_eq!(moved, Moved::Done);
    let mut search = search(DocumentKind::Artifact, "walrus", 60.0);
    if let Some(semantic) = &mut search.semantic {
        semantic.model = newer;
    }
    let ranked = ranking(vectors, search, Filter::default()).await;
    assert!(ranked.semantic[0].distance < 1e-3, "{ranked:?}");
}
behaviour!(a_move_to_another_model_includes_artifacts(store));

async fn a_document_that_changed_after_the_ranking_is_left_out(store: &dyn Store) {
    ready(store).await;
    create(store, 1, "walrus", Embedding::Later).await;
    create(store, 2, "walrus", Embedding::Later).await;
    let ranked = find(store, DocumentKind::Artifact, "walrus", 0.0).await;
    let ids: Vec<i64> = ranked.fts.iter().map(|found| found.id).collect();
    assert_eq!(ids.len(), 2);
    replace(store, 1, "heron", Embedding::Later).await;
    let read = Read {
        as_of: Some(ranked.revision),
        ..now()
    };
    let documents = store.artifacts().artifact_documents(&me(), ids, read).await;
    let documents = documents.expect("read");
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0].id, id(2));
    assert!(!documents[0].damaged);
}
behaviour!(a_document_that_changed_after_the_ranking_is_left_out(store));

/// The frequency of a word counts the documents of one kind.
async fn the_frequency_of_a_word_in_artifacts_does_not_count_entries(store: &dyn Store) {
    let counts = async |kind| {
        let words = ["walrus", "heron"].map(|word| {
            let parsed = context_text::parse(Mode::Match, word, &Analyzer::new(Language::English));
            parsed.expect("a query").expect("has words").query
        });
        store
            .document_frequencies(&me(), kind, words.to_vec(), 10, now())
            .await
            .expect("counted")
    };
    entry("a walrus and a heron").store(store, 0).await;
    assert_eq!(counts(DocumentKind::Artifact).await, [0, 0]);
    create(store, 1, "walrus", Embedding::Later).await;
    create(store, 2, "walrus", Embedding::Later).await;
    assert_eq!(counts(DocumentKind::Artifact).await, [2, 0]);
    assert_eq!(counts(DocumentKind::Context).await, [1, 1]);
}
behaviour!(the_frequency_of_a_word_in_artifacts_does_not_count_entries(
    store
));

async fn an_erased_owner_leaves_no_document(store: &dyn Store) {
    ready(store).await;
    create(store, 1, "walrus", at_angles(&[10.0])).await;
    let erased = store.keys().erase_owner(&me(), at(1)).await;
    assert!(erased.expect("erased").is_some());
    assert_eq!(found(store, "walrus").await, (vec![], vec![]));
    create(store, 2, "walrus", at_angles(&[20.0])).await;
    assert_eq!(found(store, "walrus").await, (vec![id(2)], vec![id(2)]));
}
behaviour!(an_erased_owner_leaves_no_document(store));
