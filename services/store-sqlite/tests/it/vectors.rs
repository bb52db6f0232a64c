//! Vectors after restarts: a search finds what is stored in the file.

use std::path::Path;

use context_model::{ArtifactId, Filter, Metadata, NewArtifact};
use context_store::{
    ArtifactStore as _, DeleteCriteria, Embedded, EmbeddedChunk, Embedding, EmbeddingModel,
    LateEmbedding, ModelUse, MoveState, Moved, OwnerId, RankSearch, SemanticHit, SemanticSearch,
    Store, VectorStore, WriteOptions,
};
use context_store_sqlite::{Config, SqliteStore, VectorPrecision};
use context_test_support::Random;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use crate::arrange::{entry, options, read, update};

fn model() -> EmbeddingModel {
    EmbeddingModel {
        identity: "test".to_owned(),
        dimensions: 64,
    }
}

/// A vector with a different direction for every seed.
fn vector(seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let vector: Vec<f32> = (0..64).map(|_| random.unit()).collect();
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.into_iter().map(|value| value / length).collect()
}

fn embedding(seed: u64) -> Embedding {
    let chunk = |part: u64| EmbeddedChunk {
        start: 0,
        end: 1,
        vector: vector(seed * 4 + part),
        tokens: Some(vec![7; 300]),
    };
    Embedding::Now(Embedded {
        model: model(),
        chunks: (0..=seed % 3).map(chunk).collect(),
    })
}

fn with(embeddings: Vec<Embedding>) -> WriteOptions {
    WriteOptions {
        embeddings,
        ..options()
    }
}

async fn nearest(store: &SqliteStore, seed: u64) -> Vec<SemanticHit> {
    ranked(store, seed, 1000, 1000).await
}

/// The nearest entries. The order and the distances of the first `exact` are exact. Rank 200 is a boundary.
async fn ranked(store: &SqliteStore, seed: u64, depth: u32, exact: u32) -> Vec<SemanticHit> {
    let semantic = Some(SemanticSearch {
        model: model(),
        vector: vector(seed),
    });
    let search = RankSearch {
        kind: context_store::DocumentKind::Context,
        fts: None,
        semantic,
        depth,
        exact,
        boundaries: &[200],
        explain: false,
    };
    store
        .rank(&OwnerId::default(), search, Filter::default(), read())
        .await
        .unwrap()
        .semantic
}

/// Number of chunks with stored token vectors.
fn stored_tokens(path: &Path) -> i64 {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        count: i64,
    }
    let mut conn = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    diesel::sql_query("SELECT count(*) AS count FROM chunk_tokens")
        .get_result::<Count>(&mut conn)
        .unwrap()
        .count
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(Config::new(path)).unwrap()
}

fn open_with(path: &Path, vector_precision: VectorPrecision) -> SqliteStore {
    let config = Config {
        vector_precision,
        ..Config::new(path)
    };
    SqliteStore::open(config).unwrap()
}

/// Stores entries with the vectors of these seeds.
async fn store_seeds(store: &SqliteStore, seeds: std::ops::Range<u64>) {
    let entries = seeds
        .clone()
        .map(|seed| entry(&format!("text {seed}")))
        .collect();
    store
        .store_contexts(
            &OwnerId::default(),
            entries,
            true,
            with(seeds.map(embedding).collect()),
        )
        .await
        .unwrap();
}

fn ids(hits: &[SemanticHit]) -> Vec<i64> {
    hits.iter().map(|hit| hit.id).collect()
}

#[tokio::test]
async fn beyond_the_exact_ranks_distances_are_estimates_until_they_are_measured() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory.path().join("contexts.db"));
    store.use_model(&model()).await.unwrap();
    for batch in 0..10 {
        store_seeds(&store, batch * 100..batch * 100 + 100).await;
    }
    for seed in [3, 5_000, 9_999] {
        let exact = ranked(&store, seed, 200, 200).await;
        let found = ranked(&store, seed, 200, 20).await;
        assert_eq!((exact.len(), found.len()), (200, 200));
        assert_eq!(found[..20], exact[..20]);
        assert!(found.is_sorted_by(|a, b| a.distance <= b.distance));
        let of_exact = ids(&exact);
        let both = ids(&found)
            .iter()
            .filter(|id| of_exact.contains(id))
            .count();
        assert!(both >= 190, "{both} of 200");
        let deeper = ranked(&store, seed, 1000, 20).await;
        assert_eq!(deeper[..200], found, "a later page continues this one");
        let estimated: Vec<SemanticHit> = found
            .iter()
            .copied()
            .filter(|hit| hit.chunk.is_none())
            .collect();
        assert!(estimated.len() > 20, "{}", estimated.len());
        let semantic = SemanticSearch {
            model: model(),
            vector: vector(seed),
        };
        let measured = store
            .exact_distances(&OwnerId::default(), semantic, ids(&estimated), read())
            .await
            .unwrap();
        assert_eq!(measured.len(), estimated.len());
        for hit in &estimated {
            let measured = measured
                .iter()
                .find(|measured| measured.id == hit.id)
                .unwrap();
            assert!((measured.distance - hit.distance).abs() < 0.1);
            if let Some(exact) = exact.iter().find(|exact| exact.id == hit.id) {
                assert_eq!(measured, exact);
            }
        }
    }
    store.close().await;
}

#[tokio::test]
async fn with_sign_bits_alone_a_search_finds_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = open_with(&path, VectorPrecision::FourBits);
    store.use_model(&model()).await.unwrap();
    store_seeds(&store, 0..100).await;
    let before = ranked(&store, 777, 10, 10).await;
    store.close().await;
    drop(store);
    let store = open_with(&path, VectorPrecision::SignBits);
    assert_eq!(ranked(&store, 777, 10, 10).await, before);
    assert_eq!(
        ranked(&store, 777, 10, 1).await,
        before,
        "nothing is estimated"
    );
    store_seeds(&store, 100..200).await;
    let before = ranked(&store, 778, 10, 10).await;
    store.close().await;
    drop(store);
    let store = open_with(&path, VectorPrecision::FourBits);
    assert_eq!(ranked(&store, 778, 10, 10).await, before);
    store.close().await;
}

#[tokio::test]
async fn a_restart_finds_exactly_what_was_found_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let store = open(&path);
    assert_eq!(store.use_model(&model()).await.unwrap(), ModelUse::Ready);
    let owner = OwnerId::default();
    for batch in 0..6u64 {
        let seeds = batch * 100..(batch + 1) * 100;
        let entries = seeds
            .clone()
            .map(|seed| entry(&format!("text {seed}")))
            .collect();
        store
            .store_contexts(&owner, entries, true, with(seeds.map(embedding).collect()))
            .await
            .unwrap();
    }
    let updates = (1..=50).map(|id| update(id, "changed")).collect();
    store
        .update_contexts(
            &owner,
            updates,
            true,
            with((1000..1050).map(embedding).collect()),
        )
        .await
        .unwrap();
    store
        .update_contexts(&owner, vec![update(60, "waits")], true, options())
        .await
        .unwrap();
    let deleted = DeleteCriteria {
        ids: Some((100..300).collect()),
        ..DeleteCriteria::default()
    };
    store
        .delete_contexts(&owner, deleted, options())
        .await
        .unwrap();
    let mut before = Vec::new();
    for seed in 0..20 {
        before.push(nearest(&store, seed * 7).await);
    }
    assert_eq!(
        before[0].len(),
        399,
        "600 entries, 200 of them deleted and one that waits"
    );
    assert_eq!(
        store
            .embedded_entries(&owner, &model(), None)
            .await
            .unwrap(),
        399
    );
    store.close().await;
    drop(store);

    let store = open(&path);
    assert_eq!(
        store
            .embedded_entries(&owner, &model(), None)
            .await
            .unwrap(),
        399
    );
    for (seed, before) in before.iter().enumerate() {
        assert_eq!(nearest(&store, seed as u64 * 7).await, *before);
    }
    assert_eq!(store.use_model(&model()).await.unwrap(), ModelUse::Ready);
    // Chunks stored after a restart do not reuse numbers.
    store
        .store_contexts(
            &owner,
            vec![entry("new")],
            true,
            with(vec![embedding(7777)]),
        )
        .await
        .unwrap();
    assert_eq!(nearest(&store, 7777 * 4).await[0].id, 601);
    store.close().await;
}

#[tokio::test]
async fn a_move_to_another_model_goes_on_after_a_restart_and_the_index_shows_its_vectors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let other = EmbeddingModel {
        identity: "other".to_owned(),
        ..model()
    };
    let mut store = open(&path);
    store.use_model(&model()).await.unwrap();
    let entries = (0..90u64)
        .map(|seed| entry(&format!("text {seed}")))
        .collect();
    store
        .store_contexts(
            &OwnerId::default(),
            entries,
            true,
            with((0..90).map(embedding).collect()),
        )
        .await
        .unwrap();
    assert!(stored_tokens(&path) >= 90);
    for (already, more) in [(0, 40), (40, 30), (70, 30)] {
        assert_eq!(
            store.begin_move(&other).await.unwrap(),
            MoveState::Begun {
                embedded: already,
                entries: 90
            }
        );
        for entry in store.unembedded(&other, None, more).await.unwrap().entries {
            let chunk = EmbeddedChunk {
                start: 0,
                end: 1,
                vector: vector(9000 + entry.id as u64),
                tokens: None,
            };
            let late = LateEmbedding {
                id: entry.id,
                version: entry.version,
                embedded: Embedded {
                    model: other.clone(),
                    chunks: vec![chunk],
                },
            };
            store
                .add_embeddings(&entry.owner, vec![late])
                .await
                .unwrap();
        }
        store.close().await;
        drop(store);
        store = open(&path);
        assert_eq!(nearest(&store, 8).await[0].id, 3, "the old ones serve");
    }
    assert_eq!(store.finish_move(&other, 0).await.unwrap(), Moved::Done);
    let search = |seed: u64| {
        let semantic = Some(SemanticSearch {
            model: other.clone(),
            vector: vector(seed),
        });
        RankSearch {
            kind: context_store::DocumentKind::Context,
            fts: None,
            semantic,
            depth: 1000,
            exact: 1000,
            boundaries: &[],
            explain: false,
        }
    };
    let before = store
        .rank(&OwnerId::default(), search(9007), Filter::default(), read())
        .await
        .unwrap()
        .semantic;
    assert_eq!((before.len(), before[0].id), (90, 7));
    store.close().await;
    drop(store);
    let store = open(&path);
    store.maintain().await.unwrap();
    assert_eq!(
        stored_tokens(&path),
        0,
        "the token vectors of the previous model were deleted with its vectors"
    );
    let after = store
        .rank(&OwnerId::default(), search(9007), Filter::default(), read())
        .await
        .unwrap()
        .semantic;
    assert_eq!(after, before);
    store.close().await;
}

#[tokio::test]
async fn vectors_of_a_deleted_artifact_do_not_reach_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let (store, owner) = (
        open(&directory.path().join("contexts.db")),
        OwnerId::default(),
    );
    store.use_model(&model()).await.unwrap();
    let create = async |number: u32| {
        let id = format!("0190163d-8694-739b-aea5-966c26f8a{number:03}");
        let id = ArtifactId::parse(&id).unwrap();
        let new = NewArtifact {
            path: None,
            title: None,
            content: format!("artifact {number}"),
            metadata: Metadata::default(),
        };
        store
            .create_artifact(&owner, id, new, options())
            .await
            .unwrap();
        id
    };
    let first = create(1).await;
    let pending = store.unembedded(&model(), None, 10).await.unwrap().entries;
    let Embedding::Now(embedded) = embedding(1) else {
        panic!("it has vectors")
    };
    let late = LateEmbedding {
        id: pending[0].id,
        version: pending[0].version,
        embedded,
    };
    store
        .delete_artifact(&owner, first, options())
        .await
        .unwrap();
    create(2).await;
    assert_eq!(store.add_embeddings(&owner, vec![late]).await.unwrap(), 0);
    let pending = store.unembedded(&model(), None, 10).await.unwrap().entries;
    assert!(pending[0].text.contains("artifact 2"), "{pending:?}");
    store.close().await;
}

#[tokio::test]
async fn a_third_model_in_a_database_without_vectors_ends_a_move() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let owner = OwnerId::default();
    let named = |identity: &str| EmbeddingModel {
        identity: identity.to_owned(),
        ..model()
    };
    let (other, third) = (named("other"), named("third"));
    let embedded = |model: &EmbeddingModel| Embedded {
        model: model.clone(),
        chunks: vec![EmbeddedChunk {
            start: 0,
            end: 1,
            vector: vector(1),
            tokens: None,
        }],
    };
    let store = open(&path);
    store.use_model(&model()).await.unwrap();
    store_seeds(&store, 0..1).await;
    assert_ne!(store.begin_move(&other).await.unwrap(), MoveState::Done);
    let everything = DeleteCriteria {
        ids: Some(vec![1]),
        ..DeleteCriteria::default()
    };
    store
        .delete_contexts(&owner, everything, options())
        .await
        .unwrap();
    assert_eq!(store.begin_move(&third).await.unwrap(), MoveState::Done);
    store
        .store_contexts(
            &owner,
            vec![entry("text")],
            true,
            with(vec![Embedding::Now(embedded(&third))]),
        )
        .await
        .unwrap();
    assert_ne!(store.begin_move(&other).await.unwrap(), MoveState::Done);
    for entry in store.unembedded(&other, None, 10).await.unwrap().entries {
        let late = LateEmbedding {
            id: entry.id,
            version: entry.version,
            embedded: embedded(&other),
        };
        store.add_embeddings(&owner, vec![late]).await.unwrap();
    }
    assert_eq!(store.finish_move(&other, 0).await.unwrap(), Moved::Done);
    store.close().await;
    drop(store);
    let store = open(&path);
    assert_eq!(
        store.embedded_entries(&owner, &other, None).await.unwrap(),
        1,
        "the database has the set that is in use"
    );
    store.close().await;
}
