//! A store on a standby: it reads, it waits for what it has not seen yet, and it refuses to write.

use std::time::Duration;

use context_model::{NewEntry, Source, ThreadId, Timestamp};
use context_store::{OwnerId, Read, RowSelection, Store, StoreError, StoredBatch, WriteOptions, Written};
use context_store_postgres::PostgresStore;
use context_test_postgres::{Server, programs};

use super::arrange::config;

const PLAIN: RowSelection = RowSelection { images: false, text_chars: None, explain: false, max_bytes: u64::MAX };

async fn put(store: &PostgresStore, text: String) -> Result<Written<StoredBatch>, StoreError> {
    let entry =
        NewEntry { thread_id: ThreadId::from_stored("t".to_owned()), source: Source::User, text, images: None, metadata: None, tags: None };
    let options = WriteOptions { now: Timestamp(1), idempotency: None, key_id: None, embeddings: Vec::new() };
    store.store_contexts(&OwnerId::default(), vec![entry], true, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_serves_reads_as_of_the_revision_asked_for() {
    let Some(programs) = programs() else { return };
    let primary = Server::start(&programs).await;
    let writer = PostgresStore::open(config(&primary.url())).await.expect("the primary opens");
    put(&writer, "first".to_owned()).await.expect("stored");
    let standby = primary.synchronous_standby().await;
    let reader = PostgresStore::open(config(&standby.url())).await.expect("a standby with the schema opens");
    let owner = OwnerId::default();
    let get = async |written: &Written<StoredBatch>, wait: Duration| {
        let id = written.outcome.items[0].as_ref().expect("stored").id;
        let read = Read { min_revision: Some(written.revision), wait };
        reader.get_contexts(&owner, vec![id], PLAIN, read).await
    };

    for round in 0..30 {
        let written = put(&writer, format!("round {round}")).await.expect("stored");
        let found = get(&written, Duration::from_secs(20)).await.expect("the standby gets there");
        assert_eq!(found.entries[0].text, format!("round {round}"));
    }

    let control = standby.connect().await;
    control.batch_execute("SELECT pg_wal_replay_pause()").await.expect("the standby stands still");
    let unseen = put(&writer, "unseen".to_owned()).await.expect("stored");
    let refused = get(&unseen, Duration::from_millis(100)).await.expect_err("it is not there yet");
    assert!(matches!(refused, StoreError::Rejected(_)), "{refused:?}");
    control.batch_execute("SELECT pg_wal_replay_resume()").await.expect("the standby goes on");
    let found = get(&unseen, Duration::from_secs(20)).await.expect("now it is");
    assert_eq!(found.entries[0].text, "unseen");

    let refused = put(&reader, "never".to_owned()).await.expect_err("a standby takes no writes");
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused:?}");
}
