//! The store behind a real PgBouncer in transaction mode, where each transaction may run in another server process.

use std::sync::Arc;

use context_model::{EntryUpdate, Filter, NewEntry, Reason, Source, ThreadId, Timestamp};
use context_store::{
    FtsSearch, Idempotency, Memory, OwnerId, Page, Read, RowSelection, Store, StoreError,
    VectorStore, WriteOptions,
};
use context_store_postgres::{Config, PostgresStore, Target};
use context_test_postgres::{PgBouncer, TestDatabase, connect, pgbouncers};
use context_text::{Analyzer, Language, Mode, parse};
use tokio::task::JoinSet;
use tokio_postgres::SimpleQueryMessage;

use super::arrange::{config, database};
use super::vectors;

/// More clients than the pooler has connections to the server.
const CLIENTS: i64 = 12;
const ROUNDS: i64 = 6;
/// The pooler's connections to the server.
const SERVER_CONNECTIONS: usize = 3;
const SELECTION: RowSelection = RowSelection {
    images: false,
    text_chars: None,
    explain: false,
    max_bytes: u64::MAX,
    memory: Memory::UNCOUNTED,
};

fn options(key: Option<String>) -> WriteOptions {
    WriteOptions {
        now: Timestamp(1),
        idempotency: key.map(|key| Idempotency {
            key,
            request_hash: [1; 32],
            rejected: Vec::new(),
        }),
        key_id: None,
        embeddings: Vec::new(),
    }
}

/// The work of one of many clients: it stores, reads, updates and searches entries, and has an update rejected.
async fn work(store: Arc<PostgresStore>, client: i64) {
    let owner = OwnerId::default();
    let page = Page {
        limit: 5,
        offset: 0,
    };
    for round in 0..ROUNDS {
        let entry = NewEntry {
            thread_id: ThreadId::from_stored(format!("t{}", client % 3)),
            source: Source::Agent,
            text: format!("client{client} round{round} common"),
            images: None,
            metadata: None,
            tags: None,
        };
        let key = (round % 2 == 0).then(|| format!("{client}-{round}"));
        let written = store
            .store_contexts(&owner, vec![entry], true, options(key))
            .await
            .expect("stored");
        let id = written.outcome.items[0].as_ref().expect("stored").id;
        let read = Read {
            min_revision: Some(written.revision),
            ..Read::default()
        };
        let found = store
            .get_contexts(&owner, vec![id], SELECTION, read)
            .await
            .expect("read");
        assert_eq!(
            found.entries[0].text,
            format!("client{client} round{round} common")
        );
        let text = Some(format!("client{client} round{round} changed common"));
        let update = EntryUpdate {
            id,
            text,
            metadata: None,
            tags: None,
            images: None,
            expected_version: Some(1),
        };
        store
            .update_contexts(&owner, vec![update], true, options(None))
            .await
            .expect("updated");
        let query = parse(Mode::Match, "changed", &Analyzer::new(Language::English))
            .expect("a query")
            .expect("a word");
        let search = FtsSearch {
            query,
            ranking_cap: 100,
            context_weight: 0.0,
        };
        let hits = store
            .fts_search(
                &owner,
                search,
                Filter::default(),
                page,
                SELECTION,
                Read::default(),
            )
            .await
            .expect("found");
        assert!(!hits.entries.is_empty());
        store
            .search_contexts(&owner, Filter::default(), page, SELECTION, Read::default())
            .await
            .expect("listed");
        // Rejected in the middle of a transaction, which is then rolled back.
        let stale = EntryUpdate {
            id,
            text: None,
            metadata: None,
            tags: None,
            images: None,
            expected_version: Some(7),
        };
        let refused = store
            .update_contexts(&owner, vec![stale], true, options(None))
            .await;
        let reason = match &refused {
            Err(StoreError::Item { error, .. } | StoreError::Rejected(error)) => Some(error.reason),
            _ => None,
        };
        assert_eq!(reason, Some(Reason::VersionMismatch), "{refused:?}");
    }
}

async fn open(
    pooler: &PgBouncer,
    database: &TestDatabase,
    statement_cache: bool,
) -> Arc<PostgresStore> {
    let target = Target::parse(&pooler.url(database.url())).expect("a URL");
    let target = if statement_cache {
        target
    } else {
        target.without_prepared_statements()
    };
    let config = Config {
        target,
        pool_size: 8,
        ..config(database.url())
    };
    Arc::new(
        PostgresStore::open(config)
            .await
            .expect("it opens through PgBouncer"),
    )
}

/// The store's parameters that are set on the pooler's connections to the server, where other clients would get them.
async fn left_parameters(pooler: &PgBouncer, database: &TestDatabase) -> Vec<String> {
    let left = "BEGIN; SELECT name FROM pg_settings WHERE source = 'session' AND name IN ('statement_timeout', 'jit', \
                'maintenance_work_mem', 'max_parallel_maintenance_workers')";
    let (mut clients, mut found) = (Vec::new(), Vec::new());
    for _ in 0..SERVER_CONNECTIONS {
        let client = connect(&pooler.url(database.url())).await;
        let messages = client.simple_query(left).await.expect("the parameters");
        found.extend(messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        }));
        // Its open transaction keeps the connection to the server from the next client.
        clients.push(client);
    }
    found
}

async fn works_through(pooler: &PgBouncer, statement_cache: bool) {
    let Some(database) = database().await else {
        return;
    };
    let store = open(pooler, &database, statement_cache).await;
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(work(Arc::clone(&store), client));
    }
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client does not panic");
    }
    let statistics = store
        .statistics(&OwnerId::default(), None, Read::default())
        .await
        .expect("counted");
    assert_eq!(statistics.total_entries, CLIENTS * ROUNDS);
    assert_eq!(
        statistics.revision,
        CLIENTS * ROUNDS * 2,
        "each change once, whichever transactions were rolled back in between"
    );
    store.close().await;
    let left = left_parameters(pooler, &database).await;
    assert!(left.is_empty(), "{left:?}");
    eprintln!(
        "PgBouncer {}: works with the statement cache {}",
        pooler.version(),
        if statement_cache { "on" } else { "off" }
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_works_through_pgbouncer_in_transaction_mode() {
    let Some(database) = database().await else {
        return;
    };
    for program in pgbouncers() {
        let pooler = PgBouncer::start(&program, database.url()).await;
        works_through(&pooler, false).await;
        if pooler.carries_prepared_statements() {
            works_through(&pooler, true).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn building_an_index_through_pgbouncer_leaves_no_parameters_to_other_clients() {
    for program in pgbouncers() {
        let Some(database) = database().await else {
            return;
        };
        let pooler = PgBouncer::start(&program, database.url()).await;
        let store = open(&pooler, &database, pooler.carries_prepared_statements()).await;
        let client = database.connect().await;
        vectors::fill_both(&store, &client).await;
        store.maintain().await.expect("the index is made");
        let valid =
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'context.chunks_near_1'::regclass";
        let valid = client.query_one(valid, &[]).await.expect("the index");
        assert!(valid.get::<_, bool>(0));
        let left = left_parameters(&pooler, &database).await;
        assert!(left.is_empty(), "{left:?}");
    }
}
