//! Vectors in PostgreSQL: how a search finds them, the index, several services, and a server without pgvector.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use context_model::{Filter, NewEntry, Source, Tags, ThreadId, Timestamp};
use context_store::{
    Embedded, EmbeddedChunk, Embedding, EmbeddingModel, LateEmbedding, ModelUse, MoveState, Moved,
    OwnerId, RankSearch, Ranking, Read, SemanticSearch, Store, StoreError, VectorStore,
    WriteOptions,
};
use context_store_postgres::PostgresStore;
use context_test_postgres::{Client, TestDatabase};
use context_test_support::{Random, until};
use futures::FutureExt as _;

use super::arrange::{config, database, store};

const DIMENSIONS: usize = 96;
/// Number of entries of the large owner, which is enough for the set to get an index.
const ENTRIES: usize = 20_000;
/// Number of entries of the small owner, whose vectors are in the same set.
const FEW: usize = 300;
const QUERIES: usize = 40;
const WANTED: usize = 10;
/// Depth of the ranking for a page of ten results.
const DEPTH: u32 = 64;

fn model() -> EmbeddingModel {
    EmbeddingModel {
        identity: "test@1".to_owned(),
        dimensions: DIMENSIONS as u32,
    }
}

fn options(embeddings: Vec<Embedding>) -> WriteOptions {
    WriteOptions {
        now: Timestamp(1),
        idempotency: None,
        key_id: None,
        embeddings,
    }
}

fn entry(text: &str) -> NewEntry {
    let thread_id = ThreadId::from_stored("t".to_owned());
    NewEntry {
        thread_id,
        source: Source::User,
        text: text.to_owned(),
        images: None,
        metadata: None,
        tags: None,
    }
}

/// Vectors in clusters of unequal sizes that vary in a few directions more than in others, as those of texts do.
fn clustered(count: usize, random: &mut Random) -> Vec<Vec<f32>> {
    let spread: Vec<f32> = (0..DIMENSIONS)
        .map(|axis| 1.0 / (1.0 + axis as f32 / 12.0))
        .collect();
    let point = |random: &mut Random| {
        spread
            .iter()
            .map(|spread| spread * random.normal())
            .collect::<Vec<f32>>()
    };
    let centres: Vec<Vec<f32>> = (0..150).map(|_| point(random)).collect();
    let vector = |_| {
        let (a, b) = (random.unit().abs(), random.unit().abs());
        let centre = &centres[((a * b * 150.0) as usize).min(149)];
        normalised(
            centre
                .iter()
                .zip(point(random))
                .map(|(centre, own)| centre + 0.6 * own)
                .collect(),
        )
    };
    (0..count).map(vector).collect()
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}

/// Tags. Every n-th entry of each owner has the tag with the number n.
const SHARES: [(&str, usize); 5] = [
    ("half", 2),
    ("third", 3),
    ("tenth", 10),
    ("hundredth", 100),
    ("thousandth", 1000),
];

/// A store with two owners' entries and their vectors, and with the index of the set.
async fn many() -> Option<(TestDatabase, PostgresStore, Vec<Vec<f32>>)> {
    let database = database().await?;
    let store = store(&database).await;
    let client = database.connect().await;
    let vectors = fill_both(&store, &client).await;
    store.maintain().await.expect("the index is made");
    client
        .batch_execute("ANALYZE context.entries; ANALYZE context.chunks")
        .await
        .expect("analyzed");
    Some((database, store, vectors))
}

/// Selects the model, and stores two owners' entries and their vectors.
pub(super) async fn fill_both(store: &PostgresStore, client: &Client) -> Vec<Vec<f32>> {
    assert_eq!(
        store
            .use_model(&model())
            .await
            .expect("the model is selected"),
        ModelUse::Ready
    );
    let vectors = clustered(ENTRIES + FEW, &mut Random::new(11));
    fill(client, "default", &vectors[..ENTRIES]).await;
    fill(client, "few", &vectors[ENTRIES..]).await;
    vectors
}

async fn fill(client: &Client, owner: &str, vectors: &[Vec<f32>]) {
    let count = vectors.len() as i64;
    let owner_row = "INSERT INTO context.owners VALUES ($1, 1, $2, $2, 0, 0, 0, 1)";
    client
        .execute(owner_row, &[&owner, &count])
        .await
        .expect("the owner is made");
    let tags: String = SHARES
        .iter()
        .map(|(tag, every)| {
            format!(" || CASE WHEN i % {every} = 0 THEN ARRAY['{tag}'] ELSE ARRAY[]::text[] END")
        })
        .collect();
    let entries = format!(
        "INSERT INTO context.entries SELECT $1, i, 't' || i % 50, 'user', 0, 1, i, i, ARRAY[]::text[]{tags}, '', '{{}}', '{{}}', '', \
         false, 'text' FROM generate_series(1, $2::bigint) AS i"
    );
    client
        .execute(&entries, &[&owner, &count])
        .await
        .expect("the entries are made");
    for (part, first) in vectors.chunks(2_000).zip((0i64..).step_by(2_000)) {
        let texts: Vec<String> = part.iter().map(|vector| format!("{vector:?}")).collect();
        let chunks = "INSERT INTO context.chunks SELECT $1, $2 + v.place, 1, 0, 0, 4, v.text::vector \
                      FROM unnest($3::text[]) WITH ORDINALITY AS v(text, place)";
        client
            .execute(chunks, &[&owner, &first, &texts])
            .await
            .expect("the vectors are made");
    }
}

async fn search(
    store: &PostgresStore,
    owner: &str,
    vector: &[f32],
    filter: Filter,
    explain: bool,
) -> Ranking {
    let semantic = Some(SemanticSearch {
        model: model(),
        vector: vector.to_vec(),
    });
    let search = RankSearch {
        kind: context_store::DocumentKind::Context,
        fts: None,
        semantic,
        depth: DEPTH,
        exact: DEPTH,
        boundaries: &[],
        explain,
    };
    store
        .rank(&OwnerId::new(owner), search, filter, Read::default())
        .await
        .expect("the search works")
}

fn tagged(tag: &str) -> Filter {
    Filter {
        tags: Some(Tags::from_normalised(vec![tag.to_owned()])),
        ..Filter::default()
    }
}

fn normalised(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    vector.iter_mut().for_each(|value| *value /= length);
    vector
}

/// Queries between two vectors of the stored kind.
fn between() -> Vec<Vec<f32>> {
    let pairs = clustered(QUERIES, &mut Random::new(11))
        .into_iter()
        .zip(clustered(QUERIES, &mut Random::new(5)));
    pairs
        .map(|(a, b)| normalised(a.iter().zip(&b).map(|(a, b)| a + 0.3 * b).collect()))
        .collect()
}

/// Queries that are close to no vector.
fn anywhere(seed: u64) -> Vec<Vec<f32>> {
    let mut random = Random::new(seed);
    (0..QUERIES)
        .map(|_| normalised((0..DIMENSIONS).map(|_| random.normal()).collect()))
        .collect()
}

/// Recall@10 against an exact scan.
async fn recall(
    store: &PostgresStore,
    owner: &str,
    vectors: &[Vec<f32>],
    queries: &[Vec<f32>],
    (filter, every): (&Filter, usize),
) -> f64 {
    let (mut found, mut all) = (0, 0);
    for query in queries {
        let mut exact: Vec<(f32, i64)> = vectors
            .iter()
            .zip(1i64..)
            .filter(|(_, id)| *id % every as i64 == 0)
            .map(|(vector, id)| (squared(vector, query), id))
            .collect();
        exact.sort_by(|a, b| a.0.total_cmp(&b.0));
        exact.truncate(WANTED);
        let ranking = search(store, owner, query, filter.clone(), false)
            .await
            .semantic;
        assert!(ranking.is_sorted_by(
            |a, b| a.distance < b.distance || (a.distance == b.distance && a.id > b.id)
        ));
        let nearest: HashSet<i64> = ranking.iter().take(WANTED).map(|found| found.id).collect();
        assert_eq!(nearest.len(), WANTED.min(exact.len()), "{owner} {filter:?}");
        for (squared, id) in &exact {
            let Some(hit) = ranking.iter().find(|hit| hit.id == *id) else {
                continue;
            };
            assert!(
                (hit.distance - f64::from(squared.sqrt())).abs() < 1e-4,
                "distances are those of the full vectors"
            );
        }
        found += exact.iter().filter(|(_, id)| nearest.contains(id)).count();
        all += exact.len();
    }
    found as f64 / all as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nearest_are_found_whatever_share_of_the_entries_a_filter_leaves() {
    let Some((_database, store, vectors)) = many().await else {
        return;
    };
    let (large, few) = vectors.split_at(ENTRIES);
    let queries = between();
    let all = (&Filter::default(), 1);
    let mut found = vec![(
        "everything",
        recall(&store, "default", large, &queries, all).await,
    )];
    for (tag, every) in SHARES {
        found.push((
            tag,
            recall(&store, "default", large, &queries, (&tagged(tag), every)).await,
        ));
    }
    found.push((
        "an owner with few entries",
        recall(&store, "few", few, &queries, all).await,
    ));
    found.push((
        "a tenth of few entries",
        recall(&store, "few", few, &queries, (&tagged("tenth"), 10)).await,
    ));
    eprintln!("recall@10: {found:?}");
    assert!(found.iter().all(|(_, recall)| *recall >= 0.97), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_larger_ef_search_finds_more_of_what_is_hard_to_find() {
    let Some((database, store, vectors)) = many().await else {
        return;
    };
    let with = async |ef_search| {
        let mut config = config(database.url());
        config.ef_search = ef_search;
        let store = PostgresStore::open(config)
            .await
            .expect("the database opens");
        let all = (&Filter::default(), 1);
        recall(&store, "default", &vectors[..ENTRIES], &anywhere(3), all).await
    };
    let found = [with(1).await, with(1_000).await];
    let all = (&Filter::default(), 1);
    let by_default = recall(&store, "default", &vectors[..ENTRIES], &anywhere(3), all).await;
    eprintln!("recall@10 by ef_search 1, 1000: {found:?}, by the default: {by_default}");
    assert!(found[0] < by_default && by_default <= found[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_index_answers_what_is_frequent_and_what_is_rare_is_measured() {
    let Some((_database, store, vectors)) = many().await else {
        return;
    };
    let in_thread = Filter {
        thread_id: Some(ThreadId::from_stored("t7".to_owned())),
        ..Filter::default()
    };
    for (owner, filter, by_index) in [
        ("default", Filter::default(), true),
        ("default", tagged("half"), true),
        ("default", tagged("third"), true),
        ("default", tagged("hundredth"), false),
        ("default", tagged("thousandth"), false),
        ("default", in_thread, false),
        ("few", Filter::default(), false),
        ("few", tagged("half"), false),
    ] {
        let found = search(&store, owner, &vectors[3], filter.clone(), true).await;
        let plan = found.plan.join("\n");
        assert_eq!(
            plan.contains("Index Scan using chunks_near_1"),
            by_index,
            "{owner} {filter:?}:\n{plan}"
        );
        // A search of the small owner must not read the vectors of the large one.
        assert!(
            !plan.contains("Seq Scan on chunks") || owner == "default",
            "{owner} {filter:?}:\n{plan}"
        );
        assert!(!found.semantic.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_vectors_are_compared_when_the_index_stops_before_it_has_found_enough() {
    let Some((database, store, vectors)) = many().await else {
        return;
    };
    // The planner still expects that half of the entries have the tag.
    let few_left = "ALTER TABLE context.entries SET (autovacuum_enabled = false); \
                    UPDATE context.entries SET tags = ARRAY[]::text[] WHERE owner_id = 'default' AND id > 20";
    database
        .connect()
        .await
        .batch_execute(few_left)
        .await
        .expect("updated");
    let found = search(&store, "default", &vectors[3], tagged("half"), true).await;
    let ids: HashSet<i64> = found.semantic.iter().map(|hit| hit.id).collect();
    assert_eq!(ids, (2..=20).step_by(2).collect::<HashSet<i64>>());
    assert_eq!(found.semantic[0].id, 4);
    let plan = found.plan.join("\n");
    assert!(
        plan.contains("the vectors of all entries that satisfy the filter are compared"),
        "{plan}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_was_interrupted_is_made_again() {
    let Some((database, store, vectors)) = many().await else {
        return;
    };
    let client = database.connect().await;
    // The state after an index build was killed.
    let broken = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'context.chunks_near_1'::regclass";
    client
        .batch_execute(broken)
        .await
        .expect("the tests' role may");
    let found = search(&store, "default", &vectors[3], Filter::default(), true).await;
    assert!(
        !found.plan.join("\n").contains("chunks_near_1"),
        "{:?}",
        found.plan
    );
    store.maintain().await.expect("the index is made");
    let found = search(&store, "default", &vectors[3], Filter::default(), true).await;
    assert!(
        found.plan.join("\n").contains("chunks_near_1"),
        "{:?}",
        found.plan
    );
    assert_eq!(found.semantic[0].id, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_claims_are_deleted_although_an_index_cannot_be_built() {
    let Some((database, store, _)) = many().await else {
        return;
    };
    let client = database.connect().await;
    // The vectors do not have as many dimensions as the index would require.
    let broken = "DROP INDEX context.chunks_near_1; UPDATE context.embedding_sets SET dimensions = dimensions + 1; \
                  INSERT INTO context.embedding_claims VALUES ('default', 1, 1, 1, 'gone', 0)";
    client.batch_execute(broken).await.expect("changed");
    store.maintain().await.expect_err("the index is not made");
    let left = "SELECT count(*) FROM context.embedding_claims";
    let left = client.query_one(left, &[]).await.expect("counted");
    assert_eq!(left.get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_wait_long_for_the_drop_of_an_index() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    store
        .use_model(&model())
        .await
        .expect("the model is selected");
    let given = vec![Embedding::Now(embedding(1))];
    store
        .store_contexts(
            &OwnerId::default(),
            vec![entry("one")],
            true,
            options(given),
        )
        .await
        .expect("stored");
    let (mut client, watching) = (database.connect().await, database.connect().await);
    let discarded = "INSERT INTO context.embedding_sets VALUES (0, 'old', 3, 'discarded', 0); \
                     CREATE INDEX chunks_near_0 ON context.chunks (position)";
    client.batch_execute(discarded).await.expect("a set");
    let backup = client.transaction().await.expect("a transaction");
    backup
        .batch_execute("LOCK TABLE context.chunks IN ACCESS SHARE MODE")
        .await
        .expect("locked");
    let request = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'context.chunks'::regclass AND NOT granted \
                       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        until("the drop of the index waits", async || {
            let waiting = watching.query_one(waiting, &[]).await.expect("counted");
            waiting.get::<_, i64>(0) > 0
        })
        .await;
        let query = embedding(1).chunks[0].vector.clone();
        let found = search(&store, "default", &query, Filter::default(), false);
        tokio::time::timeout(Duration::from_secs(10), found).await
    };
    // The statement timeout is 30 seconds.
    let maintenance = tokio::time::timeout(Duration::from_secs(15), store.maintain());
    let (maintained, found) = tokio::join!(maintenance, request);
    let found = found.expect("the search does not wait long");
    assert_eq!(found.semantic.len(), 1);
    let maintained = maintained.expect("it gives up");
    assert!(
        matches!(maintained, Err(StoreError::WriteTooSlow)),
        "{maintained:?}"
    );
    backup.rollback().await.expect("unlocked");
    store.maintain().await.expect("the set is deleted");
    let left = "SELECT count(*) FROM context.embedding_sets WHERE set_id = 0 OR to_regclass('context.chunks_near_0') IS NOT NULL";
    let left = client.query_one(left, &[]).await.expect("counted");
    assert_eq!(left.get::<_, i64>(0), 0);
}

fn embedding(axis: usize) -> Embedded {
    let mut vector = vec![0.0; DIMENSIONS];
    vector[axis] = 1.0;
    Embedded {
        model: model(),
        chunks: vec![EmbeddedChunk {
            start: 0,
            end: 1,
            vector,
            tokens: Some(vec![1]),
        }],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_services_embed_no_entry_twice_and_one_that_dies_leaves_none_behind() {
    let Some(database) = database().await else {
        return;
    };
    let services = [store(&database).await, store(&database).await];
    let mut expected = Vec::new();
    for service in &services {
        service
            .use_model(&model())
            .await
            .expect("the model is selected");
    }
    for owner in ["one", "two words"] {
        let entries = (0..30).map(|n| entry(&format!("text {n}"))).collect();
        services[0]
            .store_contexts(&OwnerId::new(owner), entries, true, options(Vec::new()))
            .await
            .expect("stored");
        expected.extend((1..=30).map(|id| (owner.to_owned(), id)));
    }
    let all = async |service: &PostgresStore| {
        let (mut got, mut after) = (Vec::new(), None);
        loop {
            let page = service
                .unembedded(&model(), after.as_ref(), 7)
                .await
                .expect("a page");
            got.extend(page.entries);
            after = page.next;
            if after.is_none() {
                return got;
            }
        }
    };
    // Each service claims a page first. Otherwise one could claim everything before the other begins.
    for service in &services {
        let page = service.unembedded(&model(), None, 7).await;
        assert_eq!(page.expect("a page").entries.len(), 7);
    }
    let (first, second) = tokio::join!(all(&services[0]), all(&services[1]));
    assert!(first.len() >= 7 && second.len() >= 7, "both have a share");
    let of = |entries: &[context_store::Unembedded]| -> Vec<(String, i64)> {
        entries
            .iter()
            .map(|entry| (entry.owner.as_str().to_owned(), entry.id))
            .collect()
    };
    let mut both = [of(&first), of(&second)].concat();
    both.sort();
    assert_eq!(both, expected, "each is one service's");
    assert_eq!(
        of(&all(&services[0]).await),
        of(&first),
        "a service that repeats the request gets its own claims"
    );

    // The first service embeds its share. The second has died, and its claims expire.
    for entry in &first {
        let late = LateEmbedding {
            id: entry.id,
            version: entry.version,
            embedded: embedding(entry.id as usize),
        };
        assert_eq!(
            services[0]
                .add_embeddings(&entry.owner, vec![late])
                .await
                .expect("added"),
            1
        );
    }
    assert!(all(&services[0]).await.is_empty());
    let client = database.connect().await;
    client
        .batch_execute("UPDATE context.embedding_claims SET until = 0")
        .await
        .expect("time passes");
    assert_eq!(of(&all(&services[0]).await), of(&second));
}

fn newer() -> EmbeddingModel {
    EmbeddingModel {
        identity: "test@2".to_owned(),
        ..model()
    }
}

/// Adds vectors of the newer model to at most this many entries of the default owner.
async fn gather(store: &PostgresStore, at_most: u32) {
    let page = store.unembedded(&newer(), None, at_most).await;
    for entry in page.expect("a page").entries {
        let late = LateEmbedding {
            id: entry.id,
            version: entry.version,
            embedded: Embedded {
                model: newer(),
                ..embedding(entry.id as usize)
            },
        };
        let added = store.add_embeddings(&entry.owner, vec![late]).await;
        assert_eq!(added.expect("added"), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_starts_during_a_change_to_its_model_uses_the_vectors_made_so_far() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    // The current set is empty, so the change deletes it.
    store
        .use_model(&model())
        .await
        .expect("the model is selected");
    let entries = vec![entry("one"), entry("two")];
    store
        .store_contexts(&OwnerId::default(), entries, true, options(Vec::new()))
        .await
        .expect("stored");
    assert_eq!(
        store.begin_move(&newer()).await.expect("begins"),
        MoveState::Begun {
            embedded: 0,
            entries: 2
        }
    );
    gather(&store, 1).await;
    assert_eq!(
        store
            .use_model(&newer())
            .await
            .expect("the model is selected"),
        ModelUse::Ready
    );
    let (owner, model) = (OwnerId::default(), newer());
    let embedded = store.embedded_entries(&owner, &model, None);
    assert_eq!(embedded.await.expect("counted"), 1);
    assert_eq!(
        store.finish_move(&newer(), 0).await.expect("finished"),
        Moved::Done
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retired_set_is_not_searched_any_more_when_its_deletion_begins() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    store
        .use_model(&model())
        .await
        .expect("the model is selected");
    let entries = vec![entry("one"), entry("two")];
    let given = vec![Embedding::Now(embedding(1)), Embedding::Now(embedding(2))];
    store
        .store_contexts(&OwnerId::default(), entries, true, options(given))
        .await
        .expect("stored");
    store.begin_move(&newer()).await.expect("begins");
    gather(&store, 2).await;
    assert_eq!(
        store.finish_move(&newer(), 0).await.expect("finished"),
        Moved::Done
    );
    store.maintain().await.expect("maintained");
    let query = embedding(1).chunks[0].vector.clone();
    let found = search(&store, "default", &query, Filter::default(), false).await;
    assert_eq!(found.semantic.len(), 2, "the set is retired");

    // An hour passes, and a lock on one chunk delays the deletion.
    let mut client = database.connect().await;
    let retired =
        "UPDATE context.embedding_sets SET since = 0 WHERE state = 'retired' RETURNING set_id";
    let retired = client.query_one(retired, &[]).await.expect("updated");
    let retired: i64 = retired.get(0);
    let lock = client.transaction().await.expect("a transaction");
    let chunk = "SELECT 1 FROM context.chunks WHERE set_id = $1 AND id = 1 FOR UPDATE";
    let locked = lock.query(chunk, &[&retired]).await.expect("locked");
    assert_eq!(locked.len(), 1);
    let store = std::sync::Arc::new(store);
    let maintaining = tokio::spawn({
        let store = std::sync::Arc::clone(&store);
        async move { store.maintain().await }
    });
    until("the set is not found any more", async || {
        let semantic = Some(SemanticSearch {
            model: model(),
            vector: query.clone(),
        });
        let search = RankSearch {
            kind: context_store::DocumentKind::Context,
            fts: None,
            semantic,
            depth: DEPTH,
            exact: DEPTH,
            boundaries: &[],
            explain: false,
        };
        let found = store
            .rank(
                &OwnerId::default(),
                search,
                Filter::default(),
                Read::default(),
            )
            .await;
        match found {
            Ok(found) => {
                assert_eq!(found.semantic.len(), 2, "no search finds a part of it");
                false
            }
            Err(StoreError::Rejected(_)) => true,
            Err(error) => panic!("{error}"),
        }
    })
    .await;
    lock.rollback().await.expect("unlocked");
    maintaining
        .await
        .expect("no panic")
        .expect("the rest is deleted");
    let left = "SELECT count(*) FROM context.chunks WHERE set_id = $1";
    let left = client.query_one(left, &[&retired]).await.expect("counted");
    assert_eq!(left.get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_pgvector_everything_else_works_until_it_comes() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let client = database.connect().await;
    let name = database
        .url()
        .rsplit('/')
        .next()
        .expect("a name")
        .to_owned();
    let role = format!("{name}_role");
    client
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN; CREATE SCHEMA context AUTHORIZATION {role}; REVOKE CREATE ON DATABASE {name} FROM PUBLIC"
        ))
        .await
        .expect("a role that may not create extensions");
    let url = database.url().replacen("postgres@", &format!("{role}@"), 1);
    let tested = AssertUnwindSafe(works_until_pgvector_comes(&client, &url));
    let tested = tested.catch_unwind().await;
    // Roles belong to the server, so the database does not take this one with it.
    client
        .batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .await
        .expect("the role is dropped");
    if let Err(panic) = tested {
        std::panic::resume_unwind(panic);
    }
}

/// The role of this URL may not create extensions, and the client may.
async fn works_until_pgvector_comes(client: &Client, url: &str) {
    let store = PostgresStore::open(config(url)).await.expect("it opens");
    let ModelUse::Impossible(reason) = store.use_model(&model()).await.expect("answers") else {
        panic!("there is no pgvector")
    };
    assert!(reason.contains("CREATE EXTENSION vector"), "{reason}");
    let given = vec![Embedding::Now(embedding(0))];
    store
        .store_contexts(
            &OwnerId::default(),
            vec![entry("early")],
            true,
            options(given),
        )
        .await
        .expect("stored");
    client
        .batch_execute("CREATE EXTENSION vector")
        .await
        .expect("created");
    assert_eq!(
        store.use_model(&model()).await.expect("answers"),
        ModelUse::Ready
    );
    let waiting = store
        .unembedded(&model(), None, 10)
        .await
        .expect("a page")
        .entries;
    assert_eq!(
        waiting
            .iter()
            .map(|entry| entry.text.as_str())
            .collect::<Vec<_>>(),
        ["early"]
    );
    store
        .store_contexts(
            &OwnerId::default(),
            vec![entry("late")],
            true,
            options(vec![Embedding::Now(embedding(1))]),
        )
        .await
        .expect("stored");
    assert_eq!(
        store
            .embedded_entries(&OwnerId::default(), &model(), None)
            .await
            .expect("counted"),
        1
    );
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_of_tokens_go_with_chunks_that_a_service_of_the_version_before_deletes() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    assert_eq!(
        store
            .use_model(&model())
            .await
            .expect("the model is selected"),
        ModelUse::Ready
    );
    let mut random = Random::new(5);
    let embedding = |vector: &Vec<f32>| {
        let chunk = EmbeddedChunk {
            start: 0,
            end: 1,
            vector: vector.clone(),
            tokens: Some(vec![1; 5_000]),
        };
        Embedding::Now(Embedded {
            model: model(),
            chunks: vec![chunk],
        })
    };
    // More chunks with token vectors than one statement inserts, and one entry without an embedding.
    let mut embeddings: Vec<Embedding> =
        clustered(249, &mut random).iter().map(embedding).collect();
    embeddings.push(Embedding::Later);
    let entries = (0..250).map(|n| entry(&format!("text {n}"))).collect();
    store
        .store_contexts(&OwnerId::default(), entries, true, options(embeddings))
        .await
        .expect("stored");
    let client = database.connect().await;
    let stored = async || {
        let count = "SELECT count(*) FROM context.chunk_tokens";
        client
            .query_one(count, &[])
            .await
            .expect("counted")
            .get::<_, i64>(0)
    };
    assert_eq!(stored().await, 249);
    client
        .execute(
            "DELETE FROM context.chunks WHERE owner_id = 'default' AND id <= 100",
            &[],
        )
        .await
        .expect("deleted");
    assert_eq!(stored().await, 149);
    let uncompressed = "SELECT bool_and(pg_column_size(tokens) = 5000) FROM context.chunk_tokens";
    assert!(
        client
            .query_one(uncompressed, &[])
            .await
            .expect("no failure")
            .get::<_, bool>(0),
        "no time is spent on compression"
    );
}
