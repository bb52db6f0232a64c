//! Converts entries to search results, and collects the statistics of a search.

use std::collections::HashMap;
use std::time::Instant;

use context_model::{Error, QueryStats, Result, Scores, SearchHit};
use context_store::{RowSelection, StoredEntry, seal};
use context_text::Query;

use super::Retrieval;
use super::truncate::truncate;
use crate::access::Caller;

/// Maximum number of characters in a highlighted snippet.
const SNIPPET_CHARS: usize = 300;

/// Returns the entries that match their checksums, and a warning for each damaged entry. Damaged entries are logged.
pub(super) fn undamaged(entries: Vec<StoredEntry>) -> (Vec<StoredEntry>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut keep = |entry: &StoredEntry| {
        let Some(part) = entry.damage else {
            return true;
        };
        let error = seal::refuse_context(entry.id, part);
        tracing::error!("An entry was left out of a search: {}", error.message);
        warnings.push(format!(
            "context {} is left out: {}",
            entry.id, error.message
        ));
        false
    };
    let entries = entries.into_iter().filter(&mut keep).collect();
    (entries, warnings)
}

/// Milliseconds since `since`.
pub(super) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

impl Retrieval {
    /// Number of characters to read of each text. One more than a result shows, to detect whether the text is
    /// truncated. `None` when results are highlighted, because snippets need whole texts.
    pub(super) fn text_chars_to_read(&self, highlight: bool) -> Option<u32> {
        if highlight {
            return None;
        }
        u32::try_from(self.search.truncation_length + 1).ok()
    }

    /// The results of a page, in the order of its entries, and a warning for each damaged entry. With `highlighted`,
    /// each result has a snippet with the words of this query marked.
    pub(super) async fn results(
        &self,
        entries: Vec<StoredEntry>,
        mut scores: HashMap<i64, Scores>,
        highlighted: Option<Query>,
    ) -> Result<(Vec<SearchHit>, Vec<String>)> {
        let (entries, damaged) = undamaged(entries);
        let snippets = match highlighted {
            Some(query) => self.snippets(&entries, query).await?,
            None => vec![None; entries.len()],
        };
        let hit = |(entry, snippet): (StoredEntry, Option<String>)| {
            let scores = scores.remove(&entry.id);
            self.hit(entry, scores, snippet)
        };
        let hits = entries.into_iter().zip(snippets).map(hit).collect();
        Ok((hits, damaged))
    }

    /// Creates a snippet of each text with the query's words marked. Texts may be long, so this runs outside the async
    /// workers.
    async fn snippets(&self, entries: &[StoredEntry], query: Query) -> Result<Vec<Option<String>>> {
        let analyzer = self.analyzer.clone();
        let texts: Vec<String> = entries.iter().map(|entry| entry.text.clone()).collect();
        let mark = move || {
            texts
                .iter()
                .map(|text| {
                    Some(context_text::highlight(
                        text,
                        &query,
                        &analyzer,
                        SNIPPET_CHARS,
                    ))
                })
                .collect()
        };
        tokio::task::spawn_blocking(mark)
            .await
            .map_err(Error::internal)
    }

    /// Converts an entry to a search result.
    pub(super) fn hit(
        &self,
        entry: StoredEntry,
        scores: Option<Scores>,
        highlighted: Option<String>,
    ) -> SearchHit {
        let StoredEntry {
            id,
            thread_id,
            source,
            content_type,
            text,
            summary,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
            damage: _,
        } = entry;
        let (text_content, is_text_content_truncated) =
            truncate(text, self.search.truncation_length);
        SearchHit {
            id,
            thread_id,
            source,
            content_type,
            text_content,
            summary,
            is_text_content_truncated,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
            scores,
            highlighted,
            relevance: None,
        }
    }

    /// The parts of each entry that a search reads.
    pub(super) fn selection(
        &self,
        caller: &Caller,
        include_images: Option<bool>,
        explain: bool,
        text_chars: Option<u32>,
    ) -> RowSelection {
        RowSelection {
            images: include_images.unwrap_or(false),
            text_chars,
            explain,
            max_bytes: self.max_reply_bytes,
            memory: caller.memory.clone(),
        }
    }

    /// The statistics of a search, for `explain_query`.
    pub(super) fn stats(
        &self,
        started: Instant,
        filters: usize,
        rows: usize,
        query_plan: Vec<String>,
        capped_at: Option<u32>,
    ) -> QueryStats {
        QueryStats {
            execution_time_ms: (started.elapsed().as_secs_f64() * 1e6).round() / 1e3,
            filters_applied: filters as i64,
            rows_returned: rows as i64,
            backend: self.store.backend().to_owned(),
            query_plan,
            ranking_cap: capped_at.map(i64::from),
        }
    }
}
