//! Connections that break, servers that do not respond, and full pools.

use std::time::Duration;

use context_model::{EntryUpdate, Filter};
use context_store::{OwnerId, Page, Read, RowSelection, Store, StoreError};
use context_store_postgres::{Config, PostgresStore};
use context_test_support::until;

use super::{PLAIN, all, options, put, through_proxy};
use crate::arrange::{config, database, store};
use crate::proxy::{Mode, Proxy, authority};

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_the_server_closed_are_replaced_without_an_error() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    put(&store, "before", None).await.expect("stored");
    let client = database.connect().await;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let kill = async || {
        let killed = client.query(kill, &[]).await;
        let killed = killed.expect("the connections are closed");
        assert!(!killed.is_empty(), "the store had a connection");
    };
    for round in 0..3 {
        kill().await;
        all(&store).await.expect("a read finds another connection");
        kill().await;
        put(&store, &format!("after {round}"), None)
            .await
            .expect("a write finds another connection");
    }
    assert_eq!(all(&store).await.expect("read").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_refuses_after_a_while_and_recovers() {
    let Some(database) = database().await else {
        return;
    };
    let small = Config {
        pool_size: 1,
        pool_timeout: Duration::from_secs(1),
        ..config(database.url())
    };
    let store = PostgresStore::open(small).await.expect("it opens");
    put(&store, "first", None).await.expect("stored");
    let mut client = database.connect().await;
    let holding = client.transaction().await.expect("a transaction");
    holding
        .execute("SELECT 1 FROM context.threads FOR UPDATE", &[])
        .await
        .expect("the thread is locked");
    let waiting = put(&store, "second", None);
    let refused = async {
        // Reads succeed until the first write has the connection.
        loop {
            match all(&store).await {
                Ok(_) => tokio::task::yield_now().await,
                Err(error) => break error,
            }
        }
    };
    let freed = async {
        let refused = refused.await;
        assert!(matches!(refused, StoreError::Overloaded), "{refused:?}");
        holding.rollback().await.expect("rolled back");
    };
    let (second, ()) = futures::join!(waiting, freed);
    second.expect("the first one gets through");
    assert_eq!(all(&store).await.expect("read").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_operations_fail_fast_and_afterwards_work_again() {
    let Some(database) = database().await else {
        return;
    };
    let (proxy, store) = through_proxy(&database, |config| {
        config.breaker_failures = 3;
        config.breaker_recovery = Duration::from_millis(300);
    })
    .await;
    put(&store, "before", None).await.expect("stored");
    proxy.set(Mode::Dead);
    for _ in 0..5 {
        let read = all(&store).await;
        assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    }
    let before = proxy.connections();
    for _ in 0..200 {
        assert!(matches!(
            put(&store, "meanwhile", None).await,
            Err(StoreError::Unavailable(_))
        ));
    }
    assert!(
        proxy.connections() - before < 50,
        "operations are rejected without contacting the server"
    );
    proxy.set(Mode::Honest);
    let back = until("it comes back", async || {
        put(&store, "after", None).await.is_ok()
    });
    tokio::time::timeout(Duration::from_secs(10), back)
        .await
        .expect("it comes back soon after its pause");
    assert_eq!(all(&store).await.expect("read"), ["after", "before"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_of_callers_never_open_the_circuit() {
    let Some(database) = database().await else {
        return;
    };
    let store = PostgresStore::open(Config {
        breaker_failures: 1,
        ..config(database.url())
    })
    .await
    .expect("it opens");
    for id in 0..20 {
        let update = EntryUpdate {
            id,
            text: Some("x".to_owned()),
            metadata: None,
            tags: None,
            images: None,
            expected_version: Some(7),
        };
        let refused = store
            .update_contexts(&OwnerId::default(), vec![update], true, options(None))
            .await;
        assert!(
            matches!(
                refused,
                Err(StoreError::Item { .. } | StoreError::Rejected(_))
            ),
            "{refused:?}"
        );
    }
    put(&store, "fine", None).await.expect("stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_answering_costs_a_read_its_time_limit_and_no_more() {
    let Some(database) = database().await else {
        return;
    };
    let (proxy, store) = through_proxy(&database, |config| {
        config.statement_timeout = Duration::from_secs(1);
        config.connect_timeout = Duration::from_secs(1);
    })
    .await;
    put(&store, "before", None).await.expect("stored");
    proxy.set(Mode::Stalled);
    let answer = tokio::time::timeout(Duration::from_secs(10), all(&store))
        .await
        .expect("the read ends");
    assert!(
        matches!(answer, Err(StoreError::TooSlow { .. })),
        "{answer:?}"
    );
    proxy.set(Mode::Honest);
    let back = until("it comes back", async || all(&store).await.is_ok());
    tokio::time::timeout(Duration::from_secs(10), back)
        .await
        .expect("it comes back soon");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_accepts_connections_and_does_not_respond_leaves_time_for_the_next_one() {
    let Some(database) = database().await else {
        return;
    };
    let proxy = Proxy::start(database.url()).await;
    proxy.set(Mode::Stalled);
    let (stalled, server) = (
        authority(&proxy.url(database.url())),
        authority(database.url()),
    );
    let both = database
        .url()
        .replacen(&server, &format!("{stalled},{server}"), 1);
    // The first host alone could use up the pool's timeout.
    let opening = PostgresStore::open(Config {
        connect_timeout: Duration::from_secs(2),
        pool_timeout: Duration::from_secs(2),
        ..config(&both)
    });
    let store = opening.await.expect("the second host responds");
    put(&store, "stored", None).await.expect("stored");
    assert!(proxy.connections() > 0, "the first host was tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_accepts_connections_and_does_not_respond_is_not_reported_as_too_many_requests()
 {
    let Some(database) = database().await else {
        return;
    };
    let (proxy, store) = through_proxy(&database, |config| {
        config.pool_timeout = Duration::from_secs(1);
        config.breaker_failures = 1000;
    })
    .await;
    proxy.set(Mode::Dead);
    assert!(all(&store).await.is_err(), "no connection is left");
    proxy.set(Mode::Stalled);
    let answer = all(&store).await;
    assert!(
        matches!(answer, Err(StoreError::Unavailable(_))),
        "{answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_is_rejected_keeps_its_connection() {
    let Some(database) = database().await else {
        return;
    };
    let writer = store(&database).await;
    for text in ["one", "two"] {
        put(&writer, text, None).await.expect("stored");
    }
    let (proxy, store) = through_proxy(&database, |config| config.pool_size = 1).await;
    all(&store).await.expect("read");
    let before = proxy.connections();
    let read = async |max_bytes, min_revision| {
        let selection = RowSelection {
            // With images, the read has a transaction.
            images: true,
            max_bytes,
            ..PLAIN
        };
        let read = Read {
            min_revision,
            ..Read::default()
        };
        let page = Page {
            limit: 10,
            offset: 0,
        };
        store
            .search_contexts(
                &OwnerId::default(),
                Filter::default(),
                page,
                selection,
                read,
            )
            .await
    };
    for _ in 0..5 {
        for (max_bytes, min_revision) in [(1, None), (u64::MAX, Some(1_000_000))] {
            let refused = read(max_bytes, min_revision).await;
            assert!(
                matches!(refused, Err(StoreError::Rejected(_))),
                "{refused:?}"
            );
        }
        let found = read(u64::MAX, None).await.expect("read");
        assert_eq!(found.entries.len(), 2);
    }
    assert_eq!(proxy.connections(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_closing_nothing_is_done_any_more() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    put(&store, "before", None).await.expect("stored");
    store.close().await;
    assert!(matches!(
        put(&store, "after", None).await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(all(&store).await, Err(StoreError::Closed)));
}
