//! Requests that share a transaction succeed or fail independently.
//!
//! A second connection holds the write lock while requests are queued, so that the next transaction takes all of them.

use std::sync::Arc;
use std::time::Duration;

use context_model::Reason;
use context_store::{OwnerId, Store, StoreError, StoredBatch, Written};
use context_store_sqlite::{Config, SqliteStore};
use context_test_support::until;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use tokio::task::JoinHandle;

use crate::arrange::{entry, options, read, store_batch, texts, update};

type Answer = JoinHandle<Result<Written<StoredBatch>, StoreError>>;

struct Held {
    store: Arc<SqliteStore>,
    lock: SqliteConnection,
    first: Answer,
    directory: tempfile::TempDir,
}

/// A store with one entry. Its writer has taken one request and waits for the lock.
async fn held(configure: impl FnOnce(&mut Config)) -> Held {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("contexts.db");
    let mut config = Config::new(&path);
    configure(&mut config);
    let store = Arc::new(SqliteStore::open(config).unwrap());
    store_batch(&*store, [entry("zero")]).await;
    let mut lock = SqliteConnection::establish(path.to_str().unwrap()).unwrap();
    lock.batch_execute("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE")
        .unwrap();
    let first = storing(&store, "first");
    queued(&store, 0, &first).await;
    Held {
        store,
        lock,
        first,
        directory,
    }
}

fn storing(store: &Arc<SqliteStore>, text: &str) -> Answer {
    let (store, new) = (Arc::clone(store), entry(text));
    tokio::spawn(async move {
        store
            .store_contexts(&OwnerId::default(), vec![new], true, options())
            .await
    })
}

fn updating(store: &Arc<SqliteStore>, id: i64, text: &str) -> Answer {
    updating_of(store, OwnerId::default(), id, text)
}

fn updating_of(store: &Arc<SqliteStore>, owner: OwnerId, id: i64, text: &str) -> Answer {
    let (store, change) = (Arc::clone(store), update(id, text));
    tokio::spawn(async move {
        store
            .update_contexts(&owner, vec![change], true, options())
            .await
    })
}

async fn counters(store: &SqliteStore) -> (i64, i64, i64) {
    let connections = store
        .statistics(&OwnerId::default(), None, read())
        .await
        .unwrap()
        .connections;
    (
        connections.queued_writes,
        connections.commits,
        connections.writes,
    )
}

/// Waits until the request was submitted and `wanted` requests are queued.
async fn queued(store: &SqliteStore, wanted: i64, answer: &Answer) {
    // One poll of the single-threaded runtime submits the request. The writer takes the first one by itself.
    tokio::task::yield_now().await;
    until("the requests are queued", async || {
        answer.is_finished() || counters(store).await.0 == wanted
    })
    .await;
}

#[tokio::test]
async fn many_requests_share_one_transaction_and_a_refused_one_fails_alone() {
    let Held {
        store,
        mut lock,
        first,
        directory: _directory,
    } = held(|_| ()).await;
    let (_, commits, writes) = counters(&store).await;
    let mut answers = Vec::new();
    for i in 0..20 {
        answers.push(if i % 5 == 4 {
            updating(&store, 999, "unknown")
        } else {
            storing(&store, &i.to_string())
        });
    }
    queued(&store, 20, &answers[19]).await;
    lock.batch_execute("ROLLBACK").unwrap();
    first.await.unwrap().unwrap();
    for (i, answer) in answers.into_iter().enumerate() {
        match answer.await.unwrap() {
            Ok(_) => assert_ne!(i % 5, 4),
            Err(StoreError::Item { index: 0, error }) => {
                assert_eq!((i % 5, error.reason), (4, Reason::ContextNotFound))
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(texts(&*store).await.len(), 18);
    let (_, commits_after, writes_after) = counters(&store).await;
    assert_eq!(
        (commits_after - commits, writes_after - writes),
        (2, 17),
        "the first alone, then the rest together; a refused one is no write"
    );
    store.close().await;
}

#[tokio::test]
async fn a_refused_write_of_an_owner_that_has_written_nothing_fails_alone() {
    let Held {
        store,
        mut lock,
        first,
        directory: _directory,
    } = held(|_| ()).await;
    let (_, commits, writes) = counters(&store).await;
    let a = storing(&store, "a");
    queued(&store, 1, &a).await;
    let refused = updating_of(&store, OwnerId::new("new"), 1, "unknown");
    queued(&store, 2, &refused).await;
    let b = storing(&store, "b");
    queued(&store, 3, &b).await;
    lock.batch_execute("ROLLBACK").unwrap();
    first.await.unwrap().unwrap();
    a.await.unwrap().unwrap();
    let refused = refused.await.unwrap();
    assert!(
        matches!(&refused, Err(StoreError::Item { index: 0, error }) if error.reason == Reason::ContextNotFound),
        "{refused:?}"
    );
    b.await.unwrap().unwrap();
    assert_eq!(texts(&*store).await, ["b", "a", "first", "zero"]);
    let (_, commits_after, writes_after) = counters(&store).await;
    assert_eq!(
        (commits_after - commits, writes_after - writes),
        (2, 3),
        "the first alone, then the rest together; a refused one is no write"
    );
    store.close().await;
}

#[tokio::test]
async fn a_request_that_breaks_the_transaction_fails_alone() {
    let Held {
        store,
        mut lock,
        first,
        directory: _directory,
    } = held(|config| config.max_file_bytes = Some(2 << 20)).await;
    let huge = "x".repeat(4 << 20);
    let answers = [
        storing(&store, "a"),
        storing(&store, &huge),
        storing(&store, "b"),
        updating(&store, 1, "zero updated"),
    ];
    queued(&store, 4, &answers[3]).await;
    lock.batch_execute("ROLLBACK").unwrap();
    first.await.unwrap().unwrap();
    let [a, too_big, b, updated] = answers;
    a.await.unwrap().unwrap();
    let refused = too_big.await.unwrap();
    assert!(matches!(refused, Err(StoreError::Full(_))), "{refused:?}");
    b.await.unwrap().unwrap();
    updated.await.unwrap().unwrap();
    assert_eq!(texts(&*store).await, ["b", "a", "first", "zero updated"]);
    assert_eq!(
        crate::arrange::found(&*store, "english", "zero").await,
        ["zero updated"]
    );
    let statistics = store
        .statistics(&OwnerId::default(), None, read())
        .await
        .unwrap();
    assert_eq!((statistics.total_entries, statistics.revision), (4, 5));
    store.close().await;
}

#[tokio::test]
async fn a_request_whose_waiter_has_gone_is_skipped() {
    let Held {
        store,
        mut lock,
        first,
        directory: _directory,
    } = held(|_| ()).await;
    let gone = storing(&store, "gone");
    queued(&store, 1, &gone).await;
    let stays = storing(&store, "stays");
    queued(&store, 2, &stays).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    lock.batch_execute("ROLLBACK").unwrap();
    first.await.unwrap().unwrap();
    stays.await.unwrap().unwrap();
    assert_eq!(texts(&*store).await, ["stays", "first", "zero"]);
    store.close().await;
}

#[tokio::test]
async fn a_full_queue_refuses_and_reads_go_on() {
    let Held {
        store,
        mut lock,
        first,
        directory: _directory,
    } = held(|config| config.write_queue = 1).await;
    let waits = storing(&store, "waits");
    queued(&store, 1, &waits).await;
    let refused = store
        .store_contexts(
            &OwnerId::default(),
            vec![entry("too many")],
            true,
            options(),
        )
        .await;
    assert!(
        matches!(refused, Err(StoreError::Overloaded)),
        "{refused:?}"
    );
    assert_eq!(texts(&*store).await, ["zero"]);
    lock.batch_execute("ROLLBACK").unwrap();
    first.await.unwrap().unwrap();
    waits.await.unwrap().unwrap();
    store.close().await;
}

#[tokio::test]
async fn a_lock_held_too_long_is_unavailable_and_writes_resume_after_it() {
    let Held {
        store,
        mut lock,
        first,
        directory: _directory,
    } = held(|config| config.busy_timeout = Duration::from_millis(50)).await;
    let refused = first.await.unwrap();
    assert!(
        matches!(refused, Err(StoreError::Unavailable(_))),
        "{refused:?}"
    );
    lock.batch_execute("ROLLBACK").unwrap();
    store_batch(&*store, [entry("after")]).await;
    assert_eq!(texts(&*store).await, ["after", "zero"]);
    store.close().await;
}

#[tokio::test]
async fn what_is_queued_at_the_close_is_written_first() {
    let Held {
        store,
        mut lock,
        first,
        directory,
    } = held(|_| ()).await;
    let waits = storing(&store, "waits");
    queued(&store, 1, &waits).await;
    let closing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.close().await }
    });
    until("it is closed", async || {
        matches!(store.check().await, Err(StoreError::Closed))
    })
    .await;
    lock.batch_execute("ROLLBACK").unwrap();
    closing.await.unwrap();
    first.await.unwrap().unwrap();
    waits.await.unwrap().unwrap();
    drop(lock);
    let store = SqliteStore::open(Config::new(directory.path().join("contexts.db"))).unwrap();
    assert_eq!(texts(&store).await, ["waits", "first", "zero"]);
    store.close().await;
}
