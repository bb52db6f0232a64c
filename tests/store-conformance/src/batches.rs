//! The effect of `atomic`.

use context_model::Reason;
use context_store::{Store, StoreError};

use crate::arrange::*;
use crate::suite::behaviour;

/// The error names the first bad item, and no item is applied.
async fn an_atomic_batch_is_all_or_nothing(store: &dyn Store) {
    let id = entry("x").tags(&["a"]).store(store, 0).await.id;
    let updates = vec![
        update(id).text("y").tags(&["b"]).0,
        update(id + 1).text("z").0,
        update(id + 2).text("z").0,
    ];
    match store
        .update_contexts(&me(), updates, true, options(1))
        .await
    {
        Err(StoreError::Item { index: 1, error }) => {
            assert_eq!(error.reason, Reason::ContextNotFound)
        }
        other => panic!("{other:?}"),
    }
    let found = get_one(store, id).await;
    assert_eq!((found.text.as_str(), found.version), ("x", 1));
    assert_eq!(found.tags, ["a"]);
    assert_eq!(revision(store).await, 1);
}
behaviour!(an_atomic_batch_is_all_or_nothing(store));

/// Good items are applied. Each bad item has its own error.
async fn without_atomic_each_item_stands_alone(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    let updates = vec![
        update(id + 1).text("y").0,
        update(id).text("y").0,
        update(id).text("z").expecting(1).0,
        update(id).text("w").expecting(2).0,
    ];
    let written = store
        .update_contexts(&me(), updates, false, options(1))
        .await
        .expect("the batch works");
    let reasons: Vec<Option<Reason>> = written
        .outcome
        .items
        .iter()
        .map(|item| item.as_ref().err().map(|e| e.0.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            Some(Reason::ContextNotFound),
            None,
            Some(Reason::VersionMismatch),
            None
        ]
    );
    assert_eq!(written.revision, 3);
    let found = get_one(store, id).await;
    assert_eq!((found.text.as_str(), found.version), ("w", 3));
}
behaviour!(without_atomic_each_item_stands_alone(store));

/// Items run in order: the second update of an entry builds on the first.
async fn items_see_the_items_before_them(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    let updates = vec![
        update(id).text("y").expecting(1).0,
        update(id).tags(&["a"]).expecting(2).0,
    ];
    let written = store
        .update_contexts(&me(), updates, true, options(1))
        .await
        .expect("updated");
    assert_eq!(
        applied(&written.outcome)
            .iter()
            .map(|o| o.version)
            .collect::<Vec<_>>(),
        [2, 3]
    );
    let batch = (0..100).map(|i| entry(&i.to_string()).0).collect();
    let written = store
        .store_contexts(&me(), batch, true, options(2))
        .await
        .expect("stored");
    assert_eq!(written.revision, 103);
    let ids: Vec<i64> = applied(&written.outcome).iter().map(|o| o.id).collect();
    assert!(
        ids.is_sorted_by(|one, next| one < next) && ids[0] > id,
        "{ids:?}"
    );
}
behaviour!(items_see_the_items_before_them(store));

/// Threads, tags, statistics and the full-text index are unchanged.
async fn an_atomic_batch_that_failed_leaves_no_trace(store: &dyn Store) {
    let id = entry("before")
        .tags(&["a"])
        .images(&[b"1"])
        .store(store, 0)
        .await
        .id;
    let before = store
        .statistics(&me(), None, now())
        .await
        .expect("statistics");
    let threads_before = threads(store).await;
    let updates = vec![
        update(id).text("after").tags(&["b", "c"]).images(&[]).0,
        update(999).text("z").0,
    ];
    let updated = store
        .update_contexts(&me(), updates, true, options(1))
        .await;
    assert_eq!(reason(updated), Reason::ContextNotFound);
    let after = store
        .statistics(&me(), None, now())
        .await
        .expect("statistics");
    assert_eq!(
        (after.unique_tags, after.total_images, after.by_content_type),
        (
            before.unique_tags,
            before.total_images,
            before.by_content_type
        )
    );
    assert_eq!(threads(store).await, threads_before);
    assert_eq!(
        super::full_text::found(store, "after").await,
        Vec::<String>::new()
    );
    assert_eq!(super::full_text::found(store, "before").await, ["before"]);
    assert!(
        entry("before").store(store, 2).await.duplicate,
        "the entry is still the newest of its thread"
    );
}
behaviour!(an_atomic_batch_that_failed_leaves_no_trace(store));
