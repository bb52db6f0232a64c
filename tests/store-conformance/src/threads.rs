//! The list of threads.

use context_model::{SourceCounts, ThreadId, ThreadSet};
use context_store::{Store, ThreadsPage};

use crate::arrange::*;
use crate::suite::behaviour;

fn names(page: &ThreadsPage) -> Vec<&str> {
    page.threads
        .iter()
        .map(|thread| thread.thread_id.as_str())
        .collect()
}

/// The row has counts by source and type, and the first and last entry.
async fn a_row_counts_its_entries(store: &dyn Store) {
    entry("a").store(store, 1).await;
    entry("b").agent().images(&[b"1"]).store(store, 2).await;
    let last = entry("c").agent().store(store, 3).await.id;
    let page = threads(store).await;
    assert_eq!((page.total, page.revision), (1, 3));
    let thread = &page.threads[0];
    assert_eq!(
        (
            thread.entry_count,
            thread.source_types,
            thread.multimodal_count
        ),
        (3, 2, 1)
    );
    assert_eq!(thread.sources, SourceCounts { user: 1, agent: 2 });
    assert_eq!(
        (thread.first_entry, thread.last_entry, thread.last_id),
        (at(1), at(3), last)
    );
}
behaviour!(a_row_counts_its_entries(store));

/// Threads are ordered by the newest entry's time, then by its id.
async fn the_latest_activity_comes_first(store: &dyn Store) {
    for (thread, seconds) in [("a", 1), ("b", 2), ("c", 2), ("d", 0), ("a", 1)] {
        entry(&format!("{thread}{seconds}"))
            .thread(thread)
            .store(store, seconds)
            .await;
    }
    assert_eq!(names(&threads(store).await), ["c", "b", "a", "d"]);
    entry("again").thread("d").store(store, 2).await;
    assert_eq!(names(&threads(store).await), ["d", "c", "b", "a"]);
}
behaviour!(the_latest_activity_comes_first(store));

/// Pages of threads are disjoint and complete, even where many threads have the same time.
async fn pages_neither_repeat_nor_skip(store: &dyn Store) {
    let entries = (0..50)
        .map(|i| entry("x").thread(&format!("t{i}")).0)
        .collect();
    store
        .store_contexts(&me(), entries, true, options(0))
        .await
        .expect("stored");
    let mut seen = Vec::new();
    for offset in (0..60).step_by(7) {
        let page = store
            .list_threads(&me(), None, None, page(7, offset), now())
            .await
            .expect("read");
        assert_eq!(page.total, 50);
        seen.extend(page.threads.into_iter().map(|thread| thread.thread_id));
    }
    let expected: Vec<String> = (0..50).rev().map(|i| format!("t{i}")).collect();
    assert_eq!(seen, expected);
}
behaviour!(pages_neither_repeat_nor_skip(store));

/// First, last and middle entries are deleted, and then all.
async fn the_row_follows_deletes(store: &dyn Store) {
    let mut ids = Vec::new();
    for seconds in 0..5 {
        let new = entry(&seconds.to_string());
        let new = if seconds % 2 == 0 {
            new
        } else {
            new.agent().images(&[b"1"])
        };
        ids.push(new.store(store, seconds).await.id);
    }
    for (deleted, expected) in [
        (2, (4, 0, 4, ids[4])),
        (4, (3, 0, 3, ids[3])),
        (0, (2, 1, 3, ids[3])),
        (3, (1, 1, 1, ids[1])),
    ] {
        delete_ids(store, &[ids[deleted]]).await;
        let page = threads(store).await;
        let thread = &page.threads[0];
        let (count, first, last, last_id) = expected;
        assert_eq!(
            (
                thread.entry_count,
                thread.first_entry,
                thread.last_entry,
                thread.last_id
            ),
            (count, at(first), at(last), last_id)
        );
        assert_eq!(thread.sources.user + thread.sources.agent, count);
        assert_eq!(thread.multimodal_count, thread.sources.agent);
    }
    delete_ids(store, &[ids[1]]).await;
    let page = threads(store).await;
    assert_eq!((page.threads.len(), page.total), (0, 0));
    entry("again").store(store, 9).await;
    assert_eq!(threads(store).await.threads[0].first_entry, at(9));
}
behaviour!(the_row_follows_deletes(store));

/// The row has the number of entries with images.
async fn the_row_follows_updates_of_images(store: &dyn Store) {
    let id = entry("x").images(&[b"1"]).store(store, 0).await.id;
    for (images, expected) in [
        (&[b"1".as_slice(), b"2"][..], 1),
        (&[][..], 0),
        (&[b"3".as_slice()][..], 1),
    ] {
        update(id)
            .images(images)
            .apply(store, 1)
            .await
            .expect("updated");
        assert_eq!(threads(store).await.threads[0].multimodal_count, expected);
    }
}
behaviour!(the_row_follows_updates_of_images(store));

/// A list within one thread has that thread's row, and no thread whose name only begins alike.
async fn one_thread_is_found_by_its_name(store: &dyn Store) {
    for thread in ["a", "a/b", "A"] {
        entry(thread).thread(thread).store(store, 0).await;
    }
    for (name, found) in [("a", true), ("a/b", true), ("a/", false), ("b", false)] {
        let only = ThreadSet::only(ThreadId::from_stored(name.to_owned()));
        let page = store
            .list_threads(&me(), Some(only), None, page(1, 0), now())
            .await
            .expect("read");
        let expected: &[&str] = if found { &[name] } else { &[] };
        assert_eq!(names(&page), expected);
        assert_eq!((page.total, page.revision), (i64::from(found), 3));
    }
}
behaviour!(one_thread_is_found_by_its_name(store));
