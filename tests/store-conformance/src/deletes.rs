//! What a delete removes, and what it keeps.

use context_model::{Source, ThreadId, ThreadSet};
use context_store::{DeleteCriteria, OwnerId, Store};

use crate::arrange::*;
use crate::suite::behaviour;

fn thread_ids(names: &[&str]) -> Option<Vec<ThreadId>> {
    Some(
        names
            .iter()
            .map(|name| ThreadId::from_stored((*name).to_owned()))
            .collect(),
    )
}

/// Repeated ids count once.
async fn ids_are_deleted_and_unknown_ones_count_nothing(store: &dyn Store) {
    let a = entry("a")
        .tags(&["t"])
        .images(&[b"1"])
        .store(store, 0)
        .await
        .id;
    let b = entry("b").store(store, 1).await.id;
    assert_eq!(delete_ids(store, &[a, a, 999, -1, i64::MAX]).await, 1);
    assert_eq!(texts(&all(store).await), ["b"]);
    assert_eq!(delete_ids(store, &[a]).await, 0);
    assert_eq!(delete_ids(store, &[b]).await, 1);
    assert_eq!(all(store).await.len(), 0);
}
behaviour!(ids_are_deleted_and_unknown_ones_count_nothing(store));

/// Ids, threads, source and age are combined.
async fn all_criteria_must_hold(store: &dyn Store) {
    let old_user = entry("old user").store(store, 0).await.id;
    let old_agent = entry("old agent").agent().store(store, 1).await.id;
    let elsewhere = entry("elsewhere")
        .agent()
        .thread("u")
        .store(store, 1)
        .await
        .id;
    let new_agent = entry("new agent").agent().store(store, 10).await.id;
    let criteria = DeleteCriteria {
        ids: Some(vec![old_user, old_agent, elsewhere, new_agent]),
        threads: thread_ids(&["t", "nowhere"]),
        source: Some(Source::Agent),
        created_before: Some(at(10)),
        within: None,
    };
    assert_eq!(delete(store, criteria).await, 1);
    assert_eq!(
        texts(&all(store).await),
        ["new agent", "elsewhere", "old user"]
    );
    let old = DeleteCriteria {
        created_before: Some(at(10)),
        ..DeleteCriteria::default()
    };
    assert_eq!(delete(store, old).await, 2);
    assert_eq!(texts(&all(store).await), ["new agent"]);
}
behaviour!(all_criteria_must_hold(store));

/// A delete with any criteria stays within the caller's threads. A restriction to threads alone selects nothing.
async fn a_delete_stays_within_the_threads_that_are_reached(store: &dyn Store) {
    for (i, thread) in ["a", "ab", "b"].into_iter().enumerate() {
        entry(thread).thread(thread).store(store, i as i64).await;
    }
    let within = ThreadSet::from_shown(&["a*".to_owned()]);
    assert_eq!(
        delete(
            store,
            DeleteCriteria {
                within: within.clone(),
                ..DeleteCriteria::default()
            }
        )
        .await,
        0
    );
    let ids: Vec<i64> = all(store).await.iter().map(|entry| entry.id).collect();
    let named = DeleteCriteria {
        within: within.clone(),
        threads: thread_ids(&["ab", "b"]),
        ..DeleteCriteria::default()
    };
    assert_eq!(delete(store, named).await, 1);
    let old = DeleteCriteria {
        within: within.clone(),
        created_before: Some(at(100)),
        ..DeleteCriteria::default()
    };
    assert_eq!(delete(store, old).await, 1);
    assert_eq!(
        delete(
            store,
            DeleteCriteria {
                within,
                ids: Some(ids),
                ..DeleteCriteria::default()
            }
        )
        .await,
        0
    );
    assert_eq!(texts(&all(store).await), ["b"]);
}
behaviour!(a_delete_stays_within_the_threads_that_are_reached(store));

/// The thread's entries and its row in the list are deleted.
async fn a_thread_is_deleted_with_its_row(store: &dyn Store) {
    entry("a").store(store, 0).await;
    entry("b").agent().store(store, 1).await;
    entry("c").thread("T").store(store, 2).await;
    assert_eq!(
        delete(
            store,
            DeleteCriteria {
                threads: thread_ids(&["t"]),
                ..DeleteCriteria::default()
            }
        )
        .await,
        2
    );
    let left = threads(store).await;
    assert_eq!((left.total, left.threads[0].thread_id.as_str()), (1, "T"));
}
behaviour!(a_thread_is_deleted_with_its_row(store));

/// Without criteria that select entries, a delete must not delete everything.
async fn nothing_to_go_by_deletes_nothing(store: &dyn Store) {
    entry("a").store(store, 0).await;
    for criteria in [
        DeleteCriteria::default(),
        DeleteCriteria {
            source: Some(Source::User),
            ..DeleteCriteria::default()
        },
        DeleteCriteria {
            ids: Some(Vec::new()),
            ..DeleteCriteria::default()
        },
        DeleteCriteria {
            threads: Some(Vec::new()),
            created_before: Some(at(100)),
            ..DeleteCriteria::default()
        },
    ] {
        assert_eq!(delete(store, criteria).await, 0);
    }
    assert_eq!(texts(&all(store).await), ["a"]);
}
behaviour!(nothing_to_go_by_deletes_nothing(store));

/// A delete by id, by thread or by age does not reach another owner's entries.
async fn another_owner_cannot_delete(store: &dyn Store) {
    entry("a").store(store, 0).await;
    let id = entry("b").store(store, 0).await.id;
    let theirs = OwnerId::new("other");
    // Their own entry has another id and thread, and is newer.
    let own = entry("theirs").thread("u").store_for(store, &theirs, 200);
    assert_ne!(own.await.id, id);
    for criteria in [
        DeleteCriteria {
            ids: Some(vec![id]),
            ..DeleteCriteria::default()
        },
        DeleteCriteria {
            threads: thread_ids(&["t"]),
            ..DeleteCriteria::default()
        },
        DeleteCriteria {
            created_before: Some(at(100)),
            ..DeleteCriteria::default()
        },
    ] {
        assert_eq!(
            store
                .delete_contexts(&theirs, criteria, options(1))
                .await
                .expect("works")
                .outcome,
            0
        );
    }
    assert_eq!(texts(&all(store).await), ["b", "a"]);
}
behaviour!(another_owner_cannot_delete(store));

/// Both databases delete at most 1 000 entries at a time.
async fn many_are_deleted_at_once(store: &dyn Store) {
    for batch in 0..24 {
        let entries = (0..100)
            .map(|i| {
                entry(&format!("word{i} {batch}"))
                    .thread(&format!("t{}", i % 7))
                    .tags(&["x"])
                    .0
            })
            .collect();
        store
            .store_contexts(&me(), entries, true, options(batch))
            .await
            .expect("stored");
    }
    let written = store
        .delete_contexts(
            &me(),
            DeleteCriteria {
                created_before: Some(at(23)),
                ..DeleteCriteria::default()
            },
            options(99),
        )
        .await;
    let written = written.expect("deleted");
    assert_eq!((written.outcome, written.revision), (2300, 4700));
    assert_eq!(
        threads(store)
            .await
            .threads
            .iter()
            .map(|thread| thread.entry_count)
            .sum::<i64>(),
        100
    );
    assert_eq!(super::full_text::found(store, "word5").await, ["word5 23"]);
}
behaviour!(many_are_deleted_at_once(store));
