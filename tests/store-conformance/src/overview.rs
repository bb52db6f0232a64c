//! Samples of metadata, entries by day, and threads by a part of their name.

use context_model::{DayCount, Filter, ThreadId, ThreadNamePart, ThreadSet, Timestamp, Violations};
use context_store::{DayCounts, OwnerId, Store, WriteOptions};
use serde_json::json;

use crate::arrange::*;
use crate::suite::behaviour;

fn of_thread(thread: &str) -> Filter {
    Filter {
        thread_id: Some(ThreadId::from_stored(thread.to_owned())),
        ..Filter::default()
    }
}

fn within(pattern: &str) -> Option<ThreadSet> {
    ThreadSet::from_shown(&[pattern.to_owned()])
}

/// The numbers in the metadata of a sample. `None` for metadata that is too long.
async fn sample(store: &dyn Store, filter: Filter, limit: u32) -> Vec<Option<i64>> {
    let sample = store
        .metadata_sample(&me(), filter, limit, 30, now())
        .await
        .expect("read");
    assert_eq!(sample.revision, 5);
    let number = |object: context_model::ObjectText| {
        object.to_object().expect("an object")["n"]
            .as_i64()
            .expect("a number")
    };
    sample
        .objects
        .into_iter()
        .map(|object| object.map(number))
        .collect()
}

/// An entry with long metadata is in the sample, but as `None`. The limit counts bytes, not characters.
async fn a_sample_has_the_metadata_of_the_newest_matching_entries(store: &dyn Store) {
    for (seconds, thread, metadata) in [
        (1, "a", json!({"n": 1})),
        // 30 and 31 bytes.
        (2, "b", json!({"n": 2, "k": "ä".repeat(8)})),
        (3, "a", json!({"n": 3})),
        (4, "b", json!({"n": 4, "long": "ä".repeat(7)})),
        (5, "ab", json!({"n": 5})),
    ] {
        entry(&format!("{metadata}"))
            .thread(thread)
            .metadata(metadata)
            .store(store, seconds)
            .await;
    }
    entry("theirs")
        .metadata(json!({"n": 9}))
        .store_for(store, &OwnerId::new("other"), 9)
        .await;
    let narrowed = |thread: &str, pattern| Filter {
        within: within(pattern),
        ..of_thread(thread)
    };
    for (filter, limit, expected) in [
        (
            Filter::default(),
            10,
            &[Some(5), None, Some(3), Some(2), Some(1)][..],
        ),
        (Filter::default(), 3, &[Some(5), None, Some(3)]),
        (of_thread("a"), 10, &[Some(3), Some(1)]),
        (of_thread("c"), 10, &[]),
        (narrowed("a", "a*"), 10, &[Some(3), Some(1)]),
        (narrowed("b", "a*"), 10, &[]),
        (
            Filter {
                within: within("a*"),
                ..Filter::default()
            },
            10,
            &[Some(5), Some(3), Some(1)],
        ),
    ] {
        assert_eq!(
            sample(store, filter.clone(), limit).await,
            expected,
            "{filter:?}"
        );
    }
}
behaviour!(a_sample_has_the_metadata_of_the_newest_matching_entries(
    store
));

/// A day is from midnight UTC to the last microsecond before the next midnight. The limit is the number of entries that
/// are counted.
async fn entries_are_counted_by_day_newest_first(store: &dyn Store) {
    let midnight = (START / DayCount::MICROS + 1) * DayCount::MICROS;
    let seconds = (midnight - START) / 1_000_000;
    for (thread, at) in [
        ("a", START),
        ("a", midnight - 1),
        ("b", midnight),
        ("a", midnight + 3 * DayCount::MICROS),
    ] {
        let new = entry(&format!("{thread} {at}")).thread(thread).0;
        let options = WriteOptions {
            now: Timestamp(at),
            ..options(0)
        };
        store
            .store_contexts(&me(), vec![new], true, options)
            .await
            .expect("stored");
    }
    entry("theirs")
        .store_for(store, &OwnerId::new("other"), seconds)
        .await;
    let first = START / DayCount::MICROS;
    let narrowed = Filter {
        within: within("b"),
        ..Filter::default()
    };
    let since = Filter {
        created_from: Some(Timestamp(midnight)),
        ..Filter::default()
    };
    for (filter, limit, expected) in [
        (
            Filter::default(),
            10,
            &[(first + 4, 1), (first + 1, 1), (first, 2)][..],
        ),
        (
            Filter::default(),
            3,
            &[(first + 4, 1), (first + 1, 1), (first, 1)],
        ),
        (Filter::default(), 1, &[(first + 4, 1)]),
        (of_thread("a"), 10, &[(first + 4, 1), (first, 2)]),
        (of_thread("c"), 10, &[]),
        (narrowed, 10, &[(first + 1, 1)]),
        (since, 10, &[(first + 4, 1), (first + 1, 1)]),
    ] {
        let found = store
            .days(&me(), filter.clone(), limit, now())
            .await
            .expect("read");
        assert_eq!(
            (found.days.as_slice(), found.revision),
            (expected, 4),
            "{filter:?}"
        );
    }
}
behaviour!(entries_are_counted_by_day_newest_first(store));

/// `%` and `_`, the wildcards of SQL patterns, are literal. Only the case of A to Z is ignored.
async fn threads_are_found_by_a_part_of_their_name(store: &dyn Store) {
    for (i, thread) in ["team-a/Billing", "billing", "a%b", "a_b", "ÄRA", "other"]
        .into_iter()
        .enumerate()
    {
        entry(thread).thread(thread).store(store, i as i64).await;
    }
    for (name, reach, expected) in [
        ("bill", None, &["billing", "team-a/Billing"][..]),
        ("BILL", None, &["billing", "team-a/Billing"]),
        ("a/", None, &["team-a/Billing"]),
        ("%", None, &["a%b"]),
        ("_", None, &["a_b"]),
        ("Är", None, &["ÄRA"]),
        ("är", None, &[]),
        ("nothing", None, &[]),
        ("bill", within("team-a/*"), &["team-a/Billing"]),
        ("bill", within("o*"), &[]),
    ] {
        let part = ThreadNamePart::parse(name, "name", &mut Violations::default());
        for limit in [1, 10] {
            let found = store
                .list_threads(&me(), reach.clone(), part.clone(), page(limit, 0), now())
                .await
                .expect("read");
            let names: Vec<&str> = found
                .threads
                .iter()
                .map(|thread| thread.thread_id.as_str())
                .collect();
            assert_eq!(
                names,
                expected[..expected.len().min(limit as usize)],
                "{name}"
            );
            assert_eq!(
                (found.total, found.revision),
                (expected.len() as i64, 6),
                "{name}"
            );
        }
    }
    let part = ThreadNamePart::parse("bill", "name", &mut Violations::default());
    let second = store
        .list_threads(&me(), None, part, page(1, 1), now())
        .await
        .expect("read");
    assert_eq!(second.threads[0].thread_id, "team-a/Billing");
}
behaviour!(threads_are_found_by_a_part_of_their_name(store));

/// An owner that has never written has nothing to count.
async fn a_new_owner_has_no_metadata_and_no_days(store: &dyn Store) {
    let sample = store
        .metadata_sample(&me(), Filter::default(), 10, 100, now())
        .await
        .expect("read");
    assert!(sample.objects.is_empty());
    assert_eq!(sample.revision, 0);
    let days = store.days(&me(), Filter::default(), 10, now()).await;
    assert_eq!(days.expect("read"), DayCounts::default());
    let part = ThreadNamePart::parse("a", "name", &mut Violations::default());
    let threads = store
        .list_threads(&me(), None, part, page(10, 0), now())
        .await
        .expect("read");
    assert_eq!((threads.total, threads.revision), (0, 0));
}
behaviour!(a_new_owner_has_no_metadata_and_no_days(store));
