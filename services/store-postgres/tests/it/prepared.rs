//! Statements stay prepared.

use context_model::{NewEntry, Source, Tags, ThreadId, Timestamp, Violations};
use context_store::{OwnerId, Store as _, WriteOptions};
use context_store_postgres::{Config, PostgresStore};

use super::arrange::{config, database};
use super::proxy::Proxy;

async fn store_entries(store: &PostgresStore, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let tags = vec!["all".to_owned(), format!("tag{number}")];
        let entry = NewEntry {
            thread_id: ThreadId::from_stored(format!("thread {}", number / 10)),
            source: Source::Agent,
            text: format!("entry {number}"),
            images: None,
            metadata: None,
            tags: Some(Tags::parse(tags, "tags", &mut Violations::default())),
        };
        let options = WriteOptions {
            now: Timestamp(number),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        store
            .store_contexts(&OwnerId::default(), vec![entry], true, options)
            .await
            .expect("it is stored");
    }
}

#[tokio::test]
async fn a_thousand_stores_on_a_warm_connection_prepare_no_statement() {
    let Some(database) = database().await else {
        return;
    };
    let proxy = Proxy::start(database.url()).await;
    let config = Config {
        pool_size: 1,
        ..config(&proxy.url(database.url()))
    };
    let store = PostgresStore::open(config).await.expect("it opens");
    store_entries(&store, 0..100).await;
    let before = proxy.parsed();
    assert!(before > 0, "the first stores prepare their statements");
    store_entries(&store, 100..1_100).await;
    assert_eq!(proxy.parsed() - before, 0);
}
