//! Converts entries to search results, and collects the statistics of a search.

use std::collections::HashMap;
use std::time::Instant;

use context_model::{ArtifactId, Error, QueryStats, Result, Scores, SearchHit};
use context_store::{RowSelection, StoredEntry, seal};
use context_text::Query;

use super::Retrieval;
use super::documents::{end_of_shown, shown_text};
use super::evidence::{Evidence, SNIPPET_CHARS};
use super::truncate::truncate;
use crate::access::Caller;

/// The parts of a text that a result shows beside its opening.
#[derive(Debug, Default)]
pub(super) struct Extracts {
    /// A passage with the words of the query marked.
    highlighted: Option<String>,
    /// The passage that matches the query best.
    snippet: Option<String>,
}

/// Returns the entries and documents that match their checksums, and a warning for each damaged one. Damaged ones are
/// logged.
pub(super) fn undamaged(entries: Vec<StoredEntry>) -> (Vec<StoredEntry>, Vec<String>) {
    let mut warnings = Vec::new();
    let mut keep = |entry: &StoredEntry| {
        let Some(part) = entry.damage else {
            return true;
        };
        // The thread of a document is the artifact's id.
        let artifact = ArtifactId::parse(&entry.thread_id).ok();
        let (what, error) = match artifact.filter(|_| entry.id < 0) {
            Some(id) => (
                format!("artifact {id}"),
                seal::refuse_artifact(&id, entry.version),
            ),
            None => (
                format!("context {}", entry.id),
                seal::refuse_context(entry.id, part),
            ),
        };
        tracing::error!("Left {what} out of a search: {}", error.message);
        warnings.push(format!("{what} is left out: {}", error.message));
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
    /// truncated. `None` stands for whole texts, which highlighting needs.
    pub(super) fn text_chars_to_read(&self, highlight: bool) -> Option<u32> {
        if highlight {
            return None;
        }
        u32::try_from(self.search.truncation_length + 1).ok()
    }

    /// The results of a page, in the order of its entries, and a warning for each damaged entry. With `highlighted`,
    /// each result has a passage with the words of this query marked. With `evidence`, results of long texts have a
    /// snippet, the passage that matches best.
    pub(super) async fn results(
        &self,
        entries: Vec<StoredEntry>,
        mut scores: HashMap<i64, Scores>,
        highlighted: Option<Query>,
        evidence: Option<Evidence>,
    ) -> Result<(Vec<SearchHit>, Vec<String>)> {
        let (entries, damaged) = undamaged(entries);
        let entries = self.extracts(entries, highlighted, evidence).await?;
        let hit = |(entry, extracts): (StoredEntry, Extracts)| {
            let scores = scores.remove(&entry.id);
            self.hit(entry, scores, extracts)
        };
        let hits = entries.into_iter().map(hit).collect();
        Ok((hits, damaged))
    }

    /// The extracts of each entry's text. Texts may be long, so this runs outside the async workers.
    async fn extracts(
        &self,
        entries: Vec<StoredEntry>,
        highlighted: Option<Query>,
        evidence: Option<Evidence>,
    ) -> Result<Vec<(StoredEntry, Extracts)>> {
        let shown_chars = self.search.truncation_length;
        let is_cut = |entry: &StoredEntry| end_of_shown(entry, shown_chars).is_some();
        let evidence = evidence.filter(|_| entries.iter().any(is_cut));
        if highlighted.is_none() && evidence.is_none() {
            let without = |entry| (entry, Extracts::default());
            return Ok(entries.into_iter().map(without).collect());
        }
        let analyzer = self.analyzer.clone();
        let extract = move |entry: StoredEntry| {
            let extracts = Extracts {
                highlighted: highlighted.as_ref().map(|query| {
                    context_text::highlight(&entry.text, query, &analyzer, SNIPPET_CHARS)
                }),
                snippet: evidence
                    .as_ref()
                    .and_then(|evidence| evidence.snippet(&entry, shown_chars, &analyzer)),
            };
            (entry, extracts)
        };
        tokio::task::spawn_blocking(move || entries.into_iter().map(extract).collect())
            .await
            .map_err(Error::internal)
    }

    /// Converts an entry to a search result.
    pub(super) fn hit(
        &self,
        entry: StoredEntry,
        scores: Option<Scores>,
        extracts: Extracts,
    ) -> SearchHit {
        let Extracts {
            highlighted,
            snippet,
        } = extracts;
        let mut entry = entry;
        let text = shown_text(&mut entry);
        let StoredEntry {
            id,
            thread_id,
            source,
            content_type,
            text: _,
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
            snippet,
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

#[cfg(test)]
mod tests {
    use context_model::{ContentType, ObjectText, Source, Timestamp};
    use context_store::seal::Part;

    use super::*;

    #[test]
    fn the_warning_about_a_damaged_document_names_the_artifact() {
        let artifact = "01890a5d-ac96-774b-bcce-b302099a8057";
        let entry = |id, damage| StoredEntry {
            id,
            thread_id: artifact.to_owned(),
            source: Source::Agent,
            content_type: ContentType::Text,
            text: String::new(),
            summary: String::new(),
            metadata: ObjectText::default(),
            tags: Vec::new(),
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            version: 3,
            images: None,
            damage,
        };
        let damaged = Some(Part::Checksum);
        let (sound, warnings) =
            undamaged(vec![entry(-7, damaged), entry(-8, None), entry(9, damaged)]);
        assert_eq!(sound.len(), 1);
        assert_eq!(warnings.len(), 2);
        let expected = format!("artifact {artifact} is left out: version 3 of artifact {artifact}");
        assert!(warnings[0].starts_with(&expected), "{}", warnings[0]);
        assert!(
            warnings[1].starts_with("context 9 is left out"),
            "{}",
            warnings[1]
        );
    }
}
