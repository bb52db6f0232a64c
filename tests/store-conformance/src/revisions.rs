//! The owner's revision grows by one with each change.

use std::collections::BTreeSet;

use context_model::{Filter, Reason};
use context_store::{DeleteCriteria, OwnerId, Store};
use futures::future::join_all;

use crate::arrange::*;
use crate::suite::behaviour;

/// Each stored, updated or deleted entry is one change.
async fn each_change_counts_one(store: &dyn Store) {
    let written = store
        .store_contexts(
            &me(),
            ["a", "b", "c"].map(|t| entry(t).0).to_vec(),
            true,
            options(0),
        )
        .await
        .expect("stored");
    assert_eq!(written.revision, 3);
    let ids: Vec<i64> = applied(&written.outcome)
        .iter()
        .map(|outcome| outcome.id)
        .collect();
    let updates = ids[..2].iter().map(|&id| update(id).text("x").0).collect();
    assert_eq!(
        store
            .update_contexts(&me(), updates, true, options(1))
            .await
            .expect("updated")
            .revision,
        5
    );
    let criteria = DeleteCriteria {
        ids: Some(ids),
        ..DeleteCriteria::default()
    };
    assert_eq!(
        store
            .delete_contexts(&me(), criteria, options(2))
            .await
            .expect("deleted")
            .revision,
        8
    );
    let theirs = store
        .store_contexts(&OwnerId::new("other"), vec![entry("a").0], true, options(0))
        .await
        .expect("stored");
    assert_eq!(theirs.revision, 1, "each owner counts alone");
}
behaviour!(each_change_counts_one(store));

/// A read after a write never shows an older revision.
async fn reads_show_the_revision_of_the_write(store: &dyn Store) {
    for seconds in 0..5 {
        let written = store
            .store_contexts(
                &me(),
                vec![entry(&seconds.to_string()).0],
                true,
                options(seconds),
            )
            .await
            .expect("stored");
        let found = store
            .search_contexts(&me(), Filter::default(), page(100, 0), EVERYTHING, now())
            .await
            .expect("read");
        assert_eq!(found.revision, written.revision);
        assert_eq!(
            i64::try_from(found.entries.len()).expect("few"),
            found.revision
        );
        assert_eq!(
            store
                .statistics(&me(), None, now())
                .await
                .expect("read")
                .revision,
            written.revision
        );
    }
}
behaviour!(reads_show_the_revision_of_the_write(store));

/// Retransmits, deletes of unknown ids and rejected requests change nothing.
async fn a_write_that_changes_nothing_keeps_it(store: &dyn Store) {
    entry("x").store(store, 0).await;
    entry("x").store(store, 1).await;
    delete_ids(store, &[77]).await;
    assert_eq!(
        reason(update(77).text("y").apply(store, 2).await),
        Reason::ContextNotFound
    );
    assert_eq!(revision(store).await, 1);
}
behaviour!(a_write_that_changes_nothing_keeps_it(store));

/// No two writes get the same revision, and no revision is skipped.
async fn concurrent_writers_never_share_one(store: &dyn Store) {
    let writes = (0..40).map(|i| {
        let owner = me();
        async move {
            let new = vec![entry(&i.to_string()).thread(&format!("t{}", i % 5)).0];
            store
                .store_contexts(&owner, new, true, options(i))
                .await
                .expect("stored")
                .revision
        }
    });
    let revisions: BTreeSet<i64> = join_all(writes).await.into_iter().collect();
    assert_eq!(revisions, (1..=40).collect());
}
behaviour!(concurrent_writers_never_share_one(store));
