//! A store on a standby: it reads, waits for revisions that have not arrived yet, and rejects writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use context_model::{Error, NewEntry, Source, ThreadId, Timestamp};
use context_store::{
    Memory, OwnerId, Read, RowSelection, Store, StoreError, StoredBatch, Subscription,
    WriteOptions, Written, call,
};
use context_store_postgres::PostgresStore;
use context_test_postgres::{Server, programs};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use super::arrange::config;

const PLAIN: RowSelection = RowSelection {
    images: false,
    text_chars: None,
    explain: false,
    max_bytes: u64::MAX,
    memory: Memory::UNCOUNTED,
};

async fn put(store: &PostgresStore, text: String) -> Result<Written<StoredBatch>, StoreError> {
    let entry = NewEntry {
        thread_id: ThreadId::from_stored("t".to_owned()),
        source: Source::User,
        text,
        images: None,
        metadata: None,
        tags: None,
    };
    let options = WriteOptions {
        now: Timestamp(1),
        idempotency: None,
        key_id: None,
        embeddings: Vec::new(),
    };
    store
        .store_contexts(&OwnerId::default(), vec![entry], true, options)
        .await
}

/// A turn that records when it is left and taken.
#[derive(Default)]
struct Noted(Mutex<Vec<&'static str>>);

#[async_trait]
impl call::Turn for Noted {
    fn leave(&self) {
        self.0.lock().expect("no one panics").push("leave");
    }

    async fn take(&self) -> Result<(), Error> {
        self.0.lock().expect("no one panics").push("take");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_serves_reads_as_of_the_revision_asked_for() {
    let Some(programs) = programs() else { return };
    let primary = Server::start(&programs).await;
    let writer = PostgresStore::open(config(&primary.url()))
        .await
        .expect("the primary opens");
    put(&writer, "first".to_owned()).await.expect("stored");
    let standby = primary.synchronous_standby().await;
    let reader = PostgresStore::open(config(&standby.url()))
        .await
        .expect("a standby with the schema opens");
    let owner = OwnerId::default();
    let get = async |written: &Written<StoredBatch>, wait: Duration| {
        let id = written.outcome.items[0].as_ref().expect("stored").id;
        let read = Read {
            min_revision: Some(written.revision),
            wait,
            as_of: None,
        };
        reader.get_contexts(&owner, vec![id], PLAIN, read).await
    };

    for round in 0..30 {
        let written = put(&writer, format!("round {round}"))
            .await
            .expect("stored");
        let found = get(&written, Duration::from_secs(20))
            .await
            .expect("the revision reaches the standby");
        assert_eq!(found.entries[0].text, format!("round {round}"));
    }

    let control = standby.connect().await;
    control
        .batch_execute("SELECT pg_wal_replay_pause()")
        .await
        .expect("the replay is paused");
    let unseen = put(&writer, "unseen".to_owned()).await.expect("stored");
    let refused = get(&unseen, Duration::from_millis(100))
        .await
        .expect_err("it is not there yet");
    assert!(matches!(refused, StoreError::Rejected(_)), "{refused:?}");
    // While the read waits, it leaves its turn to other calls, and takes a turn again before it continues.
    let turn = Arc::new(Noted::default());
    let waiting = call::within(
        Duration::from_secs(60),
        Some(turn.clone()),
        get(&unseen, Duration::from_millis(100)),
    );
    assert!(matches!(waiting.await, Err(StoreError::Rejected(_))));
    assert_eq!(*turn.0.lock().expect("no one panics"), ["leave", "take"]);
    // A thousand reads may wait. While the replay is paused, the only read that returns is the one that is rejected.
    let mut many: FuturesUnordered<_> = (0..1001)
        .map(|_| get(&unseen, Duration::from_secs(300)))
        .collect();
    let first = many.next().await.expect("one is refused");
    assert!(matches!(first, Err(StoreError::Overloaded)), "{first:?}");
    control
        .batch_execute("SELECT pg_wal_replay_resume()")
        .await
        .expect("the replay is resumed");
    while let Some(found) = many.next().await {
        found.expect("the revision arrives");
    }
    let found = get(&unseen, Duration::from_secs(20))
        .await
        .expect("now it is");
    assert_eq!(found.entries[0].text, "unseen");

    let refused = put(&reader, "never".to_owned())
        .await
        .expect_err("a standby rejects writes");
    assert!(matches!(refused, StoreError::ReadOnly(_)), "{refused:?}");
}

/// A standby delivers no notifications, so the store polls the revisions.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_learns_of_changes_and_says_when_a_revision_may_still_come() {
    let Some(programs) = programs() else { return };
    let primary = Server::start(&programs).await;
    let writer = PostgresStore::open(config(&primary.url()))
        .await
        .expect("the primary opens");
    put(&writer, "first".to_owned()).await.expect("stored");
    let standby = primary.synchronous_standby().await;
    let reader = PostgresStore::open(config(&standby.url()))
        .await
        .expect("a standby with the schema opens");
    let owner = OwnerId::default();
    let mut subscription = reader.changes().notifier().subscribe(&owner);
    let feed = async |store: &PostgresStore, from| {
        let feed = store.changes().feed(&owner, from, 10, Read::default());
        feed.await.expect("the feed is read")
    };
    let reached = async |subscription: &mut Subscription, revision| loop {
        subscription.begin_read();
        if feed(&reader, 1).await.revision >= revision {
            return;
        }
        subscription.changed().await;
    };
    for text in ["second", "third"] {
        let written = put(&writer, text.to_owned()).await.expect("stored");
        let reached = reached(&mut subscription, written.revision);
        tokio::time::timeout(Duration::from_secs(20), reached)
            .await
            .expect("the change is announced");
    }
    let ahead = [feed(&reader, 9).await, feed(&writer, 9).await].map(|feed| feed.is_behind);
    assert_eq!(ahead, [true, false]);
    assert!(!feed(&reader, 3).await.is_behind);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_on_a_standby_are_rejected_without_new_connections() {
    let Some(programs) = programs() else { return };
    let primary = Server::start(&programs).await;
    let writer = PostgresStore::open(config(&primary.url()))
        .await
        .expect("the primary opens");
    put(&writer, "first".to_owned()).await.expect("stored");
    let standby = primary.synchronous_standby().await;
    let reader = PostgresStore::open(config(&standby.url()))
        .await
        .expect("a standby with the schema opens");
    let control = standby.connect().await;
    let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'context-service'";
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let refused = put(&reader, "never".to_owned()).await;
        assert!(
            matches!(refused, Err(StoreError::ReadOnly(_))),
            "{refused:?}"
        );
        let sessions = control.query(sessions, &[]).await.expect("listed");
        pids.extend(sessions.iter().map(|session| session.get::<_, i32>(0)));
    }
    // The store closes its connections and opens others at most once in five seconds.
    assert!((1..20).contains(&pids.len()), "{} connections", pids.len());
}

/// While the replay of one of two standbys is paused, a read that needs a later revision is served by the other one.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_needs_a_revision_finds_the_standby_that_has_it() {
    let Some(programs) = programs() else { return };
    let primary = Server::start(&programs).await;
    let writer = PostgresStore::open(config(&primary.url()))
        .await
        .expect("the primary opens");
    put(&writer, "first".to_owned()).await.expect("stored");
    let (current, paused) = (primary.standby().await, primary.standby().await);
    let both = format!(
        "postgres://postgres@{},{}/postgres?load_balance_hosts=random",
        current.address(),
        paused.address()
    );
    let control = paused.connect().await;
    control
        .batch_execute("SELECT pg_wal_replay_pause()")
        .await
        .expect("the replay is paused");
    let unseen = put(&writer, "unseen".to_owned()).await.expect("stored");
    let id = unseen.outcome.items[0].as_ref().expect("stored").id;
    let owner = OwnerId::default();
    let read = Read {
        min_revision: Some(unseen.revision),
        wait: Duration::from_secs(60),
        as_of: None,
    };
    // By chance, no connection of a store may lead to the standby that has the revision. Of several stores one has such
    // a connection.
    for _ in 0..5 {
        let reader = PostgresStore::open(config(&both))
            .await
            .expect("standbys with the schema open");
        let get = async || {
            let found = reader.get_contexts(&owner, vec![id], PLAIN, read).await;
            assert_eq!(found.expect("the revision is there").entries.len(), 1);
        };
        // Simultaneous reads open all connections of the pool, which lead to the standbys by chance. Then each read may
        // reach either standby.
        let reads = async {
            futures::future::join_all((0..64).map(|_| get())).await;
            for _ in 0..64 {
                get().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(10), reads)
            .await
            .is_ok()
        {
            return;
        }
    }
    panic!("no read found the standby that has the revision");
}
