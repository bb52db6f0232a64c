//! Summaries of texts, which are generated after their entries are stored.

use async_trait::async_trait;
use context_model::ThreadSet;

use crate::{OwnerId, Result, ScanCursor};

/// An entry without a summary whose text is long enough for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsummarized {
    /// The owner of the entry.
    pub owner: OwnerId,
    /// The entry's id.
    pub id: i64,
    /// The version that was read.
    pub version: i64,
    /// The text, up to `max_chars` characters.
    pub text: String,
}

/// A page of entries without summaries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsummarizedPage {
    /// The entries.
    pub entries: Vec<Unsummarized>,
    /// Where to continue. `None` when all entries were checked.
    pub next: Option<ScanCursor>,
}

/// A generated summary for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateSummary {
    /// The entry.
    pub id: i64,
    /// The version that was summarised. If the entry has a later version, the summary is ignored.
    pub version: i64,
    /// The summary. Not empty, without U+0000.
    pub summary: String,
}

/// A database that stores summaries. An update of a text deletes its summary in the same transaction.
#[async_trait]
pub trait SummaryStore: Send + Sync {
    /// Entries of all owners whose text has at least `min_chars` characters and no summary, at most `limit`. Checks
    /// only as many entries as can be checked quickly. At most `max_chars` characters of each text are read. `after` is
    /// where the previous page ended, or `None` for the first page.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn unsummarized(
        &self,
        after: Option<&ScanCursor>,
        min_chars: u32,
        max_chars: u32,
        limit: u32,
    ) -> Result<UnsummarizedPage>;

    /// Stores the summary of an entry. Returns false if the entry changed or was deleted in the meantime. The version
    /// and the revision do not change.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn add_summary(&self, owner: &OwnerId, summary: LateSummary) -> Result<bool>;

    /// Number of the owner's entries, or of those in a set of threads, that have a summary.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn summarized_entries(&self, owner: &OwnerId, threads: Option<ThreadSet>) -> Result<i64>;
}
