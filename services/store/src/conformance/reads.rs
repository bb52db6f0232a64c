//! Order, pages, limits and waiting.

use std::time::Duration;

use context_model::{Filter, Reason};

use super::arrange::*;
use crate::{Read, RowSelection, Store, StoreError};

/// By time, then by id.
pub async fn entries_come_newest_first_whatever_the_order_asked(store: &dyn Store) {
    let old = entry("old").thread("u").store(store, 1).await.id;
    let new = entry("new").thread("v").store(store, 9).await.id;
    let middle = entry("middle").store(store, 5).await.id;
    let also_middle = entry("also middle").thread("w").store(store, 5).await.id;
    assert_eq!(texts(&get(store, &[old, middle, new, also_middle]).await), ["new", "also middle", "middle", "old"]);
}

/// Without an error.
pub async fn unknown_and_repeated_ids_are_skipped(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    assert_eq!(texts(&get(store, &[id, 77, id, -5, 0, i64::MAX, i64::MIN]).await), ["x"]);
    assert!(get(store, &[77]).await.is_empty());
}

/// `None` says that they were not asked for.
pub async fn images_come_only_when_selected(store: &dyn Store) {
    let id = entry("x").images(&[b"1"]).store(store, 0).await.id;
    entry("y").store(store, 1).await;
    let without = RowSelection { images: false, ..EVERYTHING };
    let found = store.get_contexts(&me(), vec![id], without, now()).await.expect("read").entries;
    assert_eq!(found[0].images, None);
    let found = all(store).await;
    assert_eq!(found.iter().map(|entry| entry.images.as_ref().map(Vec::len)).collect::<Vec<_>>(), [Some(0), Some(1)]);
}

/// The refusal says what helps.
pub async fn a_page_over_its_bytes_is_refused_but_a_single_entry_never(store: &dyn Store) {
    let big = vec![7u8; 5000];
    let text = entry(&"x".repeat(3000)).store(store, 0).await.id;
    let image = entry("y").images(&[&big]).store(store, 1).await.id;
    let small = RowSelection { max_bytes: 4000, ..EVERYTHING };
    for (ids, fits) in [(vec![text], true), (vec![image], true), (vec![text, image], false)] {
        let found = store.get_contexts(&me(), ids.clone(), small, now()).await;
        if fits {
            assert_eq!(found.expect("one entry is never refused").entries.len(), 1);
        } else {
            match found {
                Err(StoreError::Rejected(error)) => {
                    assert_eq!(error.reason, Reason::ResultTooLarge);
                    assert!(error.message.contains("include_images=false"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let without_images = RowSelection { images: false, ..small };
    assert_eq!(store.get_contexts(&me(), vec![text, image], without_images, now()).await.expect("fits").entries.len(), 2);
    let searched = store.search_contexts(&me(), Filter::default(), page(10, 0), small, now()).await;
    assert_eq!(reason(searched), Reason::ResultTooLarge);
}

/// Characters, not bytes.
pub async fn texts_are_cut_at_the_characters_asked_for(store: &dyn Store) {
    let id = entry("äöü€🦀 and more").store(store, 0).await.id;
    let start = RowSelection { text_chars: Some(5), ..EVERYTHING };
    let found = store.get_contexts(&me(), vec![id], start, now()).await.expect("read").entries;
    assert_eq!(found[0].text, "äöü€🦀");
    let found = store.search_contexts(&me(), Filter::default(), page(10, 0), start, now()).await.expect("read").entries;
    assert_eq!(found[0].text, "äöü€🦀");
}

/// Also where many entries share one time.
pub async fn pages_are_total_and_disjoint(store: &dyn Store) {
    let entries = (0..60).map(|i| entry(&i.to_string()).thread(&format!("t{}", i % 3)).0).collect();
    store.store_contexts(&me(), entries, true, options(0)).await.expect("stored");
    let mut seen = Vec::new();
    for offset in (0..70).step_by(7) {
        let found = store.search_contexts(&me(), Filter::default(), page(7, offset), EVERYTHING, now()).await.expect("read");
        seen.extend(found.entries.into_iter().map(|entry| entry.text));
    }
    let expected: Vec<String> = (0..60).rev().map(|i| i.to_string()).collect();
    assert_eq!(seen, expected);
    let beyond = store.search_contexts(&me(), Filter::default(), page(7, u64::MAX), EVERYTHING, now()).await.expect("read");
    assert!(beyond.entries.is_empty());
}

/// The read that came first sees the write it waited for.
pub async fn a_read_waits_for_its_revision(store: &dyn Store) {
    entry("first").store(store, 0).await;
    let patient = Read { min_revision: Some(2), wait: Duration::from_secs(30) };
    let owner = me();
    let read = store.search_contexts(&owner, Filter::default(), page(10, 0), EVERYTHING, patient);
    let (found, _) = futures::future::join(read, entry("second").store(store, 1)).await;
    let found = found.expect("the revision came");
    assert!(found.revision >= 2);
    assert_eq!(texts(&found.entries), ["second", "first"]);
}

/// After the time it may wait, at once when it may not.
pub async fn a_revision_that_does_not_come_is_an_error(store: &dyn Store) {
    entry("x").store(store, 0).await;
    for wait in [Duration::ZERO, Duration::from_millis(20)] {
        let read = Read { min_revision: Some(2), wait };
        for result in [
            store.list_threads(&me(), page(10, 0), read).await.map(drop),
            store.get_contexts(&me(), vec![1], EVERYTHING, read).await.map(drop),
            store.statistics(&me(), read).await.map(drop),
        ] {
            // A database with replicas may say that it is behind; one without knows that there is no such revision.
            assert!(matches!(result, Err(StoreError::Unavailable(_) | StoreError::Rejected(_))), "{result:?}");
        }
    }
    let reached = Read { min_revision: Some(1), wait: Duration::ZERO };
    store.list_threads(&me(), page(10, 0), reached).await.expect("reached already");
}

/// And not otherwise.
pub async fn the_plan_comes_when_asked_for(store: &dyn Store) {
    entry("x").store(store, 0).await;
    for explain in [true, false] {
        let selection = RowSelection { explain, ..EVERYTHING };
        let found = store.search_contexts(&me(), Filter::default(), page(10, 0), selection, now()).await.expect("read");
        assert_eq!(!found.plan.is_empty(), explain, "{:?}", found.plan);
    }
}
