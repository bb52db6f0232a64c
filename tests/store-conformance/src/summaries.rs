//! Summaries follow their entries, and are removed with their texts.

use context_model::ThreadSet;
use context_store::{LateSummary, OwnerId, Store, SummaryStore, Unsummarized};

use crate::arrange::*;
use crate::suite::behaviour;

fn summaries(store: &dyn Store) -> &dyn SummaryStore {
    store.summaries()
}

/// All entries that wait for a summary, from all pages.
async fn waiting(store: &dyn Store, min_chars: u32) -> Vec<Unsummarized> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = summaries(store)
            .unsummarized(after.as_ref(), min_chars, 5, 2)
            .await
            .expect("they are read");
        assert!(page.entries.len() <= 2);
        found.extend(page.entries);
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

async fn add(store: &dyn Store, id: i64, version: i64, summary: &str) -> bool {
    let late = LateSummary {
        id,
        version,
        summary: summary.to_owned(),
    };
    summaries(store)
        .add_summary(&me(), late)
        .await
        .expect("it is written")
}

/// The list has every owner's entries with enough characters, and the start of their texts.
async fn long_texts_wait_for_their_summaries(store: &dyn Store) {
    let other = OwnerId::new("other");
    for (second, text) in (0..).zip(["short", "äöüäöüäöü", "long enough", "and this one too"])
    {
        entry(text).store(store, second).await;
    }
    entry("of somebody else").store_for(store, &other, 0).await;
    let found = waiting(store, 9).await;
    let mut texts: Vec<&str> = found.iter().map(|entry| entry.text.as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["and t", "long ", "of so", "äöüäö"]);
    assert_eq!(found.iter().filter(|entry| entry.owner == other).count(), 1);
    assert!(found.iter().all(|entry| entry.version == 1));
}
behaviour!(long_texts_wait_for_their_summaries(store));

/// The number of entries with a summary, of all threads or of those with this name or beginning.
async fn summarized(store: &dyn Store, threads: Option<&str>) -> i64 {
    let threads =
        threads.map(|shown| ThreadSet::from_shown(&[shown.to_owned()]).expect("a valid name"));
    summaries(store)
        .summarized_entries(&me(), threads)
        .await
        .expect("counted")
}

/// The summary is shown with the entry and counted. It changes neither version nor revision.
async fn a_summary_joins_its_entry(store: &dyn Store) {
    entry("another text").thread("u").store(store, 0).await;
    let id = entry("a text that is long").store(store, 0).await.id;
    let before = revision(store).await;
    // Another owner has an entry, but none with this id.
    let other = OwnerId::new("other");
    entry("theirs").store_for(store, &other, 0).await;
    let of_others = LateSummary {
        id,
        version: 1,
        summary: "of another owner's entry".to_owned(),
    };
    let added = summaries(store).add_summary(&other, of_others).await;
    assert!(!added.expect("it is ignored"));
    assert_eq!(get_one(store, id).await.summary, "");
    assert!(add(store, id, 1, "in short").await);
    let found = get_one(store, id).await;
    assert_eq!((found.summary.as_str(), found.version), ("in short", 1));
    assert_eq!(revision(store).await, before);
    assert_eq!(summarized(store, None).await, 1);
    let thread = get_one(store, id).await.thread_id;
    assert_eq!(summarized(store, Some(thread.as_str())).await, 1);
    assert_eq!(
        summarized(store, Some("another*")).await,
        0,
        "a narrowed key"
    );
    assert_eq!(summarized(store, Some("u")).await, 0);
    let waiting = waiting(store, 1).await;
    let mut texts: Vec<&str> = waiting.iter().map(|entry| entry.text.as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["anoth", "their"], "the others still wait");
    assert!(!add(store, 999_999, 1, "of nothing").await);
}
behaviour!(a_summary_joins_its_entry(store));

/// A summary that arrives too late is rejected.
async fn an_updated_text_loses_its_summary(store: &dyn Store) {
    let id = entry("the first text").store(store, 0).await.id;
    assert!(add(store, id, 1, "the first").await);
    update(id)
        .tags(&["a"])
        .apply(store, 1)
        .await
        .expect("updated");
    assert_eq!(
        get_one(store, id).await.summary,
        "the first",
        "its text is the same"
    );
    update(id)
        .text("the second text")
        .apply(store, 2)
        .await
        .expect("updated");
    assert_eq!(get_one(store, id).await.summary, "");
    assert!(!add(store, id, 2, "too late").await);
    assert_eq!(
        waiting(store, 1)
            .await
            .iter()
            .map(|entry| entry.version)
            .collect::<Vec<_>>(),
        [3]
    );
    assert!(add(store, id, 3, "the second").await);
    assert_eq!(get_one(store, id).await.summary, "the second");
    delete_ids(store, &[id]).await;
    assert_eq!(summarized(store, None).await, 0);
}
behaviour!(an_updated_text_loses_its_summary(store));
