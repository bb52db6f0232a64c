//! Order, pages, limits and waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use context_model::{ArtifactId, ArtifactPath, Error, Filter, Reason, ThreadId, ThreadSet};
use context_store::{
    ArtifactPage, ArtifactSelection, DocumentKind, FtsSearch, Memory, Meter, PageStart, RankSearch,
    Read, RowSelection, Store, StoreError,
};
use context_text::{Analyzer, Language, Mode, parse};

use crate::arrange::*;
use crate::suite::behaviour;
use crate::vectors::near_angle;

/// Entries are ordered by time, then by id.
async fn entries_come_newest_first_whatever_the_order_asked(store: &dyn Store) {
    let old = entry("old").thread("u").store(store, 1).await.id;
    let new = entry("new").thread("v").store(store, 9).await.id;
    let middle = entry("middle").store(store, 5).await.id;
    let also_middle = entry("also middle").thread("w").store(store, 5).await.id;
    assert_eq!(
        texts(&get(store, &[old, middle, new, also_middle]).await),
        ["new", "also middle", "middle", "old"]
    );
}
behaviour!(entries_come_newest_first_whatever_the_order_asked(store));

/// Unknown and repeated ids cause no error.
async fn unknown_and_repeated_ids_are_skipped(store: &dyn Store) {
    let id = entry("x").store(store, 0).await.id;
    assert_eq!(
        texts(&get(store, &[id, 77, id, -5, 0, i64::MAX, i64::MIN]).await),
        ["x"]
    );
    assert!(get(store, &[77]).await.is_empty());
}
behaviour!(unknown_and_repeated_ids_are_skipped(store));

/// The entry that shows that there are more is neither returned nor counted.
async fn a_page_says_whether_more_entries_follow(store: &dyn Store) {
    let search = async |page, max_bytes| {
        let selection = RowSelection {
            max_bytes,
            ..EVERYTHING
        };
        let filter = Filter::default();
        let found = store
            .search_contexts(&me(), filter, page, selection, now())
            .await;
        let found = found.expect("one entry is never refused");
        (found.entries.len(), found.has_more)
    };
    assert_eq!(search(page(1, 0), 1_000).await, (0, false));
    for at in 0..3 {
        let image = vec![7u8; 900];
        let text = format!("{at}{}", "x".repeat(900));
        entry(&text).images(&[&image]).store(store, at).await;
    }
    for (page, max_bytes, expected) in [
        (page(1, 0), 1_000, (1, true)),
        (page(1, 2), 1_000, (1, false)),
        (page(2, 0), 100_000, (2, true)),
        (page(2, 1), 100_000, (2, false)),
        (page(3, 0), 100_000, (3, false)),
        (page(3, 3), 100_000, (0, false)),
    ] {
        assert_eq!(search(page, max_bytes).await, expected, "{page:?}");
    }
}
behaviour!(a_page_says_whether_more_entries_follow(store));

/// `None` means that images were not requested.
async fn images_come_only_when_selected(store: &dyn Store) {
    let id = entry("x").images(&[b"1"]).store(store, 0).await.id;
    entry("y").store(store, 1).await;
    let without = RowSelection {
        images: false,
        ..EVERYTHING
    };
    let found = store
        .get_contexts(&me(), vec![id], without, now())
        .await
        .expect("read")
        .entries;
    assert_eq!(found[0].images, None);
    let found = all(store).await;
    assert_eq!(
        found
            .iter()
            .map(|entry| entry.images.as_ref().map(Vec::len))
            .collect::<Vec<_>>(),
        [Some(0), Some(1)]
    );
}
behaviour!(images_come_only_when_selected(store));

/// The error explains how to make the result smaller.
async fn a_page_over_its_bytes_is_refused_but_a_single_entry_never(store: &dyn Store) {
    let big = vec![7u8; 5000];
    let text = entry(&"x".repeat(3000)).store(store, 0).await.id;
    let image = entry("y").images(&[&big]).store(store, 1).await.id;
    let small = RowSelection {
        max_bytes: 4000,
        ..EVERYTHING
    };
    for (ids, fits) in [
        (vec![text], true),
        (vec![image], true),
        (vec![text, image], false),
    ] {
        let found = store
            .get_contexts(&me(), ids.clone(), small.clone(), now())
            .await;
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
    let without_images = RowSelection {
        images: false,
        ..small.clone()
    };
    assert_eq!(
        store
            .get_contexts(&me(), vec![text, image], without_images, now())
            .await
            .expect("fits")
            .entries
            .len(),
        2
    );
    let searched = store
        .search_contexts(&me(), Filter::default(), page(10, 0), small, now())
        .await;
    assert_eq!(reason(searched), Reason::ResultTooLarge);
}
behaviour!(a_page_over_its_bytes_is_refused_but_a_single_entry_never(
    store
));

/// Counts bytes up to a limit.
struct Limited {
    left: AtomicU64,
}

impl Meter for Limited {
    fn take(&self, bytes: u64) -> Result<(), Error> {
        let fits = |left: u64| left.checked_sub(bytes);
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken
            .map(|_| ())
            .map_err(|_| Error::new(Reason::Overloaded, "no room"))
    }

    fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Texts are counted row by row. Images are counted all together before the first one is read.
async fn what_a_page_holds_is_counted_before_it_is_loaded(store: &dyn Store) {
    let big = vec![7u8; 5000];
    let text = entry(&"x".repeat(3000)).store(store, 0).await.id;
    let image = entry("y").images(&[&big]).store(store, 1).await.id;
    for (ids, room, fits) in [
        (vec![text], 2999, false),
        (vec![text], 4000, true),
        (vec![image], 4999, false),
        (vec![image], 6000, true),
    ] {
        let meter = Arc::new(Limited {
            left: AtomicU64::new(room),
        });
        let counter = Arc::clone(&meter);
        let left = || counter.left.load(Ordering::Relaxed);
        let selection = RowSelection {
            memory: Memory::counted_by(meter),
            ..EVERYTHING
        };
        let got = store
            .get_contexts(&me(), ids.clone(), selection.clone(), now())
            .await;
        let left_before = left();
        assert_eq!(left_before < room, fits, "{ids:?} in {room}");
        let searched = store
            .search_contexts(&me(), Filter::default(), page(10, 0), selection, now())
            .await;
        if fits {
            assert_eq!(got.expect("there is room").entries.len(), 1);
        } else {
            assert_eq!(reason(got), Reason::Overloaded, "{ids:?} in {room}");
        }
        assert_eq!(
            reason(searched),
            Reason::Overloaded,
            "both entries do not fit"
        );
        assert_eq!(left(), left_before, "a read that fails holds nothing");
    }
}
behaviour!(what_a_page_holds_is_counted_before_it_is_loaded(store));

/// The limit counts characters, not bytes.
async fn texts_are_cut_at_the_characters_asked_for(store: &dyn Store) {
    let id = entry("äöü€🦀 and more").store(store, 0).await.id;
    let start = RowSelection {
        text_chars: Some(5),
        ..EVERYTHING
    };
    let found = store
        .get_contexts(&me(), vec![id], start.clone(), now())
        .await
        .expect("read")
        .entries;
    assert_eq!(found[0].text, "äöü€🦀");
    let found = store
        .search_contexts(&me(), Filter::default(), page(10, 0), start, now())
        .await
        .expect("read")
        .entries;
    assert_eq!(found[0].text, "äöü€🦀");
}
behaviour!(texts_are_cut_at_the_characters_asked_for(store));

/// Pages neither overlap nor miss an entry, even where many entries have the same time.
async fn pages_are_total_and_disjoint(store: &dyn Store) {
    let entries = (0..60)
        .map(|i| entry(&i.to_string()).thread(&format!("t{}", i % 3)).0)
        .collect();
    store
        .store_contexts(&me(), entries, true, options(0))
        .await
        .expect("stored");
    let mut seen = Vec::new();
    for offset in (0..70).step_by(7) {
        let found = store
            .search_contexts(&me(), Filter::default(), page(7, offset), EVERYTHING, now())
            .await
            .expect("read");
        seen.extend(found.entries.into_iter().map(|entry| entry.text));
    }
    let expected: Vec<String> = (0..60).rev().map(|i| i.to_string()).collect();
    assert_eq!(seen, expected);
    let beyond = store
        .search_contexts(
            &me(),
            Filter::default(),
            page(7, u64::MAX),
            EVERYTHING,
            now(),
        )
        .await
        .expect("read");
    assert!(beyond.entries.is_empty());
}
behaviour!(pages_are_total_and_disjoint(store));

/// The read is rejected at once, however long it may wait: a store that sees every write at once has nothing to wait
/// for.
async fn a_revision_that_no_write_gave_is_refused_at_once(store: &dyn Store) {
    entry("first").store(store, 0).await;
    let read = Read {
        min_revision: Some(2),
        wait: Duration::from_secs(3600),
        ..Read::default()
    };
    let first = || FtsSearch {
        query: parse(Mode::Match, "first", &Analyzer::new(Language::English))
            .expect("a query")
            .expect("has words"),
        ranking_cap: 100,
        context_weight: 0.0,
    };
    let ranked = RankSearch {
        fts: Some(first()),
        semantic: None,
        ..near_angle(0.0, 10)
    };
    let artifacts = store.artifacts();
    let id = ArtifactId::parse("00000000-0000-7000-8000-000000000001").expect("an id");
    let path = ArtifactPath::from_stored("/a".to_owned());
    for result in [
        store
            .list_threads(&me(), None, None, page(10, 0), read)
            .await
            .map(drop),
        store
            .get_contexts(&me(), vec![1], EVERYTHING, read)
            .await
            .map(drop),
        store
            .search_contexts(&me(), Filter::default(), page(10, 0), EVERYTHING, read)
            .await
            .map(drop),
        store
            .list_tags(&me(), Filter::default(), None, page(10, 0), read)
            .await
            .map(drop),
        store
            .metadata_sample(&me(), Filter::default(), 10, 100, read)
            .await
            .map(drop),
        store
            .days(&me(), Filter::default(), 10, read)
            .await
            .map(drop),
        store.statistics(&me(), None, read).await.map(drop),
        store
            .statistics(
                &me(),
                Some(ThreadSet::only(ThreadId::from_stored("t".to_owned()))),
                read,
            )
            .await
            .map(drop),
        store
            .fts_search(
                &me(),
                first(),
                Filter::default(),
                page(10, 0),
                EVERYTHING,
                read,
            )
            .await
            .map(drop),
        store
            .document_frequencies(
                &me(),
                DocumentKind::Context,
                vec![first().query.query],
                10,
                read,
            )
            .await
            .map(drop),
        store
            .vectors()
            .rank(&me(), ranked, Filter::default(), read)
            .await
            .map(drop),
        store.changes().feed(&me(), 1, 10, read).await.map(drop),
        artifacts.get_artifact(&me(), id, read).await.map(drop),
        artifacts.artifact_at(&me(), path, read).await.map(drop),
        artifacts
            .artifact_history(&me(), id, 10, read)
            .await
            .map(drop),
        artifacts
            .artifact_versions(&me(), id, vec![None], read)
            .await
            .map(drop),
        artifacts
            .list_artifacts(
                &me(),
                ArtifactSelection::default(),
                ArtifactPage {
                    limit: 10,
                    start: PageStart::Offset(0),
                    preview_chars: 5,
                    max_bytes: 1 << 30,
                },
                read,
            )
            .await
            .map(drop),
        artifacts
            .artifact_documents(&me(), vec![-1], read)
            .await
            .map(drop),
    ] {
        let Err(StoreError::Rejected(error)) = result else {
            panic!("{result:?}")
        };
        assert_eq!(
            error
                .violations
                .first()
                .map(|violation| violation.field.as_str()),
            Some("min_revision")
        );
        assert!(
            error.violations[0]
                .description
                .contains("the latest revision is 1"),
            "{error:?}"
        );
    }
    entry("second").store(store, 1).await;
    let found = store
        .search_contexts(&me(), Filter::default(), page(10, 0), EVERYTHING, read)
        .await
        .expect("it is there now");
    assert_eq!(texts(&found.entries), ["second", "first"]);
}
behaviour!(a_revision_that_no_write_gave_is_refused_at_once(store));

/// Results ranked at a revision are shown as they were at that revision, or not at all.
async fn entries_that_changed_since_a_revision_are_left_out(store: &dyn Store) {
    let mut ids = Vec::new();
    for (second, text) in (0..).zip(["stays", "changes", "goes"]) {
        ids.push(entry(text).store(store, second).await.id);
    }
    let as_of = async |revision| {
        let read = Read {
            as_of: Some(revision),
            ..Read::default()
        };
        let found = store
            .get_contexts(&me(), ids.clone(), EVERYTHING, read)
            .await
            .expect("read");
        (
            texts(&found.entries)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
            found.revision,
        )
    };
    assert_eq!(
        as_of(3).await,
        (
            vec!["goes".to_owned(), "changes".to_owned(), "stays".to_owned()],
            3
        )
    );
    update(ids[1])
        .text("changed")
        .apply(store, 3)
        .await
        .expect("updated");
    delete_ids(store, &[ids[2]]).await;
    assert_eq!(as_of(3).await, (vec!["stays".to_owned()], 5));
    assert_eq!(
        as_of(5).await,
        (vec!["changed".to_owned(), "stays".to_owned()], 5)
    );
}
behaviour!(entries_that_changed_since_a_revision_are_left_out(store));

/// Without `explain` the result has no plan.
async fn the_plan_comes_when_asked_for(store: &dyn Store) {
    entry("x").store(store, 0).await;
    for explain in [true, false] {
        let selection = RowSelection {
            explain,
            ..EVERYTHING
        };
        let found = store
            .search_contexts(&me(), Filter::default(), page(10, 0), selection, now())
            .await
            .expect("read");
        assert_eq!(!found.plan.is_empty(), explain, "{:?}", found.plan);
    }
}
behaviour!(the_plan_comes_when_asked_for(store));
