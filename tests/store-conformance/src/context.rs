//! A search with a context weight also finds a reply by the words of its context window.

use context_model::{Filter, Reason};
use context_store::{DeleteCriteria, FtsSearch, OwnerId, Store};
use context_text::{Analyzer, Language, Mode, Parsed, parse};

use crate::arrange::*;
use crate::suite::behaviour;

/// Texts and scores of the entries found by any of these words, best first.
async fn ranked(
    store: &dyn Store,
    owner: &OwnerId,
    words: &str,
    context_weight: f64,
) -> Vec<(String, f64)> {
    let parsed = parse(Mode::Match, words, &Analyzer::new(Language::English))
        .expect("a query")
        .expect("has words");
    let query = Parsed {
        query: parsed.loosest().clone(),
        fallback: None,
        candidates: Vec::new(),
    };
    let search = FtsSearch {
        query,
        ranking_cap: 10_000,
        context_weight,
    };
    let found = store
        .fts_search(
            owner,
            search,
            Filter::default(),
            page(100, 0),
            EVERYTHING,
            now(),
        )
        .await
        .expect("the search works");
    found
        .entries
        .into_iter()
        .map(|found| (found.entry.text, found.score))
        .collect()
}

/// Searches the entries' own words and those of their context windows.
async fn nearby(store: &dyn Store, words: &str) -> Vec<String> {
    ranked(store, &me(), words, 0.4)
        .await
        .into_iter()
        .map(|(text, _)| text)
        .collect()
}

/// Searches only the entries' own words.
async fn strictly(store: &dyn Store, words: &str) -> Vec<String> {
    ranked(store, &me(), words, 0.0)
        .await
        .into_iter()
        .map(|(text, _)| text)
        .collect()
}

const NOTHING: [&str; 0] = [];

/// An entry of a conversation: the user's at even seconds, the agent's reply at odd ones.
fn turn(text: &str, second: i64) -> Entry {
    if second % 2 == 0 {
        entry(text)
    } else {
        entry(text).agent()
    }
}

/// The words of an entry find the two entries after it, and never the ones before.
async fn the_words_before_an_entry_find_it(store: &dyn Store) {
    for (second, text) in (0..).zip([
        "good morning",
        "when does the build run",
        "at half past two",
        "thanks",
        "bye",
    ]) {
        turn(text, second).store(store, second).await;
    }
    assert_eq!(
        strictly(store, "build running").await,
        ["when does the build run"]
    );
    let found = nearby(store, "build running").await;
    assert_eq!(
        found[0], "when does the build run",
        "its own words weigh more"
    );
    let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        ["at half past two", "thanks", "when does the build run"]
    );
}
behaviour!(the_words_before_an_entry_find_it(store));

/// Neither the matches nor a single bit of a score change.
async fn a_search_without_the_context_window_ignores_it(store: &dyn Store) {
    let alone = OwnerId::new("alone");
    for (second, text) in (0..).zip([
        "fox and hound",
        "the fox",
        "a hound and many more words than that",
        "fox fox",
        "bear",
    ]) {
        turn(text, second).store(store, second).await;
        turn(text, second)
            .thread(&format!("thread {second}"))
            .store_for(store, &alone, second)
            .await;
    }
    for words in ["fox", "hound fox", "bear", "words hound"] {
        let (together, apart) = (
            ranked(store, &me(), words, 0.0).await,
            ranked(store, &alone, words, 0.0).await,
        );
        assert!(!together.is_empty(), "{words}");
        let bits = |found: &[(String, f64)]| {
            found
                .iter()
                .map(|(text, score)| (text.clone(), score.to_bits()))
                .collect::<Vec<_>>()
        };
        assert_eq!(bits(&together), bits(&apart), "{words}");
    }
}
behaviour!(a_search_without_the_context_window_ignores_it(store));

/// An entry whose preceding entry has the same source is no reply, so its window is empty.
async fn only_a_reply_has_a_context_window(store: &dyn Store) {
    entry("apple").store(store, 0).await;
    entry("a second note").store(store, 1).await;
    let reply = entry("the reply").agent().store(store, 2).await.id;
    entry("a further note").agent().store(store, 3).await;
    assert_eq!(nearby(store, "apple").await, ["apple", "the reply"]);
    assert_eq!(nearby(store, "reply").await, ["the reply"]);
    // Now the further note is the reply.
    assert_eq!(delete_ids(store, &[reply]).await, 1);
    assert_eq!(nearby(store, "apple").await, ["apple", "a further note"]);
    // After the gap an entry is no reply.
    entry("much later").store(store, 3 + 30 * 60 + 1).await;
    assert_eq!(nearby(store, "further").await, ["a further note"]);
}
behaviour!(only_a_reply_has_a_context_window(store));

/// The window covers at most half an hour, in one thread.
async fn only_near_entries_of_the_thread_count(store: &dyn Store) {
    entry("apple").store(store, 0).await;
    let elsewhere = entry("in another thread").agent();
    elsewhere.thread("u").store(store, 1).await;
    entry("soon").agent().store(store, 30 * 60).await;
    entry("late").store(store, 30 * 60 + 1).await;
    assert_eq!(nearby(store, "apple").await, ["apple", "soon"]);
    assert_eq!(nearby(store, "soon").await, ["soon", "late"]);
}
behaviour!(only_near_entries_of_the_thread_count(store));

/// Entries of a batch are in each other's windows like those of separate requests. Stop words are left out.
async fn entries_of_a_batch_are_in_each_others_context_windows(store: &dyn Store) {
    let batch = (0..).zip(["apple", "this and that", "pear"]);
    let batch = batch.map(|(n, text)| turn(text, n).0).collect();
    store
        .store_contexts(&me(), batch, true, options(0))
        .await
        .expect("stored");
    entry("plum").agent().store(store, 1).await;
    assert_eq!(nearby(store, "apple").await.len(), 3);
    assert_eq!(nearby(store, "pear").await, ["pear", "plum"]);
    assert_eq!(nearby(store, "that").await, ["this and that"]);
}
behaviour!(entries_of_a_batch_are_in_each_others_context_windows(store));

/// An entry's old words no longer find the entries after it, even if a request updates it more than once.
async fn an_update_takes_its_words_out_of_context_windows(store: &dyn Store) {
    let first = entry("apple").store(store, 0).await.id;
    entry("second").agent().store(store, 1).await;
    entry("third").store(store, 2).await;
    let updates = vec![update(first).text("plum").0, update(first).text("pear").0];
    store
        .update_contexts(&me(), updates, true, options(3))
        .await
        .expect("updated");
    for words in ["apple", "plum"] {
        assert_eq!(nearby(store, words).await, NOTHING, "{words}");
    }
    assert_eq!(nearby(store, "pear").await.len(), 3);
    entry("fourth").agent().store(store, 4).await;
    assert_eq!(nearby(store, "second").await.len(), 3);
}
behaviour!(an_update_takes_its_words_out_of_context_windows(store));

/// An entry whose tags change keeps the words of its context window.
async fn other_updates_keep_the_words_of_context_windows(store: &dyn Store) {
    entry("apple").store(store, 0).await;
    let second = entry("second").agent().store(store, 1).await.id;
    update(second)
        .tags(&["a"])
        .apply(store, 2)
        .await
        .expect("updated");
    update(second)
        .metadata(serde_json::json!({"k": 1}))
        .apply(store, 3)
        .await
        .expect("updated");
    assert_eq!(nearby(store, "apple").await, ["apple", "second"]);
    update(second)
        .text("other")
        .apply(store, 4)
        .await
        .expect("updated");
    assert_eq!(nearby(store, "apple").await, ["apple", "other"]);
}
behaviour!(other_updates_keep_the_words_of_context_windows(store));

/// Deleted words no longer find an entry. Earlier entries move into the windows.
async fn a_deleted_entry_takes_its_words_out_of_context_windows(store: &dyn Store) {
    let mut ids = Vec::new();
    for (second, text) in (0..).zip(["apple", "plum", "pear", "cherry", "grape", "melon"]) {
        ids.push(turn(text, second).store(store, second).await.id);
    }
    assert_eq!(delete_ids(store, &[ids[1], ids[2]]).await, 2);
    for words in ["plum", "pear"] {
        assert_eq!(nearby(store, words).await, NOTHING, "{words}");
    }
    let mut near_apple = nearby(store, "apple").await;
    near_apple.sort_unstable();
    assert_eq!(near_apple, ["apple", "cherry", "grape"]);
    let before = DeleteCriteria {
        created_before: Some(at(4)),
        ..DeleteCriteria::default()
    };
    assert_eq!(delete(store, before).await, 2);
    for words in ["apple", "cherry"] {
        assert_eq!(nearby(store, words).await, NOTHING, "{words}");
    }
    assert_eq!(nearby(store, "grape").await, ["grape", "melon"]);
    entry("quince").store(store, 9).await;
    assert_eq!(nearby(store, "grape").await.len(), 3);
}
behaviour!(a_deleted_entry_takes_its_words_out_of_context_windows(
    store
));

/// No word of a failed write finds anything.
async fn an_undone_write_leaves_no_words(store: &dyn Store) {
    let first = entry("apple").store(store, 0).await.id;
    let updates = vec![update(first).text("plum").0, update(999_999).text("z").0];
    let updated = store
        .update_contexts(&me(), updates, true, options(1))
        .await;
    assert_eq!(reason(updated), Reason::ContextNotFound);
    entry("second").agent().store(store, 2).await;
    assert_eq!(nearby(store, "plum").await, NOTHING);
    assert_eq!(nearby(store, "apple").await, ["apple", "second"]);
}
behaviour!(an_undone_write_leaves_no_words(store));
