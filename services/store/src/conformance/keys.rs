//! Keys and owners.

use super::arrange::*;
use crate::{Denial, KeyChange, KeyStore, OwnerId, Store, StoredKey};

fn keys(store: &dyn Store) -> &dyn KeyStore {
    store.keys().expect("the database keeps keys")
}

fn key(id: &str, owner: &OwnerId, seconds: i64) -> StoredKey {
    StoredKey {
        id: id.to_owned(),
        owner: owner.clone(),
        name: "Ä key".to_owned(),
        lookup: [7; 32],
        hash: format!("hash of {id}"),
        scopes: vec!["read".to_owned(), "write".to_owned()],
        narrowing: "{}".to_owned(),
        created_at: at(seconds),
        expires_at: None,
        last_used_at: None,
        deactivated_at: None,
    }
}

/// Every field, also for an owner that has nothing else yet.
pub async fn a_key_reads_back_equal(store: &dyn Store) {
    let theirs = OwnerId::new("new owner");
    let made = StoredKey { expires_at: Some(at(9)), narrowing: "{\"only\":\"artifacts\"}".to_owned(), ..key("k1", &theirs, 1) };
    keys(store).insert_key(made.clone()).await.expect("stored");
    assert_eq!(keys(store).key(&theirs, "k1").await.expect("read"), Some(made.clone()));
    assert_eq!(keys(store).key(&me(), "k1").await.expect("read"), None, "an id alone tells nothing");
    assert_eq!(keys(store).keys_by_lookup([7; 32]).await.expect("read"), [made]);
    assert_eq!(keys(store).keys_by_lookup([8; 32]).await.expect("read"), []);
}

/// Newest first, and only the owner's own.
pub async fn keys_are_listed_by_owner(store: &dyn Store) {
    for (id, owner, seconds) in [("a", me(), 1), ("b", me(), 2), ("c", OwnerId::new("other"), 3)] {
        keys(store).insert_key(key(id, &owner, seconds)).await.expect("stored");
    }
    let listed = keys(store).list_keys(&me()).await.expect("listed");
    assert_eq!(listed.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(keys(store).keys_by_lookup([7; 32]).await.expect("read").len(), 3, "whoever brings a key has no owner yet");
}

/// What is not given stays; off is off, from the first moment on.
pub async fn a_key_changes_and_never_comes_back(store: &dyn Store) {
    keys(store).insert_key(key("k", &me(), 1)).await.expect("stored");
    let change = KeyChange { name: Some("new".to_owned()), expires_at: Some(Some(at(50))), ..KeyChange::default() };
    let changed = keys(store).update_key(&me(), "k", change, at(2)).await.expect("changed").expect("it exists");
    assert_eq!((changed.name.as_str(), changed.expires_at, changed.scopes.len()), ("new", Some(at(50)), 2));
    let change = KeyChange { scopes: Some(vec!["read".to_owned()]), expires_at: Some(None), ..KeyChange::default() };
    let changed = keys(store).update_key(&me(), "k", change, at(3)).await.expect("changed").expect("it exists");
    assert_eq!((changed.name.as_str(), changed.expires_at, changed.scopes.len()), ("new", None, 1));
    for seconds in [4, 5] {
        let off = KeyChange { deactivated_at: Some(at(seconds)), ..KeyChange::default() };
        let changed = keys(store).update_key(&me(), "k", off, at(seconds)).await.expect("changed").expect("it exists");
        assert_eq!(changed.deactivated_at, Some(at(4)));
    }
    keys(store).touch_key(&me(), "k", at(6)).await.expect("noted");
    assert_eq!(keys(store).key(&me(), "k").await.expect("read").expect("it exists").last_used_at, Some(at(6)));
    for (owner, id) in [(me(), "unknown"), (OwnerId::new("nobody"), "k")] {
        let change = KeyChange { name: Some("x".to_owned()), ..KeyChange::default() };
        assert_eq!(keys(store).update_key(&owner, id, change, at(7)).await.expect("asked"), None);
        keys(store).touch_key(&owner, id, at(7)).await.expect("nothing to note");
    }
    assert_eq!(revision(store).await, 0, "keys are no changes of entries");
}

/// With what belongs to them; asking about keys makes nobody.
pub async fn owners_are_counted(store: &dyn Store) {
    keys(store).create_owner(&OwnerId::new("b"), at(0)).await.expect("made");
    keys(store).create_owner(&OwnerId::new("b"), at(1)).await.expect("made already");
    keys(store).list_keys(&OwnerId::new("nobody")).await.expect("none");
    entry("x").store_for(store, &OwnerId::new("a"), 0).await;
    keys(store).insert_key(key("k", &OwnerId::new("a"), 1)).await.expect("stored");
    let off = StoredKey { deactivated_at: Some(at(2)), ..key("off", &OwnerId::new("a"), 1) };
    keys(store).insert_key(off).await.expect("stored");
    let owners = keys(store).list_owners().await.expect("listed");
    let counted: Vec<_> = owners.iter().map(|o| (o.owner.as_str(), o.contexts, o.artifacts, o.keys)).collect();
    assert_eq!(counted, [("a", 1, 0, 1), ("b", 0, 0, 0)]);
}

/// And of nobody else.
pub async fn an_erased_owner_has_nothing_left(store: &dyn Store) {
    let (gone, stays) = (OwnerId::new("gone"), OwnerId::new("stays"));
    for owner in [&gone, &stays] {
        entry("words").tags(&["tag"]).images(&[b"image"]).store_for(store, owner, 0).await;
        keys(store).insert_key(key(&format!("key of {}", owner.as_str()), owner, 1)).await.expect("stored");
        let denial = Denial { at: at(2), key_id: "k".into(), operation: "x".into(), reason: "SCOPE_MISSING".into(), attempts: 3 };
        keys(store).record_denial(owner, denial).await.expect("written");
    }
    let erased = keys(store).erase_owner(&gone, at(3)).await.expect("erased").expect("it existed");
    assert_eq!((erased.contexts, erased.keys), (1, 1));
    assert_eq!(keys(store).erase_owner(&gone, at(4)).await.expect("asked"), None);
    assert_eq!(keys(store).list_keys(&gone).await.expect("listed"), []);
    assert_eq!(keys(store).audit_log(&gone, at(0), 100).await.expect("read"), []);
    assert_eq!(store.list_threads(&gone, page(10, 0), now()).await.expect("listed").total, 0);
    assert_eq!(store.list_threads(&stays, page(10, 0), now()).await.expect("listed").total, 1);
    assert_eq!(keys(store).audit_log(&stays, at(0), 100).await.expect("read").len(), 2);
    entry("again").store_for(store, &gone, 5).await;
    assert_eq!(store.list_threads(&gone, page(10, 0), now()).await.expect("listed").total, 1);
}

/// Changes and refusals, oldest first, from a moment on.
pub async fn the_audit_log_has_changes_and_refusals(store: &dyn Store) {
    let id = entry("x").store(store, 1).await.id;
    let denial = |seconds| Denial {
        at: at(seconds),
        key_id: "k".to_owned(),
        operation: "delete_context".to_owned(),
        reason: "SCOPE_MISSING".to_owned(),
        attempts: 2,
    };
    keys(store).record_denial(&me(), denial(2)).await.expect("written");
    update(id).text("y").apply(store, 3).await.expect("updated");
    let lines = keys(store).audit_log(&me(), at(0), 100).await.expect("read");
    let shown: Vec<_> = lines.iter().map(|l| (l.operation.as_str(), l.outcome.as_str(), l.entity_id.clone(), l.attempts)).collect();
    let entity = Some(id.to_string());
    assert_eq!(shown, [("create", "OK", entity.clone(), 1), ("delete_context", "SCOPE_MISSING", None, 2), ("update", "OK", entity, 1)]);
    assert_eq!(keys(store).audit_log(&me(), at(2), 1).await.expect("read"), lines[1..2]);
    keys(store).record_denial(&OwnerId::new("nobody"), denial(4)).await.expect("nobody to write it for");
    assert_eq!(keys(store).list_owners().await.expect("listed").len(), 1);
}
