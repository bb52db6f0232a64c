//! Vectors are stored with their entries and found by distance.

use context_model::{ContentType, Filter, Reason, Source, ThreadId, ThreadSet};
use context_store::{
    ChunkKey, ChunkRange, DeleteCriteria, Embedded, EmbeddedChunk, Embedding, EmbeddingModel,
    FtsSearch, LateEmbedding, ModelUse, MoveState, Moved, OwnerId, RankSearch, Ranking,
    SemanticSearch, Store, VectorStore, WriteOptions,
};
use context_text::{Analyzer, Language, Mode, parse};

use crate::arrange::*;
use crate::suite::behaviour;

const DIMENSIONS: u32 = 8;

pub(crate) fn model() -> EmbeddingModel {
    EmbeddingModel {
        identity: "test@1".to_owned(),
        dimensions: DIMENSIONS,
    }
}

/// A vector at this angle to the first axis, in degrees.
pub(crate) fn vector(degrees: f32) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS as usize];
    (vector[0], vector[1]) = (degrees.to_radians().cos(), degrees.to_radians().sin());
    vector
}

pub(crate) fn at_angles(degrees: &[f32]) -> Embedding {
    let chunk = |(place, angle): (usize, &f32)| EmbeddedChunk {
        start: place as u32 * 10,
        end: place as u32 * 10 + 10,
        vector: vector(*angle),
        tokens: None,
    };
    Embedding::Now(Embedded {
        model: model(),
        chunks: degrees.iter().enumerate().map(chunk).collect(),
    })
}

fn embedded(embedding: Embedding) -> Embedded {
    match embedding {
        Embedding::Now(embedded) => embedded,
        Embedding::Later => unreachable!("it is made with vectors"),
    }
}

/// The same embedding with these bytes for the tokens of each chunk.
fn with_tokens(mut embedding: Embedding, tokens: &[Option<&[u8]>]) -> Embedding {
    if let Embedding::Now(embedded) = &mut embedding {
        for (chunk, tokens) in embedded.chunks.iter_mut().zip(tokens) {
            chunk.tokens = tokens.map(<[u8]>::to_vec);
        }
    }
    embedding
}

/// The stored tokens of an entry's first chunks, for this owner and model.
async fn tokens_of(
    vectors: &dyn VectorStore,
    owner: &OwnerId,
    model: &EmbeddingModel,
    id: i64,
) -> Vec<(u32, Vec<u8>)> {
    let keys = (0..4).map(|position| ChunkKey { id, position }).collect();
    let found = vectors
        .tokens(owner, model, keys)
        .await
        .expect("the tokens are read");
    let mut found: Vec<_> = found
        .into_iter()
        .map(|found| (found.key.position, found.tokens))
        .collect();
    found.sort_unstable();
    found
}

pub(crate) async fn ready(store: &dyn Store) -> &dyn VectorStore {
    let vectors = store.vectors();
    assert_eq!(
        vectors
            .use_model(&model())
            .await
            .expect("the model is taken"),
        ModelUse::Ready
    );
    vectors
}

async fn put(store: &dyn Store, entry: Entry, owner: &OwnerId, embedding: Embedding) -> i64 {
    let options = WriteOptions {
        embeddings: vec![embedding],
        ..options(0)
    };
    let written = store
        .store_contexts(owner, vec![entry.0], true, options)
        .await
        .expect("the entry is stored");
    applied(&written.outcome)[0].id
}

async fn store_at(store: &dyn Store, text: &str, degrees: &[f32]) -> i64 {
    put(store, entry(text), &me(), at_angles(degrees)).await
}

pub(crate) fn near_angle(degrees: f32, depth: u32) -> RankSearch {
    let semantic = Some(SemanticSearch {
        model: model(),
        vector: vector(degrees),
    });
    RankSearch {
        kind: context_store::DocumentKind::Context,
        fts: None,
        semantic,
        depth,
        exact: depth,
        boundaries: &[],
        explain: false,
    }
}

pub(crate) async fn ranking(
    vectors: &dyn VectorStore,
    search: RankSearch,
    filter: Filter,
) -> Ranking {
    vectors
        .rank(&me(), search, filter, now())
        .await
        .expect("the search works")
}

async fn nearest(vectors: &dyn VectorStore, degrees: f32) -> Vec<i64> {
    ranking(vectors, near_angle(degrees, 10), Filter::default())
        .await
        .semantic
        .iter()
        .map(|found| found.id)
        .collect()
}

/// Distances are L2, the smallest first.
async fn the_nearest_come_first_with_their_distance(store: &dyn Store) {
    let vectors = ready(store).await;
    let far = store_at(store, "far", &[90.0]).await;
    let near = store_at(store, "near", &[10.0]).await;
    let found = ranking(vectors, near_angle(0.0, 10), Filter::default())
        .await
        .semantic;
    assert_eq!(
        found.iter().map(|found| found.id).collect::<Vec<_>>(),
        [near, far]
    );
    assert!(
        (found[1].distance - 2f64.sqrt()).abs() < 1e-5,
        "{}",
        found[1].distance
    );
    assert!(
        (found[0].distance - 2.0 * 5f64.to_radians().sin()).abs() < 1e-5,
        "{}",
        found[0].distance
    );
}
behaviour!(the_nearest_come_first_with_their_distance(store));

/// An entry with several chunks is found once, by the nearest of them.
async fn an_entry_counts_by_its_nearest_chunk(store: &dyn Store) {
    let vectors = ready(store).await;
    let several = store_at(store, "several", &[80.0, 5.0, 60.0]).await;
    let one = store_at(store, "one", &[20.0]).await;
    let found = ranking(vectors, near_angle(0.0, 10), Filter::default())
        .await
        .semantic;
    assert_eq!(
        found.iter().map(|found| found.id).collect::<Vec<_>>(),
        [several, one],
        "each entry once"
    );
    assert_eq!(
        found[0].chunk,
        Some(ChunkRange {
            position: 1,
            start: 10,
            end: 20
        }),
        "with the position of that chunk"
    );
}
behaviour!(an_entry_counts_by_its_nearest_chunk(store));

/// Entries at the same distance have a fixed order.
async fn equal_distances_come_newest_first_and_depth_bounds_them(store: &dyn Store) {
    let vectors = ready(store).await;
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(store_at(store, &format!("text {n}"), &[45.0]).await);
    }
    ids.reverse();
    assert_eq!(nearest(vectors, 0.0).await, ids[..10]);
}
behaviour!(equal_distances_come_newest_first_and_depth_bounds_them(
    store
));

/// Vectors always belong to the stored text.
async fn an_update_of_the_text_replaces_the_vectors(store: &dyn Store) {
    let vectors = ready(store).await;
    let id = store_at(store, "first", &[0.0]).await;
    update(id)
        .tags(&["x"])
        .apply(store, 1)
        .await
        .expect("the update works");
    assert_eq!(nearest(vectors, 0.0).await, [id], "the vectors are kept");
    let options = WriteOptions {
        embeddings: vec![at_angles(&[90.0])],
        ..options(2)
    };
    store
        .update_contexts(&me(), vec![update(id).text("second").0], true, options)
        .await
        .expect("the update works");
    let found = ranking(vectors, near_angle(90.0, 10), Filter::default())
        .await
        .semantic;
    assert_eq!(found.len(), 1);
    assert!(found[0].distance < 1e-3);
    update(id)
        .text("third")
        .apply(store, 3)
        .await
        .expect("the update works");
    assert_eq!(
        nearest(vectors, 90.0).await,
        [0; 0],
        "no vectors of a replaced text"
    );
    assert_eq!(
        vectors
            .embedded_entries(&me(), &model(), None)
            .await
            .expect("counts"),
        0
    );
}
behaviour!(an_update_of_the_text_replaces_the_vectors(store));

/// Deleted entries are not found.
async fn deleted_entries_take_their_vectors_along(store: &dyn Store) {
    let vectors = ready(store).await;
    let gone = store_at(store, "gone", &[0.0, 10.0]).await;
    let kept = store_at(store, "kept", &[20.0]).await;
    assert_eq!(
        vectors
            .embedded_entries(&me(), &model(), None)
            .await
            .expect("counts"),
        2
    );
    delete_ids(store, &[gone]).await;
    assert_eq!(nearest(vectors, 0.0).await, [kept]);
    delete(
        store,
        DeleteCriteria {
            threads: Some(vec![ThreadId::from_stored("t".to_owned())]),
            ..DeleteCriteria::default()
        },
    )
    .await;
    assert_eq!(nearest(vectors, 0.0).await, [0; 0]);
    assert_eq!(
        vectors
            .embedded_entries(&me(), &model(), None)
            .await
            .expect("counts"),
        0
    );
}
behaviour!(deleted_entries_take_their_vectors_along(store));

/// The number of waiting entries is that of all owners, and follows each write.
async fn waiting_entries_are_counted_over_all_owners(store: &dyn Store) {
    let vectors = ready(store).await;
    let waiting = async |model: &EmbeddingModel| {
        vectors
            .unembedded_entries(model)
            .await
            .expect("they are counted")
    };
    let before = waiting(&model()).await;
    store_at(store, "embedded", &[10.0]).await;
    assert_eq!(waiting(&model()).await, before);
    let another = OwnerId::new("another");
    let late = put(store, entry("waits"), &me(), Embedding::Later).await;
    put(store, entry("waits too"), &another, Embedding::Later).await;
    assert_eq!(waiting(&model()).await, before + 2);
    let embedding = LateEmbedding {
        id: late,
        version: 1,
        embedded: embedded(at_angles(&[20.0])),
    };
    let taken = vectors.add_embeddings(&me(), vec![embedding]).await;
    assert_eq!(taken.expect("it is stored"), 1);
    assert_eq!(waiting(&model()).await, before + 1);
    assert_eq!(waiting(&newer()).await, 0, "an unknown model");
}
behaviour!(waiting_entries_are_counted_over_all_owners(store));

/// A prefix selects the threads that begin with it. An entry with several chunks counts once.
async fn entries_with_vectors_are_counted_within_threads(store: &dyn Store) {
    let vectors = ready(store).await;
    for (text, thread, embedding) in [
        ("one", "a", at_angles(&[0.0, 10.0])),
        ("two", "ab", at_angles(&[20.0])),
        ("waits", "ab", Embedding::Later),
        ("three", "b", at_angles(&[30.0])),
    ] {
        put(store, entry(text).thread(thread), &me(), embedding).await;
    }
    let theirs = entry("theirs").thread("a");
    let other = OwnerId::new("other");
    put(store, theirs, &other, at_angles(&[0.0])).await;
    for (pattern, expected) in [("a", 1), ("ab", 1), ("a*", 2), ("c", 0)] {
        let threads = ThreadSet::from_shown(&[pattern.to_owned()]);
        assert!(threads.is_some());
        let counted = vectors.embedded_entries(&me(), &model(), threads).await;
        assert_eq!(counted.expect("counts"), expected, "{pattern}");
    }
    let all = vectors.embedded_entries(&me(), &model(), None).await;
    assert_eq!(all.expect("counts"), 3);
}
behaviour!(entries_with_vectors_are_counted_within_threads(store));

/// Entries and vectors are written in the same transaction.
async fn a_write_that_fails_leaves_no_vectors(store: &dyn Store) {
    let vectors = ready(store).await;
    let id = store_at(store, "there", &[0.0]).await;
    let updates = vec![
        update(id).text("changed").0,
        update(id + 999).text("unknown").0,
    ];
    let options = WriteOptions {
        embeddings: vec![at_angles(&[90.0]), at_angles(&[90.0])],
        ..options(1)
    };
    let updated = store.update_contexts(&me(), updates, true, options).await;
    assert_eq!(reason(updated), Reason::ContextNotFound);
    let found = ranking(vectors, near_angle(0.0, 10), Filter::default())
        .await
        .semantic;
    assert!(
        found.len() == 1 && found[0].distance < 1e-3,
        "the vectors are unchanged"
    );
    assert_eq!(
        vectors
            .embedded_entries(&me(), &model(), None)
            .await
            .expect("counts"),
        1
    );
}
behaviour!(a_write_that_fails_leaves_no_vectors(store));

/// A filter is applied before the nearest are chosen, not after.
async fn vectors_of_a_filter_never_starve(store: &dyn Store) {
    let vectors = ready(store).await;
    for n in 0..60 {
        put(
            store,
            entry(&format!("near {n}")),
            &me(),
            at_angles(&[n as f32 * 0.1]),
        )
        .await;
    }
    let far = put(
        store,
        entry("far").agent().thread("other").tags(&["rare"]),
        &me(),
        at_angles(&[89.0]),
    )
    .await;
    let filters = [
        Filter {
            source: Some(Source::Agent),
            ..Filter::default()
        },
        Filter {
            thread_id: Some(ThreadId::from_stored("other".to_owned())),
            ..Filter::default()
        },
        Filter {
            tags: Some(tags(&["rare"])),
            ..Filter::default()
        },
        Filter {
            within: ThreadSet::from_shown(&["oth*".to_owned()]),
            ..Filter::default()
        },
        Filter {
            created_from: Some(at(0)),
            source: Some(Source::Agent),
            ..Filter::default()
        },
    ];
    for filter in filters {
        let found = ranking(vectors, near_angle(0.0, 5), filter.clone())
            .await
            .semantic;
        assert_eq!(
            found.iter().map(|found| found.id).collect::<Vec<_>>(),
            [far],
            "{filter:?}"
        );
    }
    let none = Filter {
        content_type: Some(ContentType::Multimodal),
        ..Filter::default()
    };
    assert!(
        ranking(vectors, near_angle(0.0, 5), none)
            .await
            .semantic
            .is_empty()
    );
}
behaviour!(vectors_of_a_filter_never_starve(store));

/// A search finds only its owner's vectors.
async fn owners_do_not_find_each_others_vectors(store: &dyn Store) {
    let vectors = ready(store).await;
    let other = OwnerId::new("other");
    put(store, entry("theirs"), &other, at_angles(&[0.0])).await;
    assert_eq!(nearest(vectors, 0.0).await, [0; 0]);
    let mine = store_at(store, "mine", &[50.0]).await;
    assert_eq!(nearest(vectors, 0.0).await, [mine]);
    assert_eq!(
        vectors
            .embedded_entries(&other, &model(), None)
            .await
            .expect("counts"),
        1
    );
}
behaviour!(owners_do_not_find_each_others_vectors(store));

/// A search never compares vectors of different models.
async fn another_model_never_mixes(store: &dyn Store) {
    let vectors = ready(store).await;
    let newer = EmbeddingModel {
        identity: "test@2".to_owned(),
        ..model()
    };
    assert_eq!(
        vectors
            .use_model(&newer)
            .await
            .expect("without vectors any model is accepted"),
        ModelUse::Ready
    );
    let stale = store_at(store, "made with the other model", &[0.0]).await;
    let search = RankSearch {
        kind: context_store::DocumentKind::Context,
        semantic: Some(SemanticSearch {
            model: newer.clone(),
            vector: vector(0.0),
        }),
        ..near_angle(0.0, 10)
    };
    assert!(
        ranking(vectors, search.clone(), Filter::default())
            .await
            .semantic
            .is_empty(),
        "vectors of another model are not stored"
    );
    let waiting = vectors
        .unembedded(&newer, None, 10)
        .await
        .expect("a page")
        .entries;
    assert_eq!(
        waiting.iter().map(|entry| entry.id).collect::<Vec<_>>(),
        [stale]
    );
    let right = Embedded {
        model: newer.clone(),
        ..embedded(at_angles(&[0.0]))
    };
    put(
        store,
        entry("made with this one"),
        &me(),
        Embedding::Now(right),
    )
    .await;
    assert_eq!(
        vectors.use_model(&model()).await.expect("answers"),
        ModelUse::Other(newer)
    );
    let ranked = vectors
        .rank(&me(), near_angle(0.0, 10), Filter::default(), now())
        .await;
    assert_eq!(reason(ranked), Reason::FeatureUnavailable);
    assert_eq!(
        ranking(vectors, search, Filter::default())
            .await
            .semantic
            .len(),
        1,
        "the old vectors are still searched"
    );
}
behaviour!(another_model_never_mixes(store));

/// Entries stored without vectors get them later, unless they have changed.
async fn entries_wait_for_their_vectors_and_take_them_once(store: &dyn Store) {
    let vectors = ready(store).await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(put(store, entry(&format!("waits {n}")), &me(), Embedding::Later).await);
    }
    store_at(store, "has its own", &[0.0]).await;
    let mut waiting = Vec::new();
    let mut after = None;
    loop {
        let page = vectors
            .unembedded(&model(), after.as_ref(), 2)
            .await
            .expect("a page");
        assert!(page.entries.len() <= 2);
        waiting.extend(page.entries);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(
        waiting.iter().map(|entry| entry.id).collect::<Vec<_>>(),
        ids
    );
    assert_eq!(
        (
            waiting[0].text.as_str(),
            waiting[0].version,
            &waiting[0].owner
        ),
        ("waits 0", 1, &me())
    );

    update(ids[0])
        .text("changed meanwhile")
        .apply(store, 1)
        .await
        .expect("the update works");
    delete_ids(store, &[ids[1]]).await;
    let before = revision(store).await;
    let late = |id: i64| LateEmbedding {
        id,
        version: 1,
        embedded: embedded(at_angles(&[30.0])),
    };
    let taken = vectors
        .add_embeddings(&me(), ids.iter().map(|id| late(*id)).collect())
        .await
        .expect("they are added");
    assert_eq!(taken, 3, "not the changed one, nor the deleted one");
    assert_eq!(
        vectors
            .add_embeddings(&me(), vec![late(ids[2])])
            .await
            .expect("nothing happens"),
        0
    );
    assert_eq!(
        revision(store).await,
        before,
        "late vectors do not change the revision"
    );
    assert_eq!(nearest(vectors, 30.0).await.len(), 4);
    let left = vectors
        .unembedded(&model(), None, 10)
        .await
        .expect("a page")
        .entries;
    assert_eq!(
        left.iter().map(|entry| entry.id).collect::<Vec<_>>(),
        [ids[0]]
    );
}
behaviour!(entries_wait_for_their_vectors_and_take_them_once(store));

/// Full-text and semantic search rank the same state of the database.
async fn both_rankings_show_one_state(store: &dyn Store) {
    let vectors = ready(store).await;
    let id = store_at(store, "fox and hound", &[0.0]).await;
    let wordless = store_at(store, "nothing of the kind", &[10.0]).await;
    let query = parse(Mode::Match, "fox", &Analyzer::new(Language::English))
        .expect("parses")
        .expect("has words");
    let search = RankSearch {
        kind: context_store::DocumentKind::Context,
        fts: Some(FtsSearch {
            query,
            ranking_cap: 100,
            context_weight: 0.0,
        }),
        explain: true,
        ..near_angle(0.0, 10)
    };
    let found = ranking(vectors, search, Filter::default()).await;
    assert_eq!(
        found.fts.iter().map(|found| found.id).collect::<Vec<_>>(),
        [id]
    );
    assert_eq!(
        found
            .semantic
            .iter()
            .map(|found| found.id)
            .collect::<Vec<_>>(),
        [id, wordless]
    );
    assert_eq!(found.revision, revision(store).await);
    assert!(!found.plan.is_empty());
}
behaviour!(both_rankings_show_one_state(store));

/// A search sees an entry and its vectors in the same state, whatever is written meanwhile.
async fn an_entry_that_is_updated_all_the_time_is_found_all_the_time(store: &dyn Store) {
    let vectors = ready(store).await;
    let id = store_at(store, "first", &[30.0]).await;
    let updates = async {
        for n in 0..100 {
            let options = WriteOptions {
                embeddings: vec![at_angles(&[30.0, 60.0])],
                ..options(n)
            };
            let update = update(id).text(&format!("text {n}")).0;
            store
                .update_contexts(&me(), vec![update], true, options)
                .await
                .expect("the update works");
        }
    };
    let searches = async {
        for _ in 0..100 {
            let found = ranking(vectors, near_angle(30.0, 10), Filter::default())
                .await
                .semantic;
            assert!(found.len() == 1 && found[0].distance < 1e-3, "{found:?}");
        }
    };
    futures::join!(updates, searches);
    assert_eq!(
        vectors
            .embedded_entries(&me(), &model(), None)
            .await
            .expect("counts"),
        1
    );
}
behaviour!(an_entry_that_is_updated_all_the_time_is_found_all_the_time(
    store
));

/// Of several updates in one batch, the last one counts. A rejected item changes nothing.
async fn the_vectors_of_a_batch_are_those_of_its_last_texts(store: &dyn Store) {
    let vectors = ready(store).await;
    let (one, other) = (
        store_at(store, "one", &[0.0]).await,
        store_at(store, "other", &[10.0]).await,
    );
    let updates = vec![
        update(one).text("a").0,
        update(other + 999).text("unknown").0,
        update(one).text("b").0,
        update(other).tags(&["x"]).0,
        update(one).tags(&["x"]).0,
    ];
    let embeddings = vec![
        at_angles(&[20.0, 25.0]),
        at_angles(&[21.0]),
        at_angles(&[80.0]),
        Embedding::Later,
        Embedding::Later,
    ];
    let options = WriteOptions {
        embeddings,
        ..options(1)
    };
    store
        .update_contexts(&me(), updates, false, options)
        .await
        .expect("items are independent");
    let found = ranking(vectors, near_angle(80.0, 10), Filter::default())
        .await
        .semantic;
    assert_eq!(
        found.iter().map(|found| found.id).collect::<Vec<_>>(),
        [one, other]
    );
    assert!(found[0].distance < 1e-3, "{found:?}");
    assert_eq!(nearest(vectors, 10.0).await, [other, one]);
}
behaviour!(the_vectors_of_a_batch_are_those_of_its_last_texts(store));

fn newer() -> EmbeddingModel {
    EmbeddingModel {
        identity: "test@2".to_owned(),
        ..model()
    }
}

/// Adds vectors of a model at this angle to at most this many entries that wait for them.
async fn gather(
    vectors: &dyn VectorStore,
    model: &EmbeddingModel,
    degrees: f32,
    at_most: u32,
) -> u64 {
    let mut taken = 0;
    for entry in vectors
        .unembedded(model, None, at_most)
        .await
        .expect("a page")
        .entries
    {
        let embedded = Embedded {
            model: model.clone(),
            ..embedded(at_angles(&[degrees]))
        };
        let late = LateEmbedding {
            id: entry.id,
            version: entry.version,
            embedded,
        };
        taken += vectors
            .add_embeddings(&entry.owner, vec![late])
            .await
            .expect("they are added");
    }
    taken
}

async fn with_model(
    vectors: &dyn VectorStore,
    model: &EmbeddingModel,
    degrees: f32,
) -> Vec<(i64, f64)> {
    let search = RankSearch {
        kind: context_store::DocumentKind::Context,
        semantic: Some(SemanticSearch {
            model: model.clone(),
            vector: vector(degrees),
        }),
        ..near_angle(0.0, 10)
    };
    ranking(vectors, search, Filter::default())
        .await
        .semantic
        .iter()
        .map(|found| (found.id, found.distance))
        .collect()
}

/// Searches use the current vectors until the move to the other model is finished.
async fn a_move_gathers_beside_what_is_in_use_and_changes_at_once(store: &dyn Store) {
    let vectors = ready(store).await;
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(store_at(store, &format!("text {n}"), &[10.0 * n as f32]).await);
    }
    assert_eq!(
        vectors.begin_move(&model()).await.expect("answers"),
        MoveState::Done,
        "this model is already in use"
    );
    assert_eq!(
        vectors.finish_move(&newer(), 9).await.expect("answers"),
        Moved::NotBegun
    );
    assert_eq!(
        vectors.begin_move(&newer()).await.expect("begins"),
        MoveState::Begun {
            embedded: 0,
            entries: 4
        }
    );
    assert_eq!(gather(vectors, &newer(), 90.0, 3).await, 3);
    assert_eq!(
        vectors.finish_move(&newer(), 0).await.expect("answers"),
        Moved::Waiting
    );
    assert_eq!(
        vectors.use_model(&newer()).await.expect("answers"),
        ModelUse::Other(model())
    );
    let search = RankSearch {
        kind: context_store::DocumentKind::Context,
        semantic: Some(SemanticSearch {
            model: newer(),
            vector: vector(0.0),
        }),
        ..near_angle(0.0, 10)
    };
    let ranked = vectors.rank(&me(), search, Filter::default(), now()).await;
    assert_eq!(reason(ranked), Reason::FeatureUnavailable);

    // All other operations continue meanwhile.
    let late = store_at(store, "meanwhile", &[0.0]).await;
    let options = WriteOptions {
        embeddings: vec![at_angles(&[1.0])],
        ..options(1)
    };
    store
        .update_contexts(&me(), vec![update(ids[0]).text("changed").0], true, options)
        .await
        .expect("the update works");
    delete_ids(store, &[ids[1]]).await;
    assert_eq!(nearest(vectors, 0.0).await, [late, ids[0], ids[2], ids[3]]);
    let revision_before = revision(store).await;
    assert_eq!(
        gather(vectors, &newer(), 45.0, 10).await,
        3,
        "the last, the new and the changed one"
    );
    assert_eq!(
        vectors
            .embedded_entries(&me(), &model(), None)
            .await
            .expect("counts"),
        4
    );
    assert_eq!(
        vectors.finish_move(&newer(), 0).await.expect("answers"),
        Moved::Done
    );
    assert_eq!(
        vectors.finish_move(&newer(), 0).await.expect("answers"),
        Moved::Done,
        "finishing again changes nothing"
    );
    assert_eq!(revision(store).await, revision_before, "no entry changed");

    let found = with_model(vectors, &newer(), 90.0).await;
    assert_eq!(
        found.iter().map(|found| found.0).collect::<Vec<_>>(),
        [ids[2], late, ids[3], ids[0]]
    );
    assert!(found[0].1 < 1e-3 && found[1].1 > 0.5, "{found:?}");
    assert_eq!(
        vectors.use_model(&model()).await.expect("answers"),
        ModelUse::Other(newer())
    );
    assert_eq!(
        vectors.use_model(&newer()).await.expect("answers"),
        ModelUse::Ready
    );
    assert_eq!(
        vectors
            .embedded_entries(&me(), &newer(), None)
            .await
            .expect("counts"),
        4
    );
    let stored = Embedding::Now(Embedded {
        model: newer(),
        ..embedded(at_angles(&[90.0]))
    });
    let latest = put(store, entry("with the new one"), &me(), stored).await;
    delete_ids(store, &[ids[2]]).await;
    vectors
        .maintain()
        .await
        .expect("the old vectors are deleted");
    assert_eq!(with_model(vectors, &newer(), 90.0).await[0].0, latest);
    assert_eq!(with_model(vectors, &newer(), 90.0).await.len(), 4);
}
behaviour!(a_move_gathers_beside_what_is_in_use_and_changes_at_once(
    store
));

/// The vectors stored so far stay, until a move to a third model begins.
async fn a_move_that_was_interrupted_goes_on_and_a_third_model_starts_over(store: &dyn Store) {
    let vectors = ready(store).await;
    for n in 0..3 {
        store_at(store, &format!("text {n}"), &[0.0]).await;
    }
    vectors.begin_move(&newer()).await.expect("begins");
    gather(vectors, &newer(), 90.0, 2).await;
    assert_eq!(
        vectors.begin_move(&newer()).await.expect("goes on"),
        MoveState::Begun {
            embedded: 2,
            entries: 3
        }
    );
    let third = EmbeddingModel {
        identity: "test@3".to_owned(),
        ..model()
    };
    assert_eq!(
        vectors.begin_move(&third).await.expect("begins"),
        MoveState::Begun {
            embedded: 0,
            entries: 3
        }
    );
    assert_eq!(
        vectors.finish_move(&newer(), 9).await.expect("answers"),
        Moved::NotBegun
    );
    vectors.maintain().await.expect("the rest is deleted");
    assert_eq!(gather(vectors, &third, 30.0, 10).await, 3);
    assert_eq!(
        vectors.finish_move(&third, 0).await.expect("answers"),
        Moved::Done
    );
    // A move back to the abandoned model starts from the beginning.
    assert_eq!(
        vectors.begin_move(&newer()).await.expect("begins"),
        MoveState::Begun {
            embedded: 0,
            entries: 3
        }
    );
    assert_eq!(with_model(vectors, &third, 30.0).await.len(), 3);
}
behaviour!(a_move_that_was_interrupted_goes_on_and_a_third_model_starts_over(store));

/// Entries stored while the last ones are embedded do not delay the end indefinitely.
async fn a_move_may_leave_some_entries_waiting(store: &dyn Store) {
    let vectors = ready(store).await;
    for n in 0..3 {
        store_at(store, &format!("text {n}"), &[0.0]).await;
    }
    vectors.begin_move(&newer()).await.expect("begins");
    gather(vectors, &newer(), 90.0, 2).await;
    assert_eq!(
        vectors.finish_move(&newer(), 1).await.expect("answers"),
        Moved::Done
    );
    assert_eq!(with_model(vectors, &newer(), 90.0).await.len(), 2);
    assert_eq!(gather(vectors, &newer(), 80.0, 10).await, 1);
    assert_eq!(with_model(vectors, &newer(), 90.0).await.len(), 3);
}
behaviour!(a_move_may_leave_some_entries_waiting(store));

/// Token vectors are read back byte for byte, and are deleted with the text they were made of.
async fn tokens_come_and_go_with_their_chunks(store: &dyn Store) {
    let vectors = ready(store).await;
    let large: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
    let first = with_tokens(
        at_angles(&[0.0, 10.0, 20.0]),
        &[Some(&large), None, Some(&[0, 1, 255])],
    );
    let id = put(store, entry("first"), &me(), first).await;
    let plain = store_at(store, "without", &[5.0]).await;
    let kept = [(0, large), (2, vec![0, 1, 255])];
    assert_eq!(tokens_of(vectors, &me(), &model(), id).await, kept);
    assert_eq!(tokens_of(vectors, &me(), &model(), plain).await, []);
    let wanted = vec![
        ChunkKey {
            id: plain,
            position: 0,
        },
        ChunkKey { id, position: 2 },
        ChunkKey {
            id: id + 999,
            position: 0,
        },
    ];
    let found = vectors
        .tokens(&me(), &model(), wanted.clone())
        .await
        .expect("the tokens are read");
    assert_eq!(
        found.iter().map(|found| found.key).collect::<Vec<_>>(),
        wanted[1..2],
        "only the requested ones"
    );

    update(id)
        .tags(&["x"])
        .apply(store, 1)
        .await
        .expect("the update works");
    let options_of = |embedding, second| WriteOptions {
        embeddings: vec![embedding, Embedding::Later],
        ..options(second)
    };
    let failing = vec![
        update(id).text("second").0,
        update(id + 999).text("unknown").0,
    ];
    let embedding = with_tokens(at_angles(&[0.0]), &[Some(&[9])]);
    let updated = store
        .update_contexts(&me(), failing, true, options_of(embedding.clone(), 2))
        .await;
    assert_eq!(reason(updated), Reason::ContextNotFound);
    assert_eq!(
        tokens_of(vectors, &me(), &model(), id).await,
        kept,
        "neither other fields nor a failure change them"
    );
    store
        .update_contexts(
            &me(),
            vec![update(id).text("second").0],
            true,
            options_of(embedding, 3),
        )
        .await
        .expect("the update works");
    assert_eq!(
        tokens_of(vectors, &me(), &model(), id).await,
        [(0, vec![9])],
        "those of the previous text are deleted"
    );
    update(id)
        .text("third")
        .apply(store, 4)
        .await
        .expect("the update works");
    assert_eq!(tokens_of(vectors, &me(), &model(), id).await, []);
    let gone = put(
        store,
        entry("gone"),
        &me(),
        with_tokens(at_angles(&[0.0]), &[Some(&[7])]),
    )
    .await;
    delete_ids(store, &[gone]).await;
    assert_eq!(tokens_of(vectors, &me(), &model(), gone).await, []);
}
behaviour!(tokens_come_and_go_with_their_chunks(store));

/// Token vectors of another owner or another model are never read.
async fn tokens_belong_to_an_owner_and_a_model(store: &dyn Store) {
    let vectors = ready(store).await;
    let other = OwnerId::new("other");
    let mine = put(
        store,
        entry("mine"),
        &me(),
        with_tokens(at_angles(&[0.0]), &[Some(b"mine")]),
    )
    .await;
    let theirs = put(
        store,
        entry("theirs"),
        &other,
        with_tokens(at_angles(&[0.0]), &[Some(b"theirs")]),
    )
    .await;
    assert_eq!(mine, theirs, "each owner has ids of its own");
    assert_eq!(
        tokens_of(vectors, &me(), &model(), mine).await,
        [(0, b"mine".to_vec())]
    );
    assert_eq!(
        tokens_of(vectors, &other, &model(), mine).await,
        [(0, b"theirs".to_vec())]
    );
    assert_eq!(
        tokens_of(vectors, &OwnerId::new("nobody"), &model(), mine).await,
        []
    );
    assert_eq!(tokens_of(vectors, &me(), &newer(), mine).await, []);
    let foreign = Embedding::Now(Embedded {
        model: newer(),
        ..embedded(with_tokens(at_angles(&[0.0]), &[Some(&[1])]))
    });
    let waits = put(store, entry("made with another model"), &me(), foreign).await;
    assert_eq!(
        tokens_of(vectors, &me(), &newer(), waits).await,
        [],
        "token vectors of another model are not stored"
    );
}
behaviour!(tokens_belong_to_an_owner_and_a_model(store));

/// Late vectors and those of a change of model include their token vectors.
async fn late_vectors_and_those_of_a_move_bring_their_tokens(store: &dyn Store) {
    let vectors = ready(store).await;
    let waits = put(store, entry("waits"), &me(), Embedding::Later).await;
    let late = |model: EmbeddingModel, tokens: &[u8]| LateEmbedding {
        id: waits,
        version: 1,
        embedded: Embedded {
            model,
            ..embedded(with_tokens(at_angles(&[30.0]), &[Some(tokens)]))
        },
    };
    assert_eq!(
        vectors
            .add_embeddings(&me(), vec![late(model(), b"first")])
            .await
            .expect("it is added"),
        1
    );
    assert_eq!(
        vectors
            .add_embeddings(&me(), vec![late(model(), b"again")])
            .await
            .expect("nothing happens"),
        0
    );
    assert_eq!(
        tokens_of(vectors, &me(), &model(), waits).await,
        [(0, b"first".to_vec())]
    );
    vectors.begin_move(&newer()).await.expect("begins");
    assert_eq!(
        vectors
            .add_embeddings(&me(), vec![late(newer(), b"second")])
            .await
            .expect("it is added"),
        1
    );
    assert_eq!(
        tokens_of(vectors, &me(), &model(), waits).await,
        [(0, b"first".to_vec())],
        "the current ones are read"
    );
    assert_eq!(
        vectors.finish_move(&newer(), 0).await.expect("answers"),
        Moved::Done
    );
    assert_eq!(
        tokens_of(vectors, &me(), &newer(), waits).await,
        [(0, b"second".to_vec())]
    );
    vectors
        .maintain()
        .await
        .expect("the old vectors are deleted");
    assert_eq!(
        tokens_of(vectors, &me(), &newer(), waits).await,
        [(0, b"second".to_vec())]
    );
    delete_ids(store, &[waits]).await;
    assert_eq!(tokens_of(vectors, &me(), &newer(), waits).await, []);
}
behaviour!(late_vectors_and_those_of_a_move_bring_their_tokens(store));
