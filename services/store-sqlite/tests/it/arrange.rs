//! Builders and shortcuts.

use context_model::{EntryUpdate, Filter, NewEntry, Source, ThreadId, Timestamp};
use context_store::{
    FtsSearch, Memory, OwnerId, Page, Read, RowSelection, Store, StoreError, StoredBatch,
    WriteOptions, Written,
};
use context_text::{Analyzer, Language, Mode, parse};

pub fn entry(text: &str) -> NewEntry {
    NewEntry {
        thread_id: ThreadId::from_stored("t".into()),
        source: Source::User,
        text: text.into(),
        images: None,
        metadata: None,
        tags: None,
    }
}

pub fn update(id: i64, text: &str) -> EntryUpdate {
    EntryUpdate {
        id,
        text: Some(text.into()),
        metadata: None,
        tags: None,
        images: None,
        expected_version: None,
    }
}

pub fn options() -> WriteOptions {
    WriteOptions {
        now: Timestamp(1_700_000_000_000_000),
        idempotency: None,
        key_id: Some("key".into()),
        embeddings: Vec::new(),
    }
}

pub fn read() -> Read {
    Read::default()
}

pub const SELECTION: RowSelection = RowSelection {
    images: false,
    text_chars: None,
    explain: false,
    max_bytes: 1 << 30,
    memory: Memory::UNCOUNTED,
};

pub async fn store_batch(
    store: &dyn Store,
    entries: impl IntoIterator<Item = NewEntry>,
) -> Written<StoredBatch> {
    store
        .store_contexts(
            &OwnerId::default(),
            entries.into_iter().collect(),
            true,
            options(),
        )
        .await
        .unwrap()
}

/// The texts of all entries, newest first.
pub async fn all(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let page = Page {
        limit: 1000,
        offset: 0,
    };
    let found = store
        .search_contexts(
            &OwnerId::default(),
            Filter::default(),
            page,
            SELECTION,
            read(),
        )
        .await?;
    Ok(found.entries.into_iter().map(|entry| entry.text).collect())
}

pub async fn texts(store: &dyn Store) -> Vec<String> {
    all(store).await.unwrap()
}

/// The texts that match these words.
pub async fn found(store: &dyn Store, language: &str, words: &str) -> Vec<String> {
    found_with(store, language, words, 0.0).await
}

/// The texts for which these English words occur in the text or in its context window.
pub async fn found_with_context(store: &dyn Store, words: &str) -> Vec<String> {
    found_with(store, "english", words, 0.4).await
}

async fn found_with(
    store: &dyn Store,
    language: &str,
    words: &str,
    context_weight: f64,
) -> Vec<String> {
    let analyzer = Analyzer::new(Language::parse(language).unwrap_or(Language::Unstemmed));
    let query = parse(Mode::Match, words, &analyzer).unwrap().unwrap();
    let search = FtsSearch {
        query,
        ranking_cap: 1000,
        context_weight,
    };
    let page = Page {
        limit: 1000,
        offset: 0,
    };
    let found = store
        .fts_search(
            &OwnerId::default(),
            search,
            Filter::default(),
            page,
            SELECTION,
            read(),
        )
        .await
        .unwrap();
    found
        .entries
        .into_iter()
        .map(|found| found.entry.text)
        .collect()
}
