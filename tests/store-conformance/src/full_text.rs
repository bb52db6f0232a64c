//! The full-text index follows every write, in the same transaction.

use context_model::{ContentType, Filter, Source, ThreadId};
use context_store::{DeleteCriteria, DocumentKind, FtsPage, FtsSearch, OwnerId, Page, Store};
use context_text::{Analyzer, Language, Mode, parse};

use crate::arrange::*;
use crate::suite::behaviour;

async fn ranked_for(
    store: &dyn Store,
    owner: &OwnerId,
    words: &str,
    filter: Filter,
    page: Page,
) -> FtsPage {
    let parsed = parse(Mode::Match, words, &Analyzer::new(Language::English))
        .expect("a query")
        .expect("has words");
    let search = FtsSearch {
        query: parsed,
        ranking_cap: 10_000,
        context_weight: 0.0,
    };
    store
        .fts_search(owner, search, filter, page, EVERYTHING, now())
        .await
        .expect("the search works")
}

async fn ranked(store: &dyn Store, words: &str, filter: Filter) -> FtsPage {
    ranked_for(store, &me(), words, filter, page(100, 0)).await
}

/// The texts that match these words, best first.
pub(super) async fn found(store: &dyn Store, words: &str) -> Vec<String> {
    found_in(store, words, Filter::default()).await
}

async fn found_in(store: &dyn Store, words: &str, filter: Filter) -> Vec<String> {
    ranked(store, words, filter)
        .await
        .entries
        .into_iter()
        .map(|found| found.entry.text)
        .collect()
}

/// Each word of the entry finds it, and so do words with the same stem.
async fn what_was_stored_is_found_at_once(store: &dyn Store) {
    assert!(
        found(store, "fox").await.is_empty(),
        "nothing was ever stored"
    );
    entry("The quick foxes").store(store, 0).await;
    for words in ["fox", "QUICK", "foxes quick"] {
        assert_eq!(found(store, words).await, ["The quick foxes"], "{words}");
    }
    assert!(found(store, "wolf").await.is_empty());
}
behaviour!(what_was_stored_is_found_at_once(store));

/// The same holds when the first query finds nothing and the fallback is used.
async fn a_page_of_matches_says_whether_more_follow(store: &dyn Store) {
    for at in 0..3 {
        entry(&format!("quick fox {at}")).store(store, at).await;
    }
    for words in ["fox", "fox wolf"] {
        for (page, expected) in [
            (page(2, 0), (2, true)),
            (page(2, 1), (2, false)),
            (page(3, 0), (3, false)),
            (page(1, 3), (0, false)),
        ] {
            let found = ranked_for(store, &me(), words, Filter::default(), page).await;
            let found = (found.entries.len(), found.has_more);
            assert_eq!(found, expected, "{words} {page:?}");
        }
    }
}
behaviour!(a_page_of_matches_says_whether_more_follow(store));

/// An entry counts once, however often it has the word. Words in tags and entries of other owners do not count. The
/// result is at most the maximum.
async fn the_frequency_of_a_word_is_the_number_of_entries_with_it(store: &dyn Store) {
    let counts = async |owner: &OwnerId, max| {
        let words = ["fox", "数据库", "wolf", "猫"].map(|words| {
            let parsed = parse(Mode::Match, words, &Analyzer::new(Language::English));
            parsed.expect("a query").expect("has words").query
        });
        store
            .document_frequencies(owner, DocumentKind::Context, words.to_vec(), max, now())
            .await
            .expect("counted")
    };
    assert_eq!(
        counts(&me(), 10).await,
        [0, 0, 0, 0],
        "nothing was ever stored"
    );
    let first = entry("The quick foxes, and a fox").store(store, 0).await.id;
    entry("数据库和猫").tags(&["wolf"]).store(store, 1).await;
    entry("a fox and a 猫头鹰").store(store, 2).await;
    assert_eq!(counts(&me(), 10).await, [2, 1, 0, 1]);
    assert_eq!(counts(&me(), 1).await, [1, 1, 0, 1]);
    assert_eq!(counts(&OwnerId::new("other"), 10).await, [0, 0, 0, 0]);
    delete_ids(store, &[first]).await;
    assert_eq!(counts(&me(), 10).await, [1, 1, 0, 1]);
}
behaviour!(the_frequency_of_a_word_is_the_number_of_entries_with_it(
    store
));

/// A long question in a script without spaces ranks the entry first that has most of its words.
async fn a_long_run_is_found_by_its_bigrams(store: &dyn Store) {
    for (at, text) in ["周六凌晨迁移数据库", "数据库报告在周一", "今天下雨"]
        .iter()
        .enumerate()
    {
        entry(text).store(store, at as i64).await;
    }
    assert_eq!(
        found(store, "我们的数据库到底什么时候迁移").await,
        ["周六凌晨迁移数据库", "数据库报告在周一"]
    );
    assert_eq!(found(store, "数据库").await.len(), 2);
}
behaviour!(a_long_run_is_found_by_its_bigrams(store));

/// Old words are removed, and new words are added.
async fn an_update_moves_the_words(store: &dyn Store) {
    let id = entry("apple").store(store, 0).await.id;
    update(id)
        .text("pear")
        .apply(store, 1)
        .await
        .expect("updated");
    assert!(found(store, "apple").await.is_empty());
    assert_eq!(found(store, "pear").await, ["pear"]);
    update(id)
        .metadata(serde_json::json!({"k": 1}))
        .apply(store, 2)
        .await
        .expect("updated");
    assert_eq!(found(store, "pear").await, ["pear"]);
    let updates = vec![update(id).text("plum").0, update(id).text("cherry").0];
    store
        .update_contexts(&me(), updates, true, options(3))
        .await
        .expect("updated");
    assert!(found(store, "plum").await.is_empty());
    assert_eq!(found(store, "cherry").await, ["cherry"]);
}
behaviour!(an_update_moves_the_words(store));

/// An entry's words are removed when it is deleted by id or with its thread.
async fn a_deleted_entry_is_not_found(store: &dyn Store) {
    let id = entry("apple").store(store, 0).await.id;
    entry("apple pie").store(store, 1).await;
    delete_ids(store, &[id]).await;
    assert_eq!(found(store, "apple").await, ["apple pie"]);
    let thread = DeleteCriteria {
        threads: Some(vec![ThreadId::from_stored("t".to_owned())]),
        ..DeleteCriteria::default()
    };
    assert_eq!(delete(store, thread).await, 1);
    assert!(found(store, "apple").await.is_empty());
}
behaviour!(a_deleted_entry_is_not_found(store));

/// Filters are thread, source, type, tags and dates.
async fn a_filter_narrows_the_matches(store: &dyn Store) {
    entry("fox one").tags(&["Ä"]).store(store, 0).await;
    entry("fox two").agent().store(store, 1).await;
    entry("fox three")
        .thread("u")
        .images(&[b"1"])
        .store(store, 2)
        .await;
    let thread_id = Some(ThreadId::from_stored("u".to_owned()));
    assert_eq!(
        found_in(
            store,
            "fox",
            Filter {
                thread_id,
                ..Filter::default()
            }
        )
        .await,
        ["fox three"]
    );
    assert_eq!(
        found_in(
            store,
            "fox",
            Filter {
                source: Some(Source::Agent),
                ..Filter::default()
            }
        )
        .await,
        ["fox two"]
    );
    assert_eq!(
        found_in(
            store,
            "fox",
            Filter {
                tags: Some(tags(&["ä", "b"])),
                ..Filter::default()
            }
        )
        .await,
        ["fox one"]
    );
    let content_type = Some(ContentType::Multimodal);
    assert_eq!(
        found_in(
            store,
            "fox",
            Filter {
                content_type,
                ..Filter::default()
            }
        )
        .await,
        ["fox three"]
    );
    assert_eq!(
        found_in(
            store,
            "fox",
            Filter {
                created_to: Some(at(0)),
                ..Filter::default()
            }
        )
        .await,
        ["fox one"]
    );
}
behaviour!(a_filter_narrows_the_matches(store));

/// Entries with equal scores are ordered newest first.
async fn scores_are_higher_for_better_matches(store: &dyn Store) {
    for text in [
        "fox and a lot of other words that are about something else",
        "fox fox",
        "nothing",
        "bear",
        "wolf",
        "hare",
        "goat",
        "lion",
    ] {
        entry(text).store(store, 0).await;
    }
    entry("fox fox").agent().store(store, 1).await;
    // The newest match is a worse one, so that an order by time alone would have it first.
    entry("many words about other animals, and one fox")
        .store(store, 2)
        .await;
    let page = ranked(store, "fox", Filter::default()).await;
    let scores: Vec<f64> = page.entries.iter().map(|found| found.score).collect();
    assert!(
        scores.len() == 4 && scores[1] > scores[2] && scores[3] > 0.0,
        "{scores:?}"
    );
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let best: Vec<(&str, Source)> = page.entries[..2]
        .iter()
        .map(|found| (found.entry.text.as_str(), found.entry.source))
        .collect();
    assert_eq!(
        best,
        [("fox fox", Source::Agent), ("fox fox", Source::User)]
    );
    assert_eq!(
        (page.capped_at, page.used_fallback, page.revision),
        (None, false, 10)
    );
}
behaviour!(scores_are_higher_for_better_matches(store));

/// The result says when more entries match than are ranked, but not when exactly as many do.
async fn the_newest_matches_up_to_the_maximum_are_ranked(store: &dyn Store) {
    for (at, text) in (0..).zip(["fox fox 0", "fox 1", "fox fox 2", "fox 3", "fox 4"]) {
        entry(text).store(store, at).await;
    }
    for (ranking_cap, expected, capped_at) in [
        (3, &["fox fox 2", "fox 4", "fox 3"][..], Some(3)),
        (4, &["fox fox 2", "fox 4", "fox 3", "fox 1"], Some(4)),
        (
            5,
            &["fox fox 2", "fox fox 0", "fox 4", "fox 3", "fox 1"],
            None,
        ),
    ] {
        let query = parse(Mode::Match, "fox", &Analyzer::new(Language::English));
        let search = FtsSearch {
            query: query.expect("a query").expect("has words"),
            ranking_cap,
            context_weight: 0.0,
        };
        let filter = Filter::default();
        let found = store
            .fts_search(&me(), search, filter, page(10, 0), EVERYTHING, now())
            .await
            .expect("the search works");
        let texts: Vec<&str> = found
            .entries
            .iter()
            .map(|found| found.entry.text.as_str())
            .collect();
        assert_eq!((&texts[..], found.capped_at), (expected, capped_at));
        assert!(!found.has_more, "{ranking_cap}");
    }
}
behaviour!(the_newest_matches_up_to_the_maximum_are_ranked(store));

/// One rare word counts more than two common ones (BM25).
async fn a_rare_word_counts_more_than_common_ones(store: &dyn Store) {
    for thread in 0..30 {
        entry("fox bear")
            .thread(&thread.to_string())
            .store(store, 0)
            .await;
    }
    entry("zebra").store(store, 0).await;
    // Any of the four words matches.
    assert_eq!(
        found(store, "fox bear zebra wolf").await[..2],
        ["zebra", "fox bear"]
    );
}
behaviour!(a_rare_word_counts_more_than_common_ones(store));

/// Not even many occurrences of the same words in another owner's entries change a score.
async fn other_owners_do_not_move_scores(store: &dyn Store) {
    for text in ["fox", "bear", "wolf", "hare"] {
        entry(text).store(store, 0).await;
    }
    let before = ranked(store, "fox", Filter::default()).await.entries[0].score;
    let theirs = OwnerId::new("other");
    for i in 0..50 {
        entry(&format!("fox {i}"))
            .store_for(store, &theirs, 0)
            .await;
    }
    let after = ranked(store, "fox", Filter::default()).await;
    assert_eq!(after.entries.len(), 1);
    assert!(
        (after.entries[0].score - before).abs() < 1e-9,
        "{before} became {}",
        after.entries[0].score
    );
}
behaviour!(other_owners_do_not_move_scores(store));

/// Pages of matches are disjoint and complete, even where all scores are equal.
async fn pages_of_matches_neither_repeat_nor_skip(store: &dyn Store) {
    let entries = (0..30).map(|i| entry(&format!("fox n{i}")).0).collect();
    store
        .store_contexts(&me(), entries, true, options(0))
        .await
        .expect("stored");
    let mut seen = Vec::new();
    for offset in (0..35).step_by(4) {
        let page = ranked_for(store, &me(), "fox", Filter::default(), page(4, offset)).await;
        seen.extend(page.entries.into_iter().map(|found| found.entry.text));
    }
    let expected: Vec<String> = (0..30).rev().map(|i| format!("fox n{i}")).collect();
    assert_eq!(seen, expected);
}
behaviour!(pages_of_matches_neither_repeat_nor_skip(store));

/// The copies of filter fields inside the index follow every update.
async fn updated_tags_and_images_move_the_filter(store: &dyn Store) {
    let id = entry("fox").tags(&["a"]).store(store, 0).await.id;
    update(id)
        .tags(&["b"])
        .images(&[b"1"])
        .apply(store, 1)
        .await
        .expect("updated");
    for (given, expected) in [("a", 0), ("b", 1)] {
        let filter = Filter {
            tags: Some(tags(&[given])),
            ..Filter::default()
        };
        assert_eq!(
            found_in(store, "fox", filter).await.len(),
            expected,
            "{given}"
        );
    }
    for (content_type, expected) in [(ContentType::Text, 0), (ContentType::Multimodal, 1)] {
        let filter = Filter {
            content_type: Some(content_type),
            ..Filter::default()
        };
        assert_eq!(
            found_in(store, "fox", filter).await.len(),
            expected,
            "{content_type:?}"
        );
    }
}
behaviour!(updated_tags_and_images_move_the_filter(store));
