//! Keys and owners.

use context_model::{ArtifactId, Filter, Metadata, NewArtifact, Reason};
use context_store::{
    DeleteCriteria, Denial, DocumentKind, KeyChange, KeyEvent, KeyStore, LateSummary, OwnerId,
    Retention, Store, StoredKey,
};
use context_text::{Analyzer, Language, Mode};

use crate::arrange::*;
use crate::suite::behaviour;

fn keys(store: &dyn Store) -> &dyn KeyStore {
    store.keys()
}

fn key(id: &str, owner: &OwnerId, seconds: i64) -> StoredKey {
    StoredKey {
        id: id.to_owned(),
        owner: owner.clone(),
        name: "Ä key".to_owned(),
        lookup: [7; 32],
        hash: format!("hash of {id}"),
        digest: Some(format!("digest of {id}")),
        scopes: vec!["read".to_owned(), "write".to_owned()],
        narrowing: "{}".to_owned(),
        created_at: at(seconds),
        expires_at: None,
        last_used_at: None,
        deactivated_at: None,
    }
}

/// The event of an operation on this key at this time, made with the key `actor`.
fn event(operation: &str, key_id: &str, seconds: i64) -> KeyEvent {
    KeyEvent {
        id: format!("{seconds:08} {operation} {key_id}"),
        at: at(seconds),
        actor: Some("actor".to_owned()),
        operation: operation.to_owned(),
        key_id: key_id.to_owned(),
    }
}

async fn insert(store: &dyn Store, key: StoredKey) {
    let made = event("create_api_key", &key.id, 1);
    keys(store).insert_key(key, made).await.expect("stored");
}

/// Every field of a key is read back, also for an owner that has nothing else yet.
async fn a_key_reads_back_equal(store: &dyn Store) {
    let theirs = OwnerId::new("new owner");
    let made = StoredKey {
        expires_at: Some(at(9)),
        narrowing: "{\"only\":\"artifacts\"}".to_owned(),
        ..key("k1", &theirs, 1)
    };
    insert(store, made.clone()).await;
    assert_eq!(
        keys(store).key(&theirs, "k1").await.expect("read"),
        Some(made.clone())
    );
    assert_eq!(
        keys(store).key(&me(), "k1").await.expect("read"),
        None,
        "the id finds no key of another owner"
    );
    assert_eq!(
        keys(store).keys_by_lookup([7; 32]).await.expect("read"),
        [made]
    );
    assert_eq!(keys(store).keys_by_lookup([8; 32]).await.expect("read"), []);
}
behaviour!(a_key_reads_back_equal(store));

/// The list has only the owner's own keys, active ones before deactivated ones, and each kind newest first. So no
/// number of deactivated keys hides an active one.
async fn keys_are_listed_by_owner(store: &dyn Store) {
    for (id, owner, seconds) in [
        ("a", me(), 1),
        ("b", me(), 2),
        ("c", OwnerId::new("other"), 3),
        ("d", me(), 4),
    ] {
        insert(store, key(id, &owner, seconds)).await;
    }
    let change = KeyChange {
        deactivated_at: Some(at(5)),
        ..KeyChange::default()
    };
    keys(store)
        .update_key(&me(), "d", change, event("deactivate_api_key", "d", 5))
        .await
        .expect("deactivated");
    let listed = keys(store).list_keys(&me()).await.expect("listed");
    assert_eq!(
        listed.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(),
        ["b", "a", "d"]
    );
    assert_eq!(
        keys(store)
            .keys_by_lookup([7; 32])
            .await
            .expect("read")
            .len(),
        4,
        "the owner of a caller with a key is not known yet"
    );
}
behaviour!(keys_are_listed_by_owner(store));

/// Fields that are not given stay. A deactivated key stays deactivated, from its first deactivation time on.
async fn a_key_changes_and_never_comes_back(store: &dyn Store) {
    insert(store, key("k", &me(), 1)).await;
    let change = KeyChange {
        name: Some("new".to_owned()),
        narrowing: Some("{\"only\":\"artifacts\"}".to_owned()),
        expires_at: Some(Some(at(50))),
        ..KeyChange::default()
    };
    let changed = keys(store)
        .update_key(&me(), "k", change, event("update_api_key", "k", 2))
        .await
        .expect("changed")
        .expect("it exists");
    assert_eq!(
        (
            changed.name.as_str(),
            changed.expires_at,
            changed.scopes.len()
        ),
        ("new", Some(at(50)), 2)
    );
    let change = KeyChange {
        scopes: Some(vec!["read".to_owned()]),
        expires_at: Some(None),
        ..KeyChange::default()
    };
    let changed = keys(store)
        .update_key(&me(), "k", change, event("update_api_key", "k", 3))
        .await
        .expect("changed")
        .expect("it exists");
    assert_eq!(
        (
            changed.name.as_str(),
            changed.expires_at,
            changed.scopes.len()
        ),
        ("new", None, 1)
    );
    assert_eq!(changed.narrowing, "{\"only\":\"artifacts\"}");
    for seconds in [4, 5] {
        let off = KeyChange {
            deactivated_at: Some(at(seconds)),
            ..KeyChange::default()
        };
        let changed = keys(store)
            .update_key(&me(), "k", off, event("deactivate_api_key", "k", seconds))
            .await
            .expect("changed")
            .expect("it exists");
        assert_eq!(changed.deactivated_at, Some(at(4)));
    }
    // The latest use counts, also if an earlier one is written after it.
    for seconds in [6, 5] {
        let touched = keys(store).touch_key(&me(), "k", at(seconds)).await;
        touched.expect("recorded");
    }
    assert_eq!(
        keys(store)
            .key(&me(), "k")
            .await
            .expect("read")
            .expect("it exists")
            .last_used_at,
        Some(at(6))
    );
    for (owner, id) in [(me(), "unknown"), (OwnerId::new("nobody"), "k")] {
        let change = KeyChange {
            name: Some("x".to_owned()),
            ..KeyChange::default()
        };
        assert_eq!(
            keys(store)
                .update_key(&owner, id, change, event("update_api_key", id, 7))
                .await
                .expect("no failure"),
            None
        );
        keys(store)
            .touch_key(&owner, id, at(7))
            .await
            .expect("nothing to record");
    }
    assert_eq!(revision(store).await, 0, "keys are no changes of entries");
}
behaviour!(a_key_changes_and_never_comes_back(store));

/// The counts include the owners' entries, artifacts and active keys. Listing keys creates no owner.
async fn owners_are_counted(store: &dyn Store) {
    keys(store)
        .create_owner(&OwnerId::new("b"), at(0))
        .await
        .expect("made");
    keys(store)
        .create_owner(&OwnerId::new("b"), at(1))
        .await
        .expect("it exists already");
    keys(store)
        .list_keys(&OwnerId::new("nobody"))
        .await
        .expect("none");
    entry("x").store_for(store, &OwnerId::new("a"), 0).await;
    insert(store, key("k", &OwnerId::new("a"), 1)).await;
    let off = StoredKey {
        deactivated_at: Some(at(2)),
        ..key("off", &OwnerId::new("a"), 1)
    };
    insert(store, off).await;
    let new = NewArtifact {
        path: None,
        title: None,
        content: "text".to_owned(),
        metadata: Metadata::default(),
    };
    let id = ArtifactId::parse("00000000-0000-7000-8000-000000000001").expect("an id");
    let created = store
        .artifacts()
        .create_artifact(&OwnerId::new("b"), id, new, options(3))
        .await;
    created.expect("created");
    let owners = keys(store).list_owners().await.expect("listed");
    let counted: Vec<_> = owners
        .iter()
        .map(|o| (o.owner.as_str(), o.contexts, o.artifacts, o.keys))
        .collect();
    assert_eq!(counted, [("a", 1, 0, 1), ("b", 0, 1, 0)]);
}
behaviour!(owners_are_counted(store));

/// Other owners keep everything.
async fn an_erased_owner_has_nothing_left(store: &dyn Store) {
    let (gone, stays) = (OwnerId::new("gone"), OwnerId::new("stays"));
    for owner in [&gone, &stays] {
        entry("words")
            .tags(&["tag"])
            .images(&[b"image"])
            .store_for(store, owner, 0)
            .await;
        let keyed = vec![entry("repeatable").0];
        store
            .store_contexts(owner, keyed, true, with_key(0, "k", 1))
            .await
            .expect("stored");
        insert(store, key(&format!("key of {}", owner.as_str()), owner, 1)).await;
        let denial = Denial {
            at: at(2),
            key_id: "k".into(),
            operation: "x".into(),
            reason: "SCOPE_MISSING".into(),
            attempts: 3,
        };
        keys(store)
            .record_denial(owner, denial)
            .await
            .expect("written");
    }
    let erased = keys(store)
        .erase_owner(&gone, at(3))
        .await
        .expect("erased")
        .expect("it existed");
    assert_eq!((erased.contexts, erased.keys), (2, 1));
    assert_eq!(
        keys(store)
            .erase_owner(&gone, at(4))
            .await
            .expect("no failure"),
        None
    );
    // A delete that finds nothing stores its idempotency key. The next erasure deletes it too.
    let unknown = DeleteCriteria {
        ids: Some(vec![1]),
        ..DeleteCriteria::default()
    };
    let deleted = store
        .delete_contexts(&gone, unknown, with_key(4, "k", 3))
        .await;
    assert_eq!(deleted.expect("nothing to delete").outcome, 0);
    let erased = keys(store).erase_owner(&gone, at(4)).await;
    erased.expect("erased");
    assert_eq!(keys(store).list_keys(&gone).await.expect("listed"), []);
    assert_eq!(
        keys(store)
            .audit_log(&gone, at(0), 0, 100)
            .await
            .expect("read"),
        []
    );
    assert_eq!(
        store
            .list_threads(&gone, None, None, page(10, 0), now())
            .await
            .expect("listed")
            .total,
        0
    );
    assert_eq!(
        store
            .list_threads(&stays, None, None, page(10, 0), now())
            .await
            .expect("listed")
            .total,
        1
    );
    assert_eq!(
        keys(store)
            .audit_log(&stays, at(0), 0, 100)
            .await
            .expect("read")
            .len(),
        4
    );
    let found = keys(store).keys_by_lookup([7; 32]).await.expect("read");
    let ids: Vec<&str> = found.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(ids, ["key of stays"]);
    // A new owner with the same name gets nothing of the erased one.
    let other_request = async |owner: &OwnerId| {
        let entries = vec![entry("again").0];
        store
            .store_contexts(owner, entries, true, with_key(5, "k", 2))
            .await
    };
    assert_eq!(
        reason(other_request(&stays).await),
        Reason::IdempotencyKeyReused
    );
    other_request(&gone).await.expect("the key is free");
    let found = store
        .search_contexts(&gone, Filter::default(), page(10, 0), EVERYTHING, now())
        .await
        .expect("read");
    assert_eq!((texts(&found.entries), found.revision), (vec!["again"], 1));
    let tags = store
        .list_tags(&gone, Filter::default(), None, page(10, 0), now())
        .await;
    assert_eq!(tags.expect("read").total, 0);
    let lines = keys(store).audit_log(&gone, at(0), 0, 100).await;
    assert_eq!(lines.expect("read").len(), 1);
    for (owner, count) in [(&gone, 0), (&stays, 1)] {
        let words = context_text::parse(Mode::Match, "words", &Analyzer::new(Language::English));
        let words = words.expect("a query").expect("has words").query;
        let counted = store
            .document_frequencies(owner, DocumentKind::Context, vec![words], 10, now())
            .await;
        assert_eq!(counted.expect("counted"), [count], "{owner:?}");
    }
}
behaviour!(an_erased_owner_has_nothing_left(store));

/// A client may still know an id from before the erasure. It must not name another entry.
async fn the_ids_of_an_erased_owner_are_not_used_again(store: &dyn Store) {
    let gone = OwnerId::new("gone");
    let mut highest = 0;
    // The next id also outlives an owner that stored nothing.
    for seconds in 0..3 {
        let created = keys(store).create_owner(&gone, at(seconds)).await;
        created.expect("created");
        if seconds != 1 {
            for text in ["a", "b"] {
                let id = entry(text).store_for(store, &gone, seconds).await.id;
                assert!(id > highest, "{id}");
                highest = id;
            }
        }
        let erased = keys(store).erase_owner(&gone, at(seconds)).await;
        assert!(erased.expect("erased").is_some());
    }
}
behaviour!(the_ids_of_an_erased_owner_are_not_used_again(store));

/// Neither a rejected write nor work that ends after the owner was erased creates one.
async fn only_a_write_that_succeeds_creates_an_owner(store: &dyn Store) {
    let (gone, new) = (OwnerId::new("gone"), OwnerId::new("new"));
    entry("words").store_for(store, &gone, 0).await;
    keys(store).erase_owner(&gone, at(1)).await.expect("erased");
    let late = LateSummary {
        id: 1,
        version: 1,
        summary: "of the erased text".to_owned(),
    };
    let added = store.summaries().add_summary(&gone, late).await;
    assert!(!added.expect("it is ignored"));
    let updates = vec![update(1).text("changed").0];
    let updated = store.update_contexts(&new, updates, true, options(2)).await;
    assert_eq!(reason(updated), Reason::ContextNotFound);
    let owners = keys(store).list_owners().await.expect("listed");
    let names: Vec<_> = owners.iter().map(|o| o.owner.as_str()).collect();
    assert!(
        !names.contains(&"gone") && !names.contains(&"new"),
        "{names:?}"
    );
    entry("words").store_for(store, &new, 3).await;
    let owners = keys(store).list_owners().await.expect("listed");
    assert!(owners.iter().any(|o| o.owner == new && o.contexts == 1));
}
behaviour!(only_a_write_that_succeeds_creates_an_owner(store));

/// Changes and denials are listed oldest first, from a time on.
async fn the_audit_log_has_changes_and_refusals(store: &dyn Store) {
    let id = entry("x").store(store, 1).await.id;
    let denial = |seconds| Denial {
        at: at(seconds),
        key_id: "k".to_owned(),
        operation: "delete_context".to_owned(),
        reason: "SCOPE_MISSING".to_owned(),
        attempts: 2,
    };
    keys(store)
        .record_denial(&me(), denial(2))
        .await
        .expect("written");
    update(id).text("y").apply(store, 3).await.expect("updated");
    let lines = keys(store)
        .audit_log(&me(), at(0), 0, 100)
        .await
        .expect("read");
    let shown: Vec<_> = lines
        .iter()
        .map(|l| {
            (
                l.operation.as_str(),
                l.outcome.as_str(),
                l.entity_id.clone(),
                l.attempts,
            )
        })
        .collect();
    let entity = Some(id.to_string());
    assert_eq!(
        shown,
        [
            ("create", "OK", entity.clone(), 1),
            ("delete_context", "SCOPE_MISSING", None, 2),
            ("update", "OK", entity, 1)
        ]
    );
    assert_eq!(
        keys(store)
            .audit_log(&me(), at(2), 0, 1)
            .await
            .expect("read"),
        lines[1..2]
    );
    assert_eq!(
        keys(store)
            .audit_log(&me(), at(0), 1, 100)
            .await
            .expect("read"),
        lines[1..]
    );
    keys(store)
        .record_denial(&OwnerId::new("nobody"), denial(4))
        .await
        .expect("there is no such owner");
    assert_eq!(keys(store).list_owners().await.expect("listed").len(), 1);
}
behaviour!(the_audit_log_has_changes_and_refusals(store));

/// Events are written in the key's own transaction, and only when there was a change.
async fn what_is_done_to_a_key_stands_in_the_audit_log(store: &dyn Store) {
    insert(store, key("k", &me(), 1)).await;
    let change = || KeyChange {
        scopes: Some(vec!["read".to_owned()]),
        ..KeyChange::default()
    };
    let off = |seconds| KeyChange {
        deactivated_at: Some(at(seconds)),
        ..KeyChange::default()
    };
    for (seconds, operation, change) in [
        (2, "update_api_key", change()),
        (3, "update_api_key", change()),
        (4, "deactivate_api_key", off(4)),
        (5, "deactivate_api_key", off(5)),
    ] {
        let changed = keys(store)
            .update_key(&me(), "k", change, event(operation, "k", seconds))
            .await;
        changed.expect("changed").expect("it exists");
    }
    let unknown = keys(store)
        .update_key(
            &me(),
            "unknown",
            change(),
            event("update_api_key", "unknown", 6),
        )
        .await;
    assert_eq!(unknown.expect("no failure"), None);
    let again = keys(store)
        .insert_key(key("k", &me(), 1), event("create_api_key", "k", 7))
        .await;
    assert!(again.is_err(), "there is such a key");
    let lines = keys(store)
        .audit_log(&me(), at(0), 0, 100)
        .await
        .expect("read");
    let shown: Vec<_> = lines
        .iter()
        .map(|l| {
            (
                l.at,
                l.operation.as_str(),
                l.entity_id.as_deref(),
                l.outcome.as_str(),
            )
        })
        .collect();
    let line = |seconds, operation| (at(seconds), operation, Some("k"), "OK");
    assert_eq!(
        shown,
        [
            line(1, "create_api_key"),
            line(2, "update_api_key"),
            line(4, "deactivate_api_key")
        ]
    );
    for line in &lines {
        assert_eq!(
            (
                line.key_id.as_deref(),
                line.entity.as_deref(),
                line.revision
            ),
            (Some("actor"), Some("api_key"), None)
        );
    }
    assert_eq!(
        keys(store)
            .audit_log(&OwnerId::new("other"), at(0), 0, 100)
            .await
            .expect("read"),
        []
    );
}
behaviour!(what_is_done_to_a_key_stands_in_the_audit_log(store));

/// Lines of every kind are removed, for all owners. A change that is still in the feed stays.
async fn old_lines_leave_the_audit_log(store: &dyn Store) {
    let owners = ["first", "second"].map(OwnerId::new);
    for owner in &owners {
        for seconds in 1..=3 {
            entry(&seconds.to_string())
                .store_for(store, owner, seconds)
                .await;
            let denial = Denial {
                at: at(seconds),
                key_id: "k".to_owned(),
                operation: "delete_context".to_owned(),
                reason: "SCOPE_MISSING".to_owned(),
                attempts: 1,
            };
            let recorded = keys(store).record_denial(owner, denial).await;
            recorded.expect("written");
            let id = format!("{seconds} of {owner:?}");
            let made = event("create_api_key", &id, seconds);
            let inserted = keys(store).insert_key(key(&id, owner, seconds), made);
            inserted.await.expect("stored");
        }
    }
    let all_but_the_newest = Retention {
        before: at(1000),
        max_rows: 1,
    };
    while store
        .changes()
        .compact(all_but_the_newest)
        .await
        .expect("compacted")
        > 0
    {}
    let times = async |owner: &OwnerId| {
        let lines = keys(store).audit_log(owner, at(0), 0, 100).await;
        let lines = lines.expect("read");
        lines.iter().map(|line| line.at).collect::<Vec<_>>()
    };
    let remove = async |seconds| {
        let mut removed = 0;
        loop {
            match keys(store)
                .remove_audit_lines(at(seconds))
                .await
                .expect("removed")
            {
                0 => return removed,
                more => removed += more,
            }
        }
    };
    assert_eq!(remove(1).await, 0);
    assert_eq!(remove(3).await, 2 * 2 * 3);
    for owner in &owners {
        assert_eq!(times(owner).await, [at(3); 3]);
    }
    assert_eq!(remove(4).await, 2 * 2);
    for owner in &owners {
        // The change that is still in the feed.
        assert_eq!(times(owner).await, [at(3)]);
        assert_eq!(keys(store).list_keys(owner).await.expect("read").len(), 3);
    }
}
behaviour!(old_lines_leave_the_audit_log(store));

/// Either both keys change or neither does. A key can be replaced only once.
async fn a_key_is_replaced_in_one_transaction(store: &dyn Store) {
    insert(store, key("old", &me(), 1)).await;
    let events = || {
        vec![
            event("rotate_api_key", "old", 2),
            event("create_api_key", "new", 2),
        ]
    };
    let other = OwnerId::new("other");
    assert!(
        !keys(store)
            .replace_key("old", key("new", &other, 2), events())
            .await
            .expect("no failure"),
        "another owner's"
    );
    let taken = keys(store)
        .replace_key("old", key("old", &me(), 2), events())
        .await;
    assert!(taken.is_err(), "there is such a key");
    let listed = keys(store).list_keys(&me()).await.expect("listed");
    assert_eq!(listed, [key("old", &me(), 1)], "nothing changed");
    assert!(
        keys(store)
            .replace_key("old", key("new", &me(), 2), events())
            .await
            .expect("replaced")
    );
    assert!(
        !keys(store)
            .replace_key("old", key("newer", &me(), 3), events())
            .await
            .expect("no failure"),
        "it is off"
    );
    let listed = keys(store).list_keys(&me()).await.expect("listed");
    let shown: Vec<_> = listed
        .iter()
        .map(|key| (key.id.as_str(), key.deactivated_at))
        .collect();
    assert_eq!(shown, [("new", None), ("old", Some(at(2)))]);
    let lines = keys(store)
        .audit_log(&me(), at(2), 0, 100)
        .await
        .expect("read");
    let shown: Vec<_> = lines
        .iter()
        .map(|line| (line.operation.as_str(), line.entity_id.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ("create_api_key", Some("new")),
            ("rotate_api_key", Some("old"))
        ]
    );
}
behaviour!(a_key_is_replaced_in_one_transaction(store));

/// A digest identifies a key, and never changes.
async fn a_key_without_a_digest_gets_one_once(store: &dyn Store) {
    insert(
        store,
        StoredKey {
            digest: None,
            ..key("k", &me(), 1)
        },
    )
    .await;
    for digest in ["first", "second"] {
        keys(store)
            .store_digest(&me(), "k", digest, at(2))
            .await
            .expect("stored");
    }
    keys(store)
        .store_digest(&OwnerId::new("nobody"), "k", "third", at(3))
        .await
        .expect("no one has such a key");
    let found = keys(store).keys_by_lookup([7; 32]).await.expect("read");
    assert_eq!(
        found
            .iter()
            .map(|key| key.digest.as_deref())
            .collect::<Vec<_>>(),
        [Some("first")]
    );
    assert_eq!(keys(store).list_owners().await.expect("listed").len(), 1);
}
behaviour!(a_key_without_a_digest_gets_one_once(store));

/// The list is newest first.
async fn active_keys_are_listed_over_all_owners(store: &dyn Store) {
    for (id, owner, seconds) in [
        ("a", me(), 1),
        ("b", OwnerId::new("other"), 2),
        ("c", me(), 3),
    ] {
        insert(store, key(id, &owner, seconds)).await;
    }
    insert(
        store,
        StoredKey {
            deactivated_at: Some(at(5)),
            ..key("off", &me(), 4)
        },
    )
    .await;
    let ids = |listed: Vec<StoredKey>| listed.into_iter().map(|key| key.id).collect::<Vec<_>>();
    assert_eq!(
        ids(keys(store).active_keys(10).await.expect("listed")),
        ["c", "b", "a"]
    );
    assert_eq!(
        ids(keys(store).active_keys(2).await.expect("listed")),
        ["c", "b"]
    );
}
behaviour!(active_keys_are_listed_over_all_owners(store));
