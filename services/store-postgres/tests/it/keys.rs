//! Keys and owners.

use std::time::Duration;

use context_model::{NewEntry, Source, ThreadId, Timestamp};
use context_store::{
    Denial, KeyChange, KeyEvent, OwnerId, Store, StoredBatch, StoredKey, WriteOptions, Written,
};
use context_store_conformance::generate::{OWNERS, fill};
use context_store_postgres::{Config, PostgresStore};
use context_test_postgres::Client;
use context_test_support::until;

use super::arrange::{config, database, store};
use super::locks::until_blocked;

fn key(owner: &str, id: &str, at: i64) -> StoredKey {
    StoredKey {
        id: id.to_owned(),
        owner: OwnerId::new(owner),
        name: format!("name of {id}"),
        lookup: [7; 32],
        hash: "bcrypt".to_owned(),
        digest: Some("digest".to_owned()),
        scopes: vec!["read".to_owned(), "write".to_owned()],
        narrowing: "{}".to_owned(),
        created_at: Timestamp(at),
        expires_at: None,
        last_used_at: None,
        deactivated_at: None,
    }
}

fn event(key_id: &str, at: i64) -> KeyEvent {
    KeyEvent {
        id: format!("{at} {key_id}"),
        at: Timestamp(at),
        actor: None,
        operation: "test".to_owned(),
        key_id: key_id.to_owned(),
    }
}

async fn put(store: &dyn Store, owner: &OwnerId, text: &str, at: i64) -> i64 {
    let written = put_in(store, owner, "t", text, at).await;
    written.outcome.items[0].as_ref().expect("applied").id
}

async fn put_in(
    store: &dyn Store,
    owner: &OwnerId,
    thread: &str,
    text: &str,
    at: i64,
) -> Written<StoredBatch> {
    let entry = NewEntry {
        thread_id: ThreadId::from_stored(thread.to_owned()),
        source: Source::User,
        text: text.to_owned(),
        images: None,
        metadata: None,
        tags: None,
    };
    let options = WriteOptions {
        now: Timestamp(at),
        idempotency: None,
        key_id: Some("k1".to_owned()),
        embeddings: Vec::new(),
    };
    store
        .store_contexts(owner, vec![entry], true, options)
        .await
        .expect("stored")
}

/// The number of an owner's rows in each table that holds rows of owners. The counter of ids stays after an erase.
async fn rows_of(client: &Client, owner: &OwnerId) -> Vec<(String, i64)> {
    let tables = "SELECT table_name::text FROM information_schema.columns \
                  WHERE table_schema = 'context' AND column_name = 'owner_id' AND table_name <> 'owner_ids' ORDER BY 1";
    let tables = client.query(tables, &[]).await.expect("listed");
    assert!(tables.len() > 10, "{} tables", tables.len());
    let mut rows = Vec::new();
    for table in tables {
        let table: String = table.get(0);
        let count = format!("SELECT count(*) FROM context.{table} WHERE owner_id = $1");
        let count = client.query_one(&count, &[&owner.as_str()]).await;
        rows.push((table, count.expect("counted").get(0)));
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_found_by_their_beginning_and_changed_by_their_owner_alone() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    let keys = Store::keys(&store);
    let (one, other) = (key("one", "k1", 1), key("other", "k2", 2));
    keys.insert_key(one.clone(), event("k1", 1))
        .await
        .expect("stored");
    keys.insert_key(other.clone(), event("k2", 2))
        .await
        .expect("stored");
    assert_eq!(
        keys.keys_by_lookup([7; 32]).await.expect("read"),
        [other.clone(), one.clone()]
    );
    assert!(keys.keys_by_lookup([8; 32]).await.expect("read").is_empty());
    assert_eq!(
        keys.list_keys(&one.owner).await.expect("read"),
        std::slice::from_ref(&one)
    );
    assert_eq!(keys.key(&other.owner, "k1").await.expect("read"), None);

    let off = KeyChange {
        deactivated_at: Some(Timestamp(9)),
        expires_at: Some(Some(Timestamp(100))),
        ..KeyChange::default()
    };
    assert_eq!(
        keys.update_key(&other.owner, "k1", off.clone(), event("k1", 9))
            .await
            .expect("no failure"),
        None
    );
    let changed = keys
        .update_key(&one.owner, "k1", off, event("k1", 9))
        .await
        .expect("changed")
        .expect("it exists");
    assert_eq!(
        (changed.deactivated_at, changed.expires_at),
        (Some(Timestamp(9)), Some(Timestamp(100)))
    );
    let again = KeyChange {
        deactivated_at: Some(Timestamp(50)),
        ..KeyChange::default()
    };
    let again = keys
        .update_key(&one.owner, "k1", again, event("k1", 50))
        .await
        .expect("changed")
        .expect("it exists");
    assert_eq!(
        again.deactivated_at,
        Some(Timestamp(9)),
        "a second deactivation keeps the first time"
    );
    for at in [30, 20] {
        keys.touch_key(&one.owner, "k1", Timestamp(at))
            .await
            .expect("recorded");
    }
    let used = keys
        .key(&one.owner, "k1")
        .await
        .expect("read")
        .expect("it exists");
    assert_eq!(
        (used.last_used_at, used.scopes),
        (Some(Timestamp(30)), one.scopes)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_has_changes_and_refusals_in_order() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    let keys = Store::keys(&store);
    let owner = OwnerId::new("one");
    let denial = |at| Denial {
        at: Timestamp(at),
        key_id: "k9".into(),
        operation: "delete_context".into(),
        reason: "SCOPE_MISSING".into(),
        attempts: 3,
    };
    keys.record_denial(&owner, denial(1))
        .await
        .expect("there is no such owner");
    keys.create_owner(&owner, Timestamp(1)).await.expect("made");
    keys.create_owner(&owner, Timestamp(2))
        .await
        .expect("it exists already");
    put(&store, &owner, "a", 10).await;
    keys.record_denial(&owner, denial(20))
        .await
        .expect("it is recorded");
    put(&store, &owner, "b", 30).await;
    let lines = keys
        .audit_log(&owner, Timestamp(0), 0, 10)
        .await
        .expect("read");
    let shown: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line.at.micros(),
                line.outcome.as_str(),
                line.revision,
                line.attempts,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (10, "OK", Some(1), 1),
            (20, "SCOPE_MISSING", None, 3),
            (30, "OK", Some(2), 1)
        ]
    );
    assert_eq!(lines[0].key_id.as_deref(), Some("k1"));
    let next = keys.audit_log(&owner, Timestamp(20), 0, 1).await;
    let next: Vec<i64> = next
        .expect("read")
        .iter()
        .map(|line| line.at.micros())
        .collect();
    assert_eq!(next, [20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_owner_leaves_nothing_and_others_keep_everything() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    let keys = Store::keys(&store);
    let (one, other) = (OwnerId::new("one"), OwnerId::new("other"));
    for owner in [&one, &other] {
        keys.insert_key(key(owner.as_str(), "k1", 1), event("k1", 1))
            .await
            .expect("stored");
        put(&store, owner, "a", 1).await;
    }
    let erased = keys
        .erase_owner(&one, Timestamp(2))
        .await
        .expect("erased")
        .expect("it existed");
    assert_eq!((erased.contexts, erased.artifacts, erased.keys), (1, 0, 1));
    assert_eq!(
        keys.erase_owner(&one, Timestamp(3))
            .await
            .expect("no failure"),
        None
    );
    let owners: Vec<_> = keys
        .list_owners()
        .await
        .expect("read")
        .into_iter()
        .map(|summary| (summary.owner, summary.contexts))
        .collect();
    assert_eq!(owners, [(other, 1)]);
    let client = database.connect().await;
    let left = rows_of(&client, &one).await;
    assert!(left.iter().all(|(_, rows)| *rows == 0), "{left:?}");
    let again = put(&store, &one, "again", 5).await;
    assert!(again > 1, "the ids of an erased owner are not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_owner_has_rows_in_no_table() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    fill(&store, 11, 300).await;
    let client = database.connect().await;
    let claim = "INSERT INTO context.embedding_claims VALUES ('default', 1, 1, 1, 'service', 0)";
    client.batch_execute(claim).await.expect("a claim");
    let (gone, stays) = (OwnerId::default(), OwnerId::new(OWNERS[1]));
    let (before, others) = (
        rows_of(&client, &gone).await,
        rows_of(&client, &stays).await,
    );
    assert!(
        before.iter().all(|(_, rows)| *rows > 0),
        "the owner has rows in every table: {before:?}"
    );
    let erased = Store::keys(&store).erase_owner(&gone, Timestamp(2)).await;
    assert!(erased.expect("erased").is_some());
    let left = rows_of(&client, &gone).await;
    assert!(left.iter().all(|(_, rows)| *rows == 0), "{left:?}");
    assert_eq!(rows_of(&client, &stays).await, others);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_during_an_erase_is_either_erased_or_written_as_a_whole() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    let keys = Store::keys(&store);
    let owner = OwnerId::new("one");
    for text in ["a", "b"] {
        put(&store, &owner, text, 1).await;
    }
    // The erase stops at this table: it has deleted the changes, and not yet the entries.
    let mut holding = database.connect().await;
    let held = holding.transaction().await.expect("a transaction");
    held.batch_execute("LOCK TABLE context.denials IN SHARE MODE")
        .await
        .expect("locked");
    let watching = database.connect().await;
    let writing = async {
        until_blocked(&watching, 1).await;
        let mut written = Box::pin(put_in(&store, &owner, "new", "c", 2));
        // The write either ends at once or waits for the erase.
        let early = tokio::select! {
            written = &mut written => Some(written),
            () = until_blocked(&watching, 2) => None,
        };
        held.rollback().await.expect("rolled back");
        match early {
            Some(written) => written,
            None => written.await,
        }
    };
    let (erased, written) = futures::join!(keys.erase_owner(&owner, Timestamp(3)), writing);
    let erased = erased.expect("erased").expect("it existed");
    assert_eq!((erased.contexts, written.revision), (2, 1));
    let rows = "SELECT (SELECT count(*) FROM context.entries), (SELECT count(*) FROM context.changes), \
                (SELECT entry_count FROM context.owners)";
    let rows = watching.query_one(rows, &[]).await.expect("counted");
    let rows: (i64, i64, i64) = (rows.get(0), rows.get(1), rows.get(2));
    assert_eq!(rows, (1, 1, 1));
    let next = put_in(&store, &owner, "new", "d", 4).await;
    assert_eq!(next.revision, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erase_has_no_time_limit() {
    let Some(database) = database().await else {
        return;
    };
    let statement_timeout = Duration::from_millis(200);
    let store = PostgresStore::open(Config {
        statement_timeout,
        ..config(database.url())
    })
    .await
    .expect("it opens");
    let owner = OwnerId::new("one");
    let prepared = super::arrange::store(&database).await;
    put(&prepared, &owner, "a", 1).await;
    let mut holding = database.connect().await;
    let held = holding.transaction().await.expect("a transaction");
    held.batch_execute("LOCK TABLE context.denials IN SHARE MODE")
        .await
        .expect("locked");
    let watching = database.connect().await;
    let waited = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' \
                  AND state_change < clock_timestamp() - interval '1 s'";
    let released = async {
        // Longer than a write may take.
        until("the erase waits for a second", async || {
            let waiting = watching.query_one(waited, &[]).await;
            waiting.expect("counted").get::<_, i64>(0) == 1
        })
        .await;
        held.rollback().await.expect("rolled back");
    };
    let keys = Store::keys(&store);
    let (erased, ()) = futures::join!(keys.erase_owner(&owner, Timestamp(2)), released);
    assert!(erased.expect("erased").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_replaces_another_during_an_erase_is_erased() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    let keys = Store::keys(&store);
    let owner = OwnerId::new("one");
    keys.insert_key(key("one", "k1", 1), event("k1", 1))
        .await
        .expect("stored");
    // The replacement stops at this table: it has stored the new key, and not yet committed.
    let mut holding = database.connect().await;
    let held = holding.transaction().await.expect("a transaction");
    held.batch_execute("LOCK TABLE context.key_events IN SHARE MODE")
        .await
        .expect("locked");
    let watching = database.connect().await;
    let replacing = keys.replace_key("k1", key("one", "k2", 2), vec![event("k2", 2)]);
    let erasing = async {
        until_blocked(&watching, 1).await;
        keys.erase_owner(&owner, Timestamp(3)).await
    };
    let releasing = async {
        until_blocked(&watching, 2).await;
        held.rollback().await.expect("rolled back");
    };
    let (replaced, erased, ()) = futures::join!(replacing, erasing, releasing);
    assert!(replaced.expect("no failure"), "it was first");
    assert!(erased.expect("erased").is_some());
    let left = watching
        .query_one("SELECT count(*) FROM context.api_keys", &[])
        .await
        .expect("counted");
    assert_eq!(left.get::<_, i64>(0), 0, "no key is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_during_an_erase_is_not_left_behind() {
    let Some(database) = database().await else {
        return;
    };
    let store = store(&database).await;
    let keys = Store::keys(&store);
    let owner = OwnerId::new("one");
    keys.create_owner(&owner, Timestamp(1)).await.expect("made");
    // The erase stops at this table: it has deleted the denials, and not yet committed.
    let mut holding = database.connect().await;
    let held = holding.transaction().await.expect("a transaction");
    held.batch_execute("LOCK TABLE context.key_events IN SHARE MODE")
        .await
        .expect("locked");
    let watching = database.connect().await;
    let denial = Denial {
        at: Timestamp(2),
        key_id: "k1".into(),
        operation: "delete_context".into(),
        reason: "SCOPE_MISSING".into(),
        attempts: 1,
    };
    let recording = async {
        until_blocked(&watching, 1).await;
        let mut recorded = keys.record_denial(&owner, denial);
        // The record either ends at once or waits for the erase.
        let early = tokio::select! {
            recorded = &mut recorded => Some(recorded),
            () = until_blocked(&watching, 2) => None,
        };
        held.rollback().await.expect("rolled back");
        match early {
            Some(recorded) => recorded,
            None => recorded.await,
        }
    };
    let (erased, recorded) = futures::join!(keys.erase_owner(&owner, Timestamp(3)), recording);
    assert!(erased.expect("erased").is_some());
    recorded.expect("there is no such owner any more");
    let left = watching
        .query_one("SELECT count(*) FROM context.denials", &[])
        .await
        .expect("counted");
    assert_eq!(left.get::<_, i64>(0), 0, "no denial is left");
}
