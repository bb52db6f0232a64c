//! The feed of changes: every committed change of an owner, in order, with the end of each commit.

use std::pin::pin;

use context_model::{
    ArtifactId, ArtifactPath, ArtifactUpdate, ContentChange, Metadata, NewArtifact, PathChange,
    Source,
};
use context_store::{
    ArtifactRestore, Change, ChangeKind, Changed, DeleteCriteria, Feed, OwnerId, Read, Retention,
    Store, Subscription, WriteOptions,
};
use context_test_support::until;
use futures::poll;

use crate::arrange::*;
use crate::suite::behaviour;

async fn feed(store: &dyn Store, owner: &OwnerId, from: i64, limit: u32) -> Feed {
    store
        .changes()
        .feed(owner, from, limit, Read::default())
        .await
        .expect("the feed is read")
}

fn of_entry(change: &Change) -> (i64, ChangeKind, i64, &str, Option<Source>, Option<i64>) {
    match &change.changed {
        Changed::Context {
            id,
            thread_id,
            source,
        } => (
            change.revision,
            change.kind,
            *id,
            thread_id,
            *source,
            change.version,
        ),
        Changed::Artifact { id } => panic!("{id} is an artifact"),
    }
}

/// Thread and source are also known after the entry was deleted.
async fn each_change_of_an_entry_is_in_the_feed(store: &dyn Store) {
    let id = entry("a").thread("x").agent().store(store, 0).await.id;
    update(id).text("b").apply(store, 1).await.expect("updated");
    delete_ids(store, &[id]).await;
    let found = feed(store, &me(), 1, 10).await;
    let agent = Some(Source::Agent);
    assert_eq!(
        found.changes.iter().map(of_entry).collect::<Vec<_>>(),
        [
            (1, ChangeKind::Create, id, "x", agent, Some(1)),
            (2, ChangeKind::Update, id, "x", agent, Some(2)),
            (3, ChangeKind::Delete, id, "x", agent, Some(2)),
        ]
    );
    assert_eq!((found.revision, found.oldest), (3, 1));
    assert_eq!(found.changes[0].at, at(0));
    assert_eq!(found.changes[0].key_id.as_deref(), Some("key-1"));
}
behaviour!(each_change_of_an_entry_is_in_the_feed(store));

/// A batch and a delete of several entries are one commit each.
async fn the_last_change_of_a_commit_ends_it(store: &dyn Store) {
    let batch = ["a", "b", "c"].map(|text| entry(text).0).to_vec();
    store
        .store_contexts(&me(), batch, true, options(0))
        .await
        .expect("stored");
    entry("d").store(store, 1).await;
    let all = DeleteCriteria {
        threads: Some(vec![context_model::ThreadId::from_stored("t".to_owned())]),
        ..DeleteCriteria::default()
    };
    store
        .delete_contexts(&me(), all, options(2))
        .await
        .expect("deleted");
    let found = feed(store, &me(), 1, 100).await;
    let ends: Vec<i64> = found
        .changes
        .iter()
        .filter(|change| change.commit_end)
        .map(|change| change.revision)
        .collect();
    assert_eq!(ends, [3, 4, 8]);
}
behaviour!(the_last_change_of_a_commit_ends_it(store));

/// An item that fails changes nothing, so the change before it ends the commit.
async fn an_item_that_fails_does_not_keep_a_commit_open(store: &dyn Store) {
    let id = entry("a").store(store, 0).await.id;
    let updates = vec![update(id).text("b").0, update(id + 99).text("c").0];
    store
        .update_contexts(&me(), updates, false, options(1))
        .await
        .expect("updated");
    let found = feed(store, &me(), 2, 10).await;
    assert_eq!(found.changes.len(), 1);
    assert!(found.changes[0].commit_end);
}
behaviour!(an_item_that_fails_does_not_keep_a_commit_open(store));

/// The page begins with the requested revision and has at most the requested number of changes.
async fn a_page_has_the_changes_from_a_revision_on(store: &dyn Store) {
    for seconds in 0..5 {
        entry(&seconds.to_string()).store(store, seconds).await;
    }
    let revisions =
        |found: &Feed| -> Vec<i64> { found.changes.iter().map(|change| change.revision).collect() };
    assert_eq!(revisions(&feed(store, &me(), 2, 3).await), [2, 3, 4]);
    assert_eq!(revisions(&feed(store, &me(), 5, 3).await), [5]);
    let beyond = feed(store, &me(), 6, 3).await;
    assert_eq!((revisions(&beyond), beyond.revision), (vec![], 5));
}
behaviour!(a_page_has_the_changes_from_a_revision_on(store));

/// Another owner's changes are in another feed.
async fn each_owner_has_a_feed_of_its_own(store: &dyn Store) {
    let other = OwnerId::new("other");
    assert_eq!(feed(store, &other, 1, 10).await, Feed::of_no_owner());
    entry("mine").store(store, 0).await;
    entry("theirs").store_for(store, &other, 0).await;
    entry("theirs, too").store_for(store, &other, 1).await;
    let (mine, theirs) = (
        feed(store, &me(), 1, 10).await,
        feed(store, &other, 1, 10).await,
    );
    assert_eq!((mine.changes.len(), theirs.changes.len()), (1, 2));
    assert!(!mine.incarnation.is_empty() && !theirs.incarnation.is_empty());
    assert_ne!(mine.incarnation, theirs.incarnation);
}
behaviour!(each_owner_has_a_feed_of_its_own(store));

/// A cursor from before the erasure must not fit the new feed, whose revisions begin again.
async fn an_owner_that_is_erased_and_created_again_has_another_incarnation(store: &dyn Store) {
    let owner = OwnerId::new("again");
    entry("a").store_for(store, &owner, 0).await;
    let before = feed(store, &owner, 1, 10).await;
    assert_eq!(
        feed(store, &owner, 1, 10).await.incarnation,
        before.incarnation
    );
    store
        .keys()
        .erase_owner(&owner, at(1))
        .await
        .expect("erased");
    entry("a").store_for(store, &owner, 2).await;
    let after = feed(store, &owner, 1, 10).await;
    assert_eq!(after.revision, 1);
    assert_ne!(after.incarnation, before.incarnation);
}
behaviour!(an_owner_that_is_erased_and_created_again_has_another_incarnation(store));

/// Changes of artifacts have no thread and no source.
async fn each_change_of_an_artifact_is_in_the_feed(store: &dyn Store) {
    let id = ArtifactId::parse("00000000-0000-7000-8000-000000000001").expect("an id");
    let new = NewArtifact {
        path: None,
        title: None,
        content: "text".to_owned(),
        metadata: Metadata::default(),
    };
    let artifacts = store.artifacts();
    let path = |path: &str| ArtifactPath::from_stored(path.to_owned());
    let unchanged = ArtifactUpdate {
        id,
        path: None,
        title: None,
        content: None,
        metadata: None,
        expected_version: None,
    };
    let created = artifacts.create_artifact(&me(), id, new, options(0)).await;
    created.expect("created");
    let content = ArtifactUpdate {
        content: Some(ContentChange::Replace("another text".to_owned())),
        ..unchanged.clone()
    };
    let updated = artifacts.update_artifact(&me(), content, options(1)).await;
    updated.expect("updated");
    let rename = ArtifactUpdate {
        path: Some(PathChange::Set(path("/a"))),
        ..unchanged
    };
    let renamed = artifacts.update_artifact(&me(), rename, options(2)).await;
    renamed.expect("renamed");
    let restore = ArtifactRestore {
        id,
        version: 1,
        expected_version: None,
    };
    let restored = artifacts.restore_artifact(&me(), restore, options(3)).await;
    restored.expect("restored");
    let moved = artifacts
        .move_artifacts(&me(), path("/a"), path("/b"), options(4))
        .await;
    moved.expect("moved");
    let deleted = artifacts.delete_artifact(&me(), id, options(5)).await;
    deleted.expect("deleted");
    let found = feed(store, &me(), 1, 10).await;
    let shown: Vec<_> = found
        .changes
        .iter()
        .map(|change| (change.revision, change.kind, change.version))
        .collect();
    assert_eq!(
        shown,
        [
            (1, ChangeKind::Create, Some(1)),
            (2, ChangeKind::Update, Some(2)),
            (3, ChangeKind::Update, Some(2)),
            (4, ChangeKind::Restore, Some(3)),
            (5, ChangeKind::Update, Some(3)),
            (6, ChangeKind::Delete, Some(3)),
        ]
    );
    for change in &found.changes {
        assert_eq!(change.changed, Changed::Artifact { id: id.to_string() });
        assert!(change.commit_end);
    }
}
behaviour!(each_change_of_an_artifact_is_in_the_feed(store));

/// A delete of 120 entries is one commit. Without a key, its changes have no key id.
async fn a_large_commit_has_one_end(store: &dyn Store) {
    const ENTRIES: i64 = 120;
    for first in (0..ENTRIES).step_by(60) {
        let batch = (first..first + 60)
            .map(|number| entry(&number.to_string()).0)
            .collect();
        store
            .store_contexts(&me(), batch, true, options(first))
            .await
            .expect("stored");
    }
    let all = DeleteCriteria {
        threads: Some(vec![context_model::ThreadId::from_stored("t".to_owned())]),
        ..DeleteCriteria::default()
    };
    let options = WriteOptions {
        key_id: None,
        ..options(ENTRIES)
    };
    store
        .delete_contexts(&me(), all, options)
        .await
        .expect("deleted");
    let found = feed(store, &me(), ENTRIES + 1, 1000).await;
    assert_eq!(found.changes.len(), 120);
    assert!(found.changes.iter().all(|change| change.key_id.is_none()));
    let ends = found.changes.iter().filter(|change| change.commit_end);
    assert_eq!(
        ends.map(|change| change.revision).collect::<Vec<_>>(),
        [2 * ENTRIES]
    );
}
behaviour!(a_large_commit_has_one_end(store));

/// Waits for an announcement to a subscription.
async fn woken(subscription: &mut Subscription) {
    let mut changed = pin!(subscription.changed());
    until("the commit is announced", async || {
        poll!(changed.as_mut()).is_ready()
    })
    .await;
}

/// Waits until no announcement to a subscription is left. On PostgreSQL a commit may be announced more than once.
async fn at_rest(subscription: &mut Subscription) {
    until("the subscription waits", async || {
        subscription.begin_read();
        let mut changed = pin!(subscription.changed());
        poll!(changed.as_mut()).is_pending()
    })
    .await;
}

/// The erasure of an owner also wakes its subscribers, because the feed ends. Commits of another owner wake none.
async fn a_commit_wakes_those_who_wait_for_changes_of_its_owner(store: &dyn Store) {
    const OTHER_COMMITS: u32 = 20;
    let owner = OwnerId::new("followed");
    let mut followed = store.changes().notifier().subscribe(&owner);
    for seconds in 0..3 {
        at_rest(&mut followed).await;
        entry(&seconds.to_string())
            .store_for(store, &owner, seconds)
            .await;
        woken(&mut followed).await;
        assert_eq!(feed(store, &owner, 1, 10).await.revision, seconds + 1);
    }
    let mut wakes = 0;
    for number in 0..OTHER_COMMITS {
        at_rest(&mut followed).await;
        entry(&number.to_string())
            .store_for(store, &OwnerId::new("other"), number.into())
            .await;
        let mut changed = pin!(followed.changed());
        wakes += u32::from(poll!(changed.as_mut()).is_ready());
    }
    // PostgreSQL may announce an earlier commit again at the same moment.
    let at_most = match store.backend() {
        "sqlite" => 0,
        _ => OTHER_COMMITS - 1,
    };
    assert!(wakes <= at_most, "{wakes} of {OTHER_COMMITS}");
    at_rest(&mut followed).await;
    store
        .keys()
        .erase_owner(&owner, at(9))
        .await
        .expect("erased");
    woken(&mut followed).await;
}
behaviour!(a_commit_wakes_those_who_wait_for_changes_of_its_owner(
    store
));

/// Removes batches of old changes until none is left to remove. Returns the number of removed changes.
async fn compact(store: &dyn Store, retention: Retention) -> u64 {
    let mut removed = 0;
    loop {
        match store.changes().compact(retention).await.expect("compacted") {
            0 => return removed,
            batch => removed += batch,
        }
    }
}

/// Changes are removed by age and by number. The audit log is the same before and after.
async fn old_changes_leave_the_feed_and_stay_in_the_audit_log(store: &dyn Store) {
    let owner = OwnerId::new("compacted");
    for seconds in 0..20 {
        entry(&seconds.to_string())
            .store_for(store, &owner, seconds)
            .await;
    }
    let audit = async || {
        let lines = store.keys().audit_log(&owner, at(0), 0, 100).await;
        lines.expect("the audit log")
    };
    let before = audit().await;
    assert_eq!(before.len(), 20);
    let many = Retention {
        before: at(5),
        max_rows: 1_000_000,
    };
    assert_eq!(compact(store, many).await, 5);
    let found = feed(store, &owner, 1, 100).await;
    assert_eq!((found.oldest, found.revision), (6, 20));
    assert_eq!(found.changes.len(), 15);
    assert_eq!(audit().await, before);
    let few = Retention {
        before: at(0),
        max_rows: 4,
    };
    assert_eq!(compact(store, few).await, 11);
    assert_eq!(feed(store, &owner, 1, 100).await.oldest, 17);
    assert_eq!(compact(store, few).await, 0);
    // The newest change stays, so that a cursor at the end stays valid.
    let none = Retention {
        before: at(1000),
        max_rows: 1,
    };
    assert_eq!(compact(store, none).await, 3);
    let found = feed(store, &owner, 1, 100).await;
    assert_eq!((found.oldest, found.changes.len()), (20, 1));
    assert_eq!(audit().await, before);
    entry("more").store_for(store, &owner, 30).await;
    assert_eq!(audit().await.len(), 21);
}
behaviour!(old_changes_leave_the_feed_and_stay_in_the_audit_log(store));
