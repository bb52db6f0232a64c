//! A retry with the same key has no second effect.

use context_model::{Error, Filter, Reason};
use context_store::{DeleteCriteria, OwnerId, Store};

use crate::arrange::*;
use crate::suite::behaviour;

/// A repeated store, update or delete changes nothing, even when the thread has a new entry since.
async fn a_repeated_request_gets_the_first_outcome(store: &dyn Store) {
    let new = || vec![entry("x").0];
    let first = store
        .store_contexts(&me(), new(), true, with_key(0, "k1", 1))
        .await
        .expect("stored");
    let id = applied(&first.outcome)[0].id;
    entry("y").store(store, 1).await;
    let again = store
        .store_contexts(&me(), new(), true, with_key(2, "k1", 1))
        .await
        .expect("repeated");
    assert_eq!(again, first);

    let change = || vec![update(id).text("z").0];
    let first = store
        .update_contexts(&me(), change(), true, with_key(3, "k2", 2))
        .await
        .expect("updated");
    assert_eq!(
        store
            .update_contexts(&me(), change(), true, with_key(4, "k2", 2))
            .await
            .expect("repeated"),
        first
    );
    assert_eq!(get_one(store, id).await.version, 2);

    let criteria = || DeleteCriteria {
        ids: Some(vec![id]),
        ..DeleteCriteria::default()
    };
    let first = store
        .delete_contexts(&me(), criteria(), with_key(5, "k3", 3))
        .await
        .expect("deleted");
    assert_eq!(first.outcome, 1);
    assert_eq!(
        store
            .delete_contexts(&me(), criteria(), with_key(6, "k3", 3))
            .await
            .expect("repeated"),
        first
    );
    assert_eq!(texts(&all(store).await), ["y"]);
}
behaviour!(a_repeated_request_gets_the_first_outcome(store));

/// The stored outcome includes the items that were rejected before the write. So each item of a repeated request has
/// its first outcome, even if other items were rejected before the write this time, or all of them.
async fn a_repeated_batch_gets_the_items_that_were_rejected_before_it(store: &dyn Store) {
    let keyed = |seconds, rejected: &[usize]| {
        let mut options = with_key(seconds, "k", 1);
        let rejected: Vec<(usize, Error)> = rejected
            .iter()
            .map(|index| (*index, Error::context_not_found(7)))
            .collect();
        options.reject(&rejected);
        options
    };
    let entries = || vec![entry("x").0, entry("y").0];
    let first = store
        .store_contexts(&me(), entries(), false, keyed(0, &[0, 2]))
        .await
        .expect("stored");
    assert_eq!(first.outcome.items.len(), 2);
    for (repeated, rejected) in [(entries(), vec![0, 2]), (Vec::new(), vec![0, 1, 2, 3])] {
        let again = store
            .store_contexts(&me(), repeated, false, keyed(1, &rejected))
            .await
            .expect("repeated");
        assert_eq!(again.revision, first.revision);
        let items = &again.outcome.items;
        let messages: Vec<_> = items
            .iter()
            .map(|item| item.as_ref().err().map(|error| error.0.message.clone()))
            .collect();
        let rejected = Some(Error::context_not_found(7).message);
        assert_eq!(messages, [rejected.clone(), None, rejected, None]);
        let stored: Vec<_> = items.iter().filter(|item| item.is_ok()).cloned().collect();
        assert_eq!(stored, first.outcome.items);
    }
}
behaviour!(a_repeated_batch_gets_the_items_that_were_rejected_before_it(store));

/// When every item was rejected before the write, the empty batch stores its outcome and changes nothing else.
async fn an_empty_batch_stores_its_outcome(store: &dyn Store) {
    entry("x").store(store, 0).await;
    let keyed = |seconds, key: &str| {
        let mut options = with_key(seconds, key, 1);
        options.reject(&[(0, Error::context_not_found(7))]);
        options
    };
    for again in [false, true] {
        let stored = store
            .store_contexts(&me(), Vec::new(), false, keyed(1, "store"))
            .await
            .expect("stored");
        let updated = store
            .update_contexts(&me(), Vec::new(), false, keyed(2, "update"))
            .await
            .expect("updated");
        // The stored outcome has the rejected item, which the caller of the first request adds by itself.
        for written in [stored, updated] {
            assert_eq!(written.outcome.items.len(), usize::from(again));
            assert_eq!(written.revision, 1, "an empty batch changes nothing");
        }
    }
    for key in ["store", "update"] {
        let other = store
            .store_contexts(&me(), vec![entry("y").0], true, with_key(3, key, 2))
            .await;
        assert_eq!(reason(other), Reason::IdempotencyKeyReused);
    }
    assert_eq!(texts(&all(store).await), ["x"]);
}
behaviour!(an_empty_batch_stores_its_outcome(store));

/// A key with another request is rejected, whatever the request would have done.
async fn another_request_with_the_key_is_refused(store: &dyn Store) {
    store
        .store_contexts(&me(), vec![entry("x").0], true, with_key(0, "k", 1))
        .await
        .expect("stored");
    let other = store
        .store_contexts(&me(), vec![entry("y").0], true, with_key(1, "k", 2))
        .await;
    assert_eq!(reason(other), Reason::IdempotencyKeyReused);
    let criteria = DeleteCriteria {
        ids: Some(vec![1]),
        ..DeleteCriteria::default()
    };
    assert_eq!(
        reason(
            store
                .delete_contexts(&me(), criteria, with_key(2, "k", 3))
                .await
        ),
        Reason::IdempotencyKeyReused
    );
    assert_eq!(texts(&all(store).await), ["x"]);
}
behaviour!(another_request_with_the_key_is_refused(store));

/// The key stays free for the corrected request.
async fn a_failed_request_records_nothing(store: &dyn Store) {
    let bad = store
        .update_contexts(
            &me(),
            vec![update(9).text("x").0],
            true,
            with_key(0, "k", 1),
        )
        .await;
    assert_eq!(reason(bad), Reason::ContextNotFound);
    store
        .store_contexts(&me(), vec![entry("x").0], true, with_key(1, "k", 2))
        .await
        .expect("stored");
}
behaviour!(a_failed_request_records_nothing(store));

/// Two owners may use the same key.
async fn keys_belong_to_an_owner(store: &dyn Store) {
    store
        .store_contexts(&me(), vec![entry("x").0], true, with_key(0, "k", 1))
        .await
        .expect("stored");
    // With another request, and with an equal one.
    for (owner, hash) in [("other", 2), ("third", 1)] {
        let owner = OwnerId::new(owner);
        store
            .store_contexts(&owner, vec![entry("y").0], true, with_key(0, "k", hash))
            .await
            .expect("stored too");
        let filter = Filter::default();
        let found = store
            .search_contexts(&owner, filter, page(10, 0), EVERYTHING, now())
            .await
            .expect("read");
        assert_eq!(texts(&found.entries), ["y"]);
    }
}
behaviour!(keys_belong_to_an_owner(store));

/// The day is measured by the service's clock, not by the database's.
async fn keys_expire_after_a_day(store: &dyn Store) {
    const DAY: i64 = 24 * 60 * 60;
    store
        .store_contexts(&me(), vec![entry("x").0], true, with_key(0, "k", 1))
        .await
        .expect("stored");
    let within = store
        .store_contexts(&me(), vec![entry("y").0], true, with_key(DAY - 1, "k", 2))
        .await;
    assert_eq!(reason(within), Reason::IdempotencyKeyReused);
    store
        .store_contexts(&me(), vec![entry("y").0], true, with_key(DAY, "k", 2))
        .await
        .expect("the key is free again");
    assert_eq!(texts(&all(store).await), ["y", "x"]);
}
behaviour!(keys_expire_after_a_day(store));

/// A batch that is not atomic returns its items' errors again.
async fn failures_of_items_are_repeated_too(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    let changes = || vec![update(id).text("y").0, update(99).text("z").0];
    let first = store
        .update_contexts(&me(), changes(), false, with_key(1, "k", 1))
        .await
        .expect("works");
    let again = store
        .update_contexts(&me(), changes(), false, with_key(2, "k", 1))
        .await
        .expect("repeated");
    assert_eq!(again, first);
    assert_eq!(
        again.outcome.items[1]
            .as_ref()
            .expect_err("unknown")
            .0
            .reason,
        Reason::ContextNotFound
    );
}
behaviour!(failures_of_items_are_repeated_too(store));

/// The engine can ask whether an outcome is stored before it repeats a write, so that no other check rejects the retry.
async fn a_stored_outcome_is_known_and_counted(store: &dyn Store) {
    const DAY: i64 = 24 * 60 * 60;
    let other = OwnerId::new("other");
    let recorded = async |owner: &OwnerId, key: &str, seconds| {
        let key = with_key(seconds, key, 1).idempotency.expect("a key");
        store
            .is_recorded(owner, &key, at(seconds))
            .await
            .expect("read")
    };
    assert!(!recorded(&me(), "k", 0).await);
    assert_eq!(store.recorded_bytes(&me(), at(0)).await.expect("read"), 0);
    store
        .store_contexts(&me(), vec![entry("x").0], true, with_key(0, "k", 1))
        .await
        .expect("stored");
    let one = store.recorded_bytes(&me(), at(1)).await.expect("read");
    assert!((129..1_000).contains(&one), "{one}");
    let usage = store.usage(&me()).await.expect("read").bytes;
    assert!(usage > one, "they are part of what the owner has");
    store
        .store_contexts(&me(), vec![entry("y").0], true, with_key(1, "l", 2))
        .await
        .expect("stored");
    assert_eq!(
        store.recorded_bytes(&me(), at(2)).await.expect("read"),
        2 * one
    );
    assert_eq!(store.recorded_bytes(&other, at(2)).await.expect("read"), 0);
    assert!(
        recorded(&me(), "k", 2).await
            && !recorded(&other, "k", 2).await
            && !recorded(&me(), "m", 2).await
    );
    assert!(
        !recorded(&me(), "k", DAY).await && recorded(&me(), "l", DAY).await,
        "after a day it is forgotten"
    );
    assert_eq!(
        store.recorded_bytes(&me(), at(DAY)).await.expect("read"),
        one
    );
}
behaviour!(a_stored_outcome_is_known_and_counted(store));
