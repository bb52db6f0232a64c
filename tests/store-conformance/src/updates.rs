//! Updates change only the given fields.

use context_model::{ContentType, Metadata, ObjectText, Reason};
use context_store::{OwnerId, Store};
use serde_json::json;

use crate::arrange::*;
use crate::suite::behaviour;

/// Fields are changed one at a time.
async fn only_what_is_given_changes(store: &dyn Store) {
    let id = entry("x")
        .agent()
        .tags(&["a"])
        .metadata(json!({"k": 1}))
        .images(&[b"1"])
        .store(store, 0)
        .await
        .id;
    let before = get_one(store, id).await;
    let written = update(id).text("y").apply(store, 1).await.expect("updated");
    assert_eq!(applied(&written.outcome)[0].version, 2);
    let mut expected = before;
    "y".clone_into(&mut expected.text);
    (expected.version, expected.updated_at) = (2, at(1));
    assert_eq!(get_one(store, id).await, expected);

    update(id)
        .tags(&["c", "b"])
        .apply(store, 2)
        .await
        .expect("updated");
    expected.tags = vec!["b".to_owned(), "c".to_owned()];
    (expected.version, expected.updated_at) = (3, at(2));
    assert_eq!(get_one(store, id).await, expected);

    update(id)
        .metadata(json!({"new": [true]}))
        .apply(store, 3)
        .await
        .expect("updated");
    expected.metadata = ObjectText::from(&object(json!({"new": [true]})));
    (expected.version, expected.updated_at) = (4, at(3));
    assert_eq!(get_one(store, id).await, expected);

    update(id)
        .images(&[b"2", b"3"])
        .apply(store, 4)
        .await
        .expect("updated");
    let found = get_one(store, id).await;
    let bytes: Vec<Vec<u8>> = found
        .images
        .clone()
        .expect("selected")
        .into_iter()
        .map(|image| image.data.0)
        .collect();
    assert_eq!(bytes, [b"2", b"3"]);
    assert_eq!(
        (found.text, found.tags, found.metadata),
        (expected.text, expected.tags, expected.metadata)
    );
}
behaviour!(only_what_is_given_changes(store));

/// An empty list is a value, unlike an absent one. An update of the images also updates the content type.
async fn empty_lists_clear_tags_and_images(store: &dyn Store) {
    let id = entry("x")
        .tags(&["a"])
        .images(&[b"1"])
        .store(store, 0)
        .await
        .id;
    update(id)
        .tags(&[])
        .images(&[])
        .apply(store, 1)
        .await
        .expect("updated");
    let found = get_one(store, id).await;
    assert!(found.tags.is_empty());
    assert_eq!(
        (found.content_type, found.images),
        (ContentType::Text, Some(Vec::new()))
    );
    update(id)
        .images(&[b"1"])
        .apply(store, 2)
        .await
        .expect("updated");
    assert_eq!(
        get_one(store, id).await.content_type,
        ContentType::Multimodal
    );
}
behaviour!(empty_lists_clear_tags_and_images(store));

/// Version, revision and time grow even if the values stay the same, and even if the clock stands still or goes back.
async fn every_update_counts(store: &dyn Store) {
    let id = entry("x").tags(&["a"]).store(store, 5).await.id;
    let mut last = get_one(store, id).await;
    for seconds in [5, 5, 1] {
        let before = revision(store).await;
        let written = update(id)
            .text("x")
            .tags(&["a"])
            .apply(store, seconds)
            .await
            .expect("updated");
        assert_eq!(written.revision, before + 1);
        let found = get_one(store, id).await;
        assert_eq!(found.version, last.version + 1);
        assert!(
            found.updated_at > last.updated_at,
            "{} then {}",
            last.updated_at,
            found.updated_at
        );
        assert_eq!(found.created_at, at(5));
        last = found;
    }
}
behaviour!(every_update_counts(store));

/// Ids that no entry can have are not found either.
async fn an_unknown_id_is_not_found(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    for unknown in [id + 1, i64::MAX, (1 << 53) - 1, 1 << 40] {
        assert_eq!(
            reason(update(unknown).text("y").apply(store, 1).await),
            Reason::ContextNotFound,
            "{unknown}"
        );
    }
    assert_eq!(revision(store).await, 1);
}
behaviour!(an_unknown_id_is_not_found(store));

/// When the entry has changed meanwhile, nothing is written.
async fn a_stale_version_changes_nothing(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    update(id).text("y").apply(store, 1).await.expect("updated");
    let before = get_one(store, id).await;
    for stale in [1, 3, 0, -1] {
        assert_eq!(
            reason(update(id).text("z").expecting(stale).apply(store, 2).await),
            Reason::VersionMismatch,
            "{stale}"
        );
    }
    assert_eq!(get_one(store, id).await, before);
    assert_eq!(revision(store).await, 2);
}
behaviour!(a_stale_version_changes_nothing(store));

/// After an update, the next one must expect the new version.
async fn the_right_version_is_accepted(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    for version in 1..4 {
        update(id)
            .text("y")
            .expecting(version)
            .apply(store, 1)
            .await
            .expect("updated");
    }
    assert_eq!(get_one(store, id).await.version, 4);
}
behaviour!(the_right_version_is_accepted(store));

/// RFC 7396: null deletes, objects merge, everything else replaces.
async fn a_patch_merges_recursively(store: &dyn Store) {
    let id = entry("x")
        .metadata(json!({"a": "b", "c": {"d": "e", "f": "g"}, "l": [1]}))
        .store(store, 0)
        .await
        .id;
    update(id)
        .patch(json!({"a": "z", "c": {"f": null}, "l": [{"n": null}]}))
        .apply(store, 1)
        .await
        .expect("updated");
    let found = get_one(store, id).await.metadata;
    assert_eq!(
        json!(found),
        json!({"a": "z", "c": {"d": "e"}, "l": [{"n": null}]})
    );
}
behaviour!(a_patch_merges_recursively(store));

/// The limit applies to the result of the patch.
async fn a_patch_that_breaks_a_limit_changes_nothing(store: &dyn Store) {
    let half = "x".repeat(Metadata::MAX_BYTES / 2);
    let id = entry("x")
        .metadata(json!({ "a": half }))
        .store(store, 0)
        .await
        .id;
    assert_eq!(
        reason(
            update(id)
                .text("y")
                .patch(json!({ "b": half }))
                .apply(store, 1)
                .await
        ),
        Reason::InvalidArgument
    );
    let found = get_one(store, id).await;
    assert_eq!(
        (found.text.as_str(), found.version, json!(found.metadata)),
        ("x", 1, json!({ "a": half }))
    );
}
behaviour!(a_patch_that_breaks_a_limit_changes_nothing(store));

/// Another owner's entry is not found.
async fn another_owner_cannot_update(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    let theirs = OwnerId::new("other");
    let result = store
        .update_contexts(&theirs, vec![update(id).text("y").0], true, options(1))
        .await;
    assert_eq!(reason(result), Reason::ContextNotFound);
    assert_eq!(get_one(store, id).await.text, "x");
}
behaviour!(another_owner_cannot_update(store));
