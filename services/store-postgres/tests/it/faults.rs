//! Operations while connections, the server or the pool fail.

mod connections;
mod writes;

use context_model::{Filter, NewEntry, Source, ThreadId, Timestamp};
use context_store::{
    Idempotency, Memory, OwnerId, Page, Read, RowSelection, Store, StoreError, StoredBatch,
    WriteOptions, Written,
};
use context_store_postgres::{Config, PostgresStore};
use context_test_postgres::TestDatabase;

use super::arrange::config;
use super::proxy::Proxy;

const PLAIN: RowSelection = RowSelection {
    images: false,
    text_chars: None,
    explain: false,
    max_bytes: u64::MAX,
    memory: Memory::UNCOUNTED,
};

fn options(key: Option<&str>) -> WriteOptions {
    WriteOptions {
        now: Timestamp(1),
        idempotency: key.map(|key| Idempotency {
            key: key.to_owned(),
            request_hash: [1; 32],
            rejected: Vec::new(),
        }),
        key_id: None,
        embeddings: Vec::new(),
    }
}

fn entry(thread: &str, text: &str) -> NewEntry {
    NewEntry {
        thread_id: ThreadId::from_stored(thread.to_owned()),
        source: Source::User,
        text: text.to_owned(),
        images: None,
        metadata: None,
        tags: None,
    }
}

async fn put(
    store: &PostgresStore,
    text: &str,
    key: Option<&str>,
) -> Result<Written<StoredBatch>, StoreError> {
    store
        .store_contexts(
            &OwnerId::default(),
            vec![entry("t", text)],
            true,
            options(key),
        )
        .await
}

async fn all(store: &PostgresStore) -> Result<Vec<String>, StoreError> {
    let page = Page {
        limit: 100,
        offset: 0,
    };
    let found = store
        .search_contexts(
            &OwnerId::default(),
            Filter::default(),
            page,
            PLAIN,
            Read::default(),
        )
        .await?;
    Ok(found.entries.into_iter().map(|entry| entry.text).collect())
}

async fn through_proxy(
    database: &TestDatabase,
    change: impl FnOnce(&mut Config),
) -> (Proxy, PostgresStore) {
    let proxy = Proxy::start(database.url()).await;
    let mut config = config(&proxy.url(database.url()));
    change(&mut config);
    (
        proxy,
        PostgresStore::open(config)
            .await
            .expect("it opens through the proxy"),
    )
}
