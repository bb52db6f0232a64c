//! Summaries of texts, which come after the entries they are of.

use async_trait::async_trait;

use crate::{OwnerId, Place, Result};

/// An entry that has no summary and a text that is long enough for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsummarized {
    /// Whose it is.
    pub owner: OwnerId,
    /// Its id.
    pub id: i64,
    /// Its version when it was read.
    pub version: i64,
    /// Its text, as much of it as was asked for.
    pub text: String,
}

/// Some entries without summaries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsummarizedPage {
    /// The entries.
    pub entries: Vec<Unsummarized>,
    /// Where to go on; `None` when every entry was looked at.
    pub next: Option<Place>,
}

/// A summary for an entry that waited for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateSummary {
    /// The entry.
    pub id: i64,
    /// The version whose text it is of; a later one keeps waiting.
    pub version: i64,
    /// The summary, not empty and without U+0000.
    pub summary: String,
}

/// A database that keeps summaries. An update of a text takes its summary away, in the same transaction.
#[async_trait]
pub trait SummaryStore: Send + Sync {
    /// Entries of every owner with texts of at least `min_chars` characters and without a summary, at most `limit`; looks at
    /// no more entries than is quick. Of each text the first `max_chars` characters are read. `after` is where the page
    /// before ended, `None` to begin with.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn unsummarized(
        &self,
        after: Option<&Place>,
        min_chars: u32,
        max_chars: u32,
        limit: u32,
    ) -> Result<UnsummarizedPage>;

    /// Gives an entry its summary, and says whether it took it: one that changed or went does not. Neither version nor
    /// revision moves.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn add_summary(&self, owner: &OwnerId, summary: LateSummary) -> Result<bool>;

    /// How many of the owner's entries have a summary.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn summarized_entries(&self, owner: &OwnerId) -> Result<i64>;
}
