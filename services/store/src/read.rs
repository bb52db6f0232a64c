use std::time::Duration;

use context_model::{
    ConnectionMetrics, ContentType, ContentTypeCounts, ImageInput, ObjectText, Source,
    SourceCounts, Thread, Timestamp,
};
use context_text::Parsed;

use crate::Memory;
use crate::seal::Part;

/// What comes with every read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// Read a state that has the owner's revision. Where no later state can come, one beyond it is refused at once.
    pub min_revision: Option<i64>,
    /// Wait at most this long for it, where it may still come: on a standby.
    pub wait: Duration,
    /// Leave out entries that changed after this revision, so that what is read is their state at it. Only
    /// [`get_contexts`](crate::Store::get_contexts) heeds it.
    pub as_of: Option<i64>,
}

/// A page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Rows at most.
    pub limit: u32,
    /// Rows to skip.
    pub offset: u64,
}

/// How much of each row is read.
#[derive(Debug, Clone)]
pub struct RowSelection {
    /// Whether image data is read.
    pub images: bool,
    /// Characters of each text that are read, at most; `None`: all.
    pub text_chars: Option<u32>,
    /// Whether the database's plan is asked for.
    pub explain: bool,
    /// The bytes of text and images the page may hold, at most; one single entry is never refused. Beyond it the read
    /// is `RESULT_TOO_LARGE`.
    pub max_bytes: u64,
    /// Where the bytes that the page holds are counted, before they are loaded.
    pub memory: Memory,
}

/// An entry as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEntry {
    /// The entry's id.
    pub id: i64,
    /// The thread.
    pub thread_id: String,
    /// Who wrote it.
    pub source: Source,
    /// Whether it has images.
    pub content_type: ContentType,
    /// The text, as much of it as was selected.
    pub text: String,
    /// The generated summary, or "".
    pub summary: String,
    /// Its metadata.
    pub metadata: ObjectText,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was last updated.
    pub updated_at: Timestamp,
    /// Its version.
    pub version: i64,
    /// Its images in order, when they were selected.
    pub images: Option<Vec<ImageInput>>,
    /// What of it is not what was stored, as far as it was read. Such an entry is not to be shown.
    pub damage: Option<Part>,
}

/// Entries of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage {
    /// The entries in order.
    pub entries: Vec<StoredEntry>,
    /// The owner's revision the page shows.
    pub revision: i64,
    /// The database's plan, a line each; empty unless asked for.
    pub plan: Vec<String>,
}

/// A full-text search.
#[derive(Debug, Clone)]
pub struct FtsSearch {
    /// The query, with its fallback when the strict one has no match under the filter.
    pub query: Parsed,
    /// Rank at most this many of the newest matches.
    pub ranking_cap: u32,
    /// What the words of an entry's neighbours weigh, beside 1 for its own. 0: only an entry's own words count.
    pub context_weight: f64,
}

/// Ranked entries of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct FtsPage {
    /// The entries with their scores, best first.
    pub entries: Vec<ScoredEntry>,
    /// Whether the fallback query was used.
    pub used_fallback: bool,
    /// The cap, when more entries matched than were ranked.
    pub capped_at: Option<u32>,
    /// The owner's revision the page shows.
    pub revision: i64,
    /// The database's plan, a line each; empty unless asked for.
    pub plan: Vec<String>,
}

/// A ranked entry.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredEntry {
    /// The entry.
    pub entry: StoredEntry,
    /// Its score; higher is better.
    pub score: f64,
}

/// Threads of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadsPage {
    /// The threads in order.
    pub threads: Vec<Thread>,
    /// Threads in all.
    pub total: i64,
    /// The owner's revision the page shows.
    pub revision: i64,
}

/// What an owner has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Context entries.
    pub entries: u64,
    /// Artifacts.
    pub artifacts: u64,
    /// Bytes of texts, metadata, images and all versions of artifacts, as they were given, and of the stored outcomes of
    /// requests with an idempotency key.
    pub bytes: u64,
}

/// The owner's counts and the state of the database.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreStatistics {
    /// Entries.
    pub total_entries: i64,
    /// Entries by source.
    pub by_source: SourceCounts,
    /// Entries by content type.
    pub by_content_type: ContentTypeCounts,
    /// Images.
    pub total_images: i64,
    /// Different tags in use.
    pub unique_tags: i64,
    /// Entries in the full-text index.
    pub indexed_entries: i64,
    /// Bytes of the database on disk.
    pub database_bytes: u64,
    /// How connections are used.
    pub connections: ConnectionMetrics,
    /// The full-text engine: `fts5` or `tsvector`.
    pub fts_engine: &'static str,
    /// The owner's revision the counts show.
    pub revision: i64,
}
