//! Writes that wait, conflict, or lose their connection at the commit, their caller, or their lease of ids.

use std::time::Duration;

use context_store::{OwnerId, Store, StoreError};
use context_store_postgres::{Config, PostgresSource, PostgresStore};
use context_test_support::until;

use super::{all, entry, options, put, through_proxy};
use crate::arrange::{config, database, store};
use crate::locks::until_blocked;
use crate::proxy::Mode;

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_is_reported_as_such_and_never_repeated() {
    let Some(database) = database().await else {
        return;
    };
    let (proxy, store) = through_proxy(&database, |_| {}).await;
    proxy.set(Mode::CutAfterCommit);
    let error = put(&store, "committed", None)
        .await
        .expect_err("the outcome is unknown");
    assert!(matches!(error, StoreError::OutcomeUnknown(_)), "{error:?}");
    let sentence = error.into_error("entries").message;
    assert!(sentence.contains("may have happened or not"), "{sentence}");
    proxy.set(Mode::CutBeforeCommit);
    let error = put(&store, "not committed", None)
        .await
        .expect_err("the outcome is unknown");
    assert!(matches!(error, StoreError::OutcomeUnknown(_)), "{error:?}");
    assert_eq!(all(&store).await.expect("read"), ["committed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_settles_a_commit_without_an_answer() {
    let Some(database) = database().await else {
        return;
    };
    let (proxy, store) = through_proxy(&database, |_| {}).await;
    for (mode, text) in [(Mode::CutAfterCommit, "a"), (Mode::CutBeforeCommit, "b")] {
        proxy.set(mode);
        let written = put(&store, text, Some(text))
            .await
            .expect("the retry finds the outcome by the key");
        assert_eq!(proxy.mode(), Mode::Honest, "the commit got no response");
        let again = put(&store, text, Some(text)).await.expect("repeated");
        assert_eq!(written, again);
    }
    let mut texts = all(&store).await.expect("read");
    texts.sort();
    assert_eq!(texts, ["a", "b"], "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_tried_again_in_whatever_language_the_server_reports_it() {
    let Some(database) = database().await else {
        return;
    };
    let (proxy, store) = through_proxy(&database, |_| {}).await;
    let both = || vec![entry("a", "of a"), entry("b", "of b")];
    store
        .store_contexts(&OwnerId::default(), both(), true, options(None))
        .await
        .expect("stored");
    proxy.set(Mode::German);
    let mut client = database.connect().await;
    // PostgreSQL aborts the session that detects the deadlock. The store's session checks for one after a second, and
    // this one only after a minute, so the store's session is aborted.
    client
        .batch_execute("SET deadlock_timeout = '1min'")
        .await
        .expect("a superuser may set it");
    let holding = client.transaction().await.expect("a transaction");
    let lock = "SELECT 1 FROM context.threads WHERE thread_id = $1 FOR UPDATE";
    holding
        .execute(lock, &[&"b"])
        .await
        .expect("one thread is locked");
    let more = vec![entry("a", "more of a"), entry("b", "more of b")];
    let (owner, blocked) = (OwnerId::default(), database.connect().await);
    let writing = store.store_contexts(&owner, more, true, options(None));
    let crossing = async {
        until_blocked(&blocked, 1).await;
        holding
            .execute(lock, &[&"a"])
            .await
            .expect("the store is aborted");
        holding.rollback().await.expect("rolled back");
    };
    let (written, ()) = futures::join!(writing, crossing);
    written.expect("it is tried again");
    assert!(proxy.translated() > 0, "the store got the report in German");
    assert_eq!(all(&store).await.expect("read").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_too_long_is_given_up_and_writes_nothing() {
    let Some(database) = database().await else {
        return;
    };
    let store = PostgresStore::open(Config {
        statement_timeout: Duration::from_secs(1),
        ..config(database.url())
    })
    .await;
    let store = store.expect("it opens");
    put(&store, "first", None).await.expect("stored");
    let mut client = database.connect().await;
    let holding = client.transaction().await.expect("a transaction");
    holding
        .execute("SELECT 1 FROM context.threads FOR UPDATE", &[])
        .await
        .expect("the thread is locked");
    let error = put(&store, "second", None)
        .await
        .expect_err("another session holds the thread");
    assert!(matches!(error, StoreError::WriteTooSlow), "{error:?}");
    let sentence = error.into_error("entries").message;
    assert!(sentence.contains("nothing was changed"), "{sentence}");
    assert_eq!(
        all(&store).await.expect("readers do not wait for locks"),
        ["first"]
    );
    holding.rollback().await.expect("rolled back");
    put(&store, "third", None).await.expect("stored");
    assert_eq!(all(&store).await.expect("read").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_caller_went_away_runs_to_its_end() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    put(&store, "first", None).await.expect("stored");
    let mut client = database.connect().await;
    let holding = client.transaction().await.expect("a transaction");
    holding
        .execute("SELECT 1 FROM context.threads FOR UPDATE", &[])
        .await
        .expect("the thread is locked");
    // The caller leaves while the write waits for the thread.
    let blocked = database.connect().await;
    tokio::select! {
        _ = put(&store, "second", None) => panic!("it cannot be done yet"),
        () = until_blocked(&blocked, 1) => {}
    }
    holding.rollback().await.expect("rolled back");
    let done = until("the write is done", async || {
        all(&store).await.expect("read").len() == 2
    });
    tokio::time::timeout(Duration::from_secs(20), done)
        .await
        .expect("the write was completed");
}

/// After a failover to an asynchronous standby, the new primary may lack the last leases.
#[tokio::test]
async fn a_lost_lease_of_ids_stops_no_service() {
    let Some(database) = database().await else {
        return;
    };
    let (one, other) = (store(&database).await, store(&database).await);
    put(&one, "first", None).await.expect("stored");
    let lose = "UPDATE context.owner_ids SET next_id = 1";
    let client = database.connect().await;
    client.batch_execute(lose).await.expect("a lost lease");
    for number in 0..200 {
        put(&other, &format!("other {number}"), None)
            .await
            .expect("the ids of the first service are passed");
        put(&one, &format!("one {number}"), None)
            .await
            .expect("the ids of the other service are passed");
    }
    let client = database.connect().await;
    let count = "SELECT count(*), count(DISTINCT id) FROM context.entries";
    let row = client.query_one(count, &[]).await.expect("a count");
    assert_eq!((row.get(0), row.get(1)), (401_i64, 401_i64));
}

/// SQLite assigns the ids from the next one on, and does not check whether an entry has one.
#[tokio::test]
async fn a_migration_after_a_lost_lease_begins_with_an_unused_id() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    for text in ["first", "second"] {
        put(&store, text, None).await.expect("stored");
    }
    store.close().await;
    let lose = "UPDATE context.owner_ids SET next_id = 1";
    let client = database.connect().await;
    client.batch_execute(lose).await.expect("a lost lease");
    let config = config(database.url());
    let source = PostgresSource::open(&config.target, config.connect_timeout, OwnerId::default());
    let mut source = source.await.expect("it opens");
    let heads = source.owners(None).await.expect("the owners are read");
    assert_eq!(
        heads.iter().map(|head| head.next_id).collect::<Vec<_>>(),
        [3]
    );
}
