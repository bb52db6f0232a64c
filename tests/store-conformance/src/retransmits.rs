//! An agent that repeats a store because it never received the reply does not create a second entry.

use context_model::{Metadata, NewImage};
use context_store::Store;
use futures::future::join_all;
use serde_json::json;

use crate::arrange::*;
use crate::suite::behaviour;

/// The reply names the first entry, and nothing changes.
async fn the_same_entry_again_is_not_stored_twice(store: &dyn Store) {
    let given = entry("x")
        .tags(&["a"])
        .metadata(json!({"k": [1, null]}))
        .images(&[b"1"]);
    let first = given.clone().store(store, 0).await;
    let before = revision(store).await;
    let again = given.store(store, 9).await;
    assert_eq!(
        (again.id, again.version, again.duplicate),
        (first.id, 1, true)
    );
    assert_eq!(revision(store).await, before);
    let found = all(store).await;
    assert_eq!((found.len(), found[0].updated_at), (1, at(0)));
}
behaviour!(the_same_entry_again_is_not_stored_twice(store));

/// A repeat without tags, metadata and images equals an entry that has them.
async fn a_field_not_given_is_not_compared(store: &dyn Store) {
    let first = entry("x")
        .tags(&["a"])
        .metadata(json!({"k": 1}))
        .images(&[b"1"])
        .store(store, 0)
        .await;
    let again = entry("x").store(store, 0).await;
    assert_eq!((again.id, again.duplicate), (first.id, true));
}
behaviour!(a_field_not_given_is_not_compared(store));

/// The fields are text, tags and metadata.
async fn a_given_field_that_differs_makes_a_new_entry(store: &dyn Store) {
    entry("x")
        .tags(&["a"])
        .metadata(json!({"k": 1}))
        .store(store, 0)
        .await;
    for (i, different) in [
        entry("x").tags(&["a", "b"]),
        entry("x").tags(&["a", "b"]).metadata(json!({"k": 1})),
        entry("x").metadata(json!({"k": "1"})),
        entry("x").metadata(json!({"k": "1", "l": null})),
        entry("X"),
        entry("X "),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(!different.store(store, 0).await.duplicate, "{i}");
    }
    assert_eq!(all(store).await.len(), 7);
}
behaviour!(a_given_field_that_differs_makes_a_new_entry(store));

/// An absent list is not an empty one.
async fn an_empty_list_differs_from_a_stored_one(store: &dyn Store) {
    for (thread, empty) in [
        ("tags", entry("x").tags(&[])),
        ("metadata", entry("x").metadata(json!({}))),
        ("images", entry("x").images(&[])),
    ] {
        entry("x")
            .thread(thread)
            .tags(&["a"])
            .metadata(json!({"k": 1}))
            .images(&[b"1"])
            .store(store, 0)
            .await;
        let stored = empty.thread(thread).store(store, 0).await;
        assert!(!stored.duplicate, "{thread}");
        let all_empty = entry("x").tags(&[]).metadata(json!({})).images(&[]);
        let again = all_empty.thread(thread).store(store, 0).await;
        assert!(again.duplicate, "{thread}: and equals an empty one");
    }
}
behaviour!(an_empty_list_differs_from_a_stored_one(store));

/// JSON objects have no order.
async fn the_order_of_metadata_keys_does_not_matter(store: &dyn Store) {
    entry("x")
        .metadata(json!({"a": 1, "b": {"c": 2, "d": 3}}))
        .store(store, 0)
        .await;
    assert!(
        entry("x")
            .metadata(json!({"b": {"d": 3, "c": 2}, "a": 1}))
            .store(store, 0)
            .await
            .duplicate
    );
}
behaviour!(the_order_of_metadata_keys_does_not_matter(store));

/// "yes" after the agent's question is a new entry.
async fn another_source_in_between_makes_a_new_entry(store: &dyn Store) {
    entry("yes").store(store, 0).await;
    entry("sure?").agent().store(store, 1).await;
    assert!(!entry("yes").store(store, 2).await.duplicate);
}
behaviour!(another_source_in_between_makes_a_new_entry(store));

/// Only the newest entry is compared.
async fn another_text_in_between_makes_a_new_entry(store: &dyn Store) {
    entry("a").store(store, 0).await;
    entry("b").store(store, 1).await;
    assert!(!entry("a").store(store, 2).await.duplicate);
}
behaviour!(another_text_in_between_makes_a_new_entry(store));

/// The same text in another thread or from another source is another entry.
async fn other_threads_and_sources_are_not_compared(store: &dyn Store) {
    entry("x").store(store, 0).await;
    assert!(
        !entry("x").thread("T").store(store, 0).await.duplicate,
        "threads keep their case"
    );
    assert!(!entry("x").agent().store(store, 0).await.duplicate);
}
behaviour!(other_threads_and_sources_are_not_compared(store));

/// Bytes, type, metadata, number and order of images are compared.
async fn equal_images_collapse_and_different_ones_do_not(store: &dyn Store) {
    entry("x").images(&[b"1", b"2"]).store(store, 0).await;
    assert!(
        entry("x")
            .images(&[b"1", b"2"])
            .store(store, 0)
            .await
            .duplicate
    );
    assert!(
        !entry("x")
            .images(&[b"2", b"1"])
            .store(store, 0)
            .await
            .duplicate
    );
    assert!(!entry("x").images(&[b"2"]).store(store, 0).await.duplicate);
    let changes: [fn(&mut NewImage); 2] = [
        |image| image.mime_type = "image/gif".to_owned(),
        |image| image.metadata = Some(Metadata::from_stored(object(json!({"k": 1})))),
    ];
    let mut changed = entry("x").images(&[b"2"]);
    for change in changes {
        changed.0.images.iter_mut().flatten().for_each(change);
        assert!(!changed.clone().store(store, 0).await.duplicate);
        assert!(changed.clone().store(store, 0).await.duplicate);
    }
}
behaviour!(equal_images_collapse_and_different_ones_do_not(store));

/// The rule applies to each item, and compares it also with the items before it.
async fn repeats_inside_a_batch_collapse(store: &dyn Store) {
    let batch = ["a", "a", "b", "a"].map(|text| entry(text).0).to_vec();
    let written = store
        .store_contexts(&me(), batch, true, options(0))
        .await
        .expect("stored");
    let outcomes = applied(&written.outcome);
    assert_eq!(
        outcomes.iter().map(|o| o.duplicate).collect::<Vec<_>>(),
        [false, true, false, false]
    );
    assert_eq!(outcomes[0].id, outcomes[1].id);
    assert_eq!(written.revision, 3);
}
behaviour!(repeats_inside_a_batch_collapse(store));

/// The comparison uses the newest entry as it is now.
async fn the_comparison_follows_deletes_and_updates(store: &dyn Store) {
    let a = entry("a").store(store, 0).await.id;
    let b = entry("b").store(store, 1).await.id;
    delete_ids(store, &[b]).await;
    assert_eq!(
        entry("a").store(store, 2).await.id,
        a,
        "a is the newest again"
    );
    update(a).text("c").apply(store, 3).await.expect("updated");
    let again = entry("c").store(store, 4).await;
    assert_eq!((again.id, again.version, again.duplicate), (a, 2, true));
    assert!(!entry("a").store(store, 5).await.duplicate, "a is no more");
}
behaviour!(the_comparison_follows_deletes_and_updates(store));

/// Retransmits may come on any number of connections.
async fn of_many_at_once_one_is_stored(store: &dyn Store) {
    let outcomes = join_all((0..20).map(|_| entry("x").tags(&["a"]).store(store, 0))).await;
    assert_eq!(
        outcomes.iter().filter(|outcome| !outcome.duplicate).count(),
        1
    );
    assert!(outcomes.iter().all(|outcome| outcome.id == outcomes[0].id));
}
behaviour!(of_many_at_once_one_is_stored(store));
