//! The list of tags.

use context_model::{Filter, TagPrefix, ThreadId, ThreadSet, Violations};
use context_store::{OwnerId, Store, TagsPage};

use crate::arrange::*;
use crate::suite::behaviour;

async fn list(store: &dyn Store, filter: Filter, prefix: Option<&str>) -> TagsPage {
    let prefix = prefix.map(|prefix| {
        TagPrefix::parse(prefix, "prefix", &mut Violations::default()).expect("a prefix")
    });
    store
        .list_tags(&me(), filter, prefix, page(100, 0), now())
        .await
        .expect("the tags are read")
}

fn counts(page: &TagsPage) -> Vec<(&str, i64)> {
    page.tags
        .iter()
        .map(|tag| (tag.tag.as_str(), tag.entry_count))
        .collect()
}

fn of_thread(thread: &str) -> Filter {
    Filter {
        thread_id: Some(ThreadId::from_stored(thread.to_owned())),
        ..Filter::default()
    }
}

/// The filter of a caller that is restricted to these threads.
fn within(patterns: &[&str]) -> Filter {
    let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    Filter {
        within: ThreadSet::from_shown(&patterns),
        ..Filter::default()
    }
}

/// Entries of two threads. Another owner has tags of its own.
async fn stored(store: &dyn Store) {
    for (thread, tags) in [
        ("billing", &["open", "urgent"][..]),
        ("billing", &["open"]),
        ("billing", &[]),
        ("bills", &["open", "done", "ärger"]),
    ] {
        entry(&format!("{thread} {tags:?}"))
            .thread(thread)
            .tags(tags)
            .store(store, 0)
            .await;
    }
    entry("theirs")
        .tags(&["open", "theirs"])
        .store_for(store, &OwnerId::new("other"), 0)
        .await;
}

/// Equally frequent tags are in the order of their code points.
async fn the_most_frequent_tag_comes_first_then_by_name(store: &dyn Store) {
    stored(store).await;
    let all = list(store, Filter::default(), None).await;
    assert_eq!(
        counts(&all),
        [("open", 3), ("done", 1), ("urgent", 1), ("ärger", 1)]
    );
    assert_eq!((all.total, all.revision), (4, 4));
}
behaviour!(the_most_frequent_tag_comes_first_then_by_name(store));

/// The filter has a thread, or the threads to which the caller is restricted, or both.
async fn tags_are_counted_within_the_threads_of_the_filter(store: &dyn Store) {
    stored(store).await;
    for (filter, expected) in [
        (of_thread("billing"), &[("open", 2), ("urgent", 1)][..]),
        (of_thread("bill"), &[]),
        (
            within(&["bills"]),
            &[("done", 1), ("open", 1), ("ärger", 1)],
        ),
        (
            within(&["bill*"]),
            &[("open", 3), ("done", 1), ("urgent", 1), ("ärger", 1)],
        ),
        (
            Filter {
                thread_id: of_thread("billing").thread_id,
                ..within(&["bills"])
            },
            &[],
        ),
    ] {
        let found = list(store, filter.clone(), None).await;
        assert_eq!(counts(&found), expected, "{filter:?}");
        assert_eq!(
            (found.total, found.revision),
            (expected.len() as i64, 4),
            "{filter:?}"
        );
    }
}
behaviour!(tags_are_counted_within_the_threads_of_the_filter(store));

/// `%` and `_`, the wildcards of SQL patterns, are literal.
async fn a_prefix_selects_tags_by_their_beginning(store: &dyn Store) {
    let given = ["a", "ab", "ab c", "b", "a%", "a_", "äb", "\u{10ffff}"];
    entry("x").tags(&given).store(store, 0).await;
    for (prefix, expected) in [
        ("a", &["a", "a%", "a_", "ab", "ab c"][..]),
        ("AB", &["ab", "ab c"]),
        ("ab ", &["ab c"]),
        ("a%", &["a%"]),
        ("a_", &["a_"]),
        ("Ä", &["äb"]),
        ("\u{10ffff}", &["\u{10ffff}"]),
        ("abc", &[]),
    ] {
        for filter in [Filter::default(), of_thread("t")] {
            let found = list(store, filter, Some(prefix)).await;
            let names: Vec<&str> = found.tags.iter().map(|tag| tag.tag.as_str()).collect();
            assert_eq!(names, expected, "{prefix}");
            assert_eq!(found.total, expected.len() as i64, "{prefix}");
        }
    }
}
behaviour!(a_prefix_selects_tags_by_their_beginning(store));

/// Pages of tags are disjoint and complete, and each has the total, even one behind the last tag.
async fn pages_of_tags_neither_repeat_nor_skip(store: &dyn Store) {
    let given: Vec<String> = (0..50).map(|i| format!("tag {i:02}")).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    entry("x").tags(&given).store(store, 0).await;
    for filter in [Filter::default(), of_thread("t")] {
        let mut seen = Vec::new();
        for offset in (0..60).step_by(7) {
            let found = store
                .list_tags(&me(), filter.clone(), None, page(7, offset), now())
                .await
                .expect("read");
            assert_eq!(found.total, 50);
            seen.extend(found.tags.into_iter().map(|tag| tag.tag));
        }
        assert_eq!(seen, given);
    }
}
behaviour!(pages_of_tags_neither_repeat_nor_skip(store));

/// The counts follow updates and deletes. A tag that no entry has is not listed.
async fn tags_follow_updates_and_deletes(store: &dyn Store) {
    let a = entry("a").tags(&["x", "y"]).store(store, 0).await.id;
    let b = entry("b").tags(&["y"]).store(store, 1).await.id;
    update(b)
        .tags(&["z"])
        .apply(store, 2)
        .await
        .expect("updated");
    for filter in [Filter::default(), of_thread("t")] {
        let found = list(store, filter, None).await;
        assert_eq!(counts(&found), [("x", 1), ("y", 1), ("z", 1)]);
    }
    delete_ids(store, &[a]).await;
    for filter in [Filter::default(), of_thread("t")] {
        assert_eq!(counts(&list(store, filter, None).await), [("z", 1)]);
    }
    delete_ids(store, &[b]).await;
    for filter in [Filter::default(), of_thread("t")] {
        let found = list(store, filter, None).await;
        assert_eq!((counts(&found), found.total), (vec![], 0));
    }
}
behaviour!(tags_follow_updates_and_deletes(store));

/// An owner that has never written has no tags.
async fn a_new_owner_has_no_tags(store: &dyn Store) {
    for filter in [Filter::default(), of_thread("t")] {
        assert_eq!(list(store, filter, None).await, TagsPage::EMPTY);
    }
}
behaviour!(a_new_owner_has_no_tags(store));
