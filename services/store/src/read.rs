//! The options and the results of reads of entries, threads, tags and statistics.

use std::time::Duration;

use context_model::{
    ConnectionMetrics, ContentType, ContentTypeCounts, ImageInput, ObjectText, Source,
    SourceCounts, TagCount, Thread, Timestamp,
};
use context_text::Parsed;

use crate::Memory;
use crate::seal::Part;

/// Options of a read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Read {
    /// The read must see at least this revision of the owner. If the database can never reach it, the read fails at
    /// once.
    pub min_revision: Option<i64>,
    /// How long a standby, or a copy of another service, waits for that revision.
    pub wait: Duration,
    /// Omit entries and artifacts that changed after this revision, so that the result is their state at that revision.
    /// Only [`get_contexts`](crate::Store::get_contexts) and
    /// [`artifact_documents`](crate::ArtifactStore::artifact_documents) support it.
    pub as_of: Option<i64>,
}

/// A page of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Maximum number of rows.
    pub limit: u32,
    /// Number of rows to skip.
    pub offset: u64,
}

impl Page {
    /// The same page with one row more, which shows whether other rows follow.
    #[must_use]
    pub const fn and_one(self) -> Self {
        Self {
            limit: self.limit.saturating_add(1),
            offset: self.offset,
        }
    }

    /// Removes the rows beyond this page. Returns whether there were any.
    pub fn cut<T>(self, rows: &mut Vec<T>) -> bool {
        let has_more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        has_more
    }
}

/// The parts of each row to read.
#[derive(Debug, Clone)]
pub struct RowSelection {
    /// Whether to read image data.
    pub images: bool,
    /// Maximum number of characters read of each text. `None` reads all.
    pub text_chars: Option<u32>,
    /// Whether to return the query plan.
    pub explain: bool,
    /// Maximum number of bytes of the page's entries: texts, metadata, tags, summaries and images. A larger page is
    /// rejected with `RESULT_TOO_LARGE`, except when it has only one entry.
    pub max_bytes: u64,
    /// The memory budget that counts the page's bytes: each entry when it was read, images with their metadata before
    /// they are read, and the parsed metadata of each image.
    pub memory: Memory,
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEntry {
    /// The entry's id.
    pub id: i64,
    /// The thread.
    pub thread_id: String,
    /// Whether a user or an agent wrote it.
    pub source: Source,
    /// Whether it has images.
    pub content_type: ContentType,
    /// The selected part of the text.
    pub text: String,
    /// The generated summary, or "".
    pub summary: String,
    /// The metadata.
    pub metadata: ObjectText,
    /// The tags, sorted.
    pub tags: Vec<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was last updated.
    pub updated_at: Timestamp,
    /// The version.
    pub version: i64,
    /// The images, in order, if they were selected.
    pub images: Option<Vec<ImageInput>>,
    /// The damaged part, if what was read shows damage. Such an entry must not be shown.
    pub damage: Option<Part>,
}

/// Entries of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchPage {
    /// The entries, in order.
    pub entries: Vec<StoredEntry>,
    /// Whether more entries follow the page. Always false in a read by ids.
    pub has_more: bool,
    /// The owner's revision when the page was read.
    pub revision: i64,
    /// The query plan, one line per element. Empty unless requested.
    pub plan: Vec<String>,
}

/// A full-text search.
#[derive(Debug, Clone)]
pub struct FtsSearch {
    /// The query, with the fallback to use when the strict query has no match under the filter.
    pub query: Parsed,
    /// Maximum number of matches that are ranked, newest first.
    pub ranking_cap: u32,
    /// Weight of the preceding entries' words relative to the entry's own words (1.0). 0 disables them.
    pub context_weight: f64,
}

/// Ranked entries of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct FtsPage {
    /// The entries with their scores, best first.
    pub entries: Vec<ScoredEntry>,
    /// Whether more ranked entries follow the page.
    pub has_more: bool,
    /// Whether the fallback query was used.
    pub used_fallback: bool,
    /// The cap, if more entries matched than were ranked.
    pub capped_at: Option<u32>,
    /// The owner's revision when the page was read.
    pub revision: i64,
    /// The query plan, one line per element. Empty unless requested.
    pub plan: Vec<String>,
}

/// A ranked entry.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredEntry {
    /// The entry.
    pub entry: StoredEntry,
    /// The score. Higher is better.
    pub score: f64,
}

/// Threads of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadsPage {
    /// The threads, in order.
    pub threads: Vec<Thread>,
    /// Number of all threads that were selected.
    pub total: i64,
    /// The owner's revision when the page was read.
    pub revision: i64,
}

/// Maximum number of threads that a search by name reads: those with the latest activity.
pub const MAX_NAMED_THREADS: i64 = 100_000;

/// The metadata of the newest entries.
#[derive(Debug, Clone, Default)]
pub struct MetadataSample {
    /// The metadata of each entry, newest first. `None` if it is longer than the requested maximum, or damaged.
    pub objects: Vec<Option<ObjectText>>,
    /// The owner's revision when they were read.
    pub revision: i64,
}

/// The number of entries by day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DayCounts {
    /// Pairs of a day, counted from 1970-01-01, and its number of entries. Newest first.
    pub days: Vec<(i64, i64)>,
    /// The owner's revision when they were counted.
    pub revision: i64,
}

/// Tags of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagsPage {
    /// The tags, in order.
    pub tags: Vec<TagCount>,
    /// Number of all tags that were selected.
    pub total: i64,
    /// The owner's revision when the page was read.
    pub revision: i64,
}

impl TagsPage {
    /// The page of an owner that has never written.
    pub const EMPTY: Self = Self {
        tags: Vec::new(),
        total: 0,
        revision: 0,
    };
}

/// The storage used by an owner.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of context entries.
    pub entries: u64,
    /// Number of artifacts.
    pub artifacts: u64,
    /// Bytes of texts, metadata, tags, images, all versions of artifacts and the artifacts' paths, as given by callers,
    /// plus the stored outcomes of requests with an idempotency key.
    pub bytes: u64,
}

/// The owner's counts and the state of the database.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreStatistics {
    /// Number of entries.
    pub total_entries: i64,
    /// Entries by source.
    pub by_source: SourceCounts,
    /// Entries by content type.
    pub by_content_type: ContentTypeCounts,
    /// Number of images.
    pub total_images: i64,
    /// Number of distinct tags in use.
    pub unique_tags: i64,
    /// Number of entries in the full-text index.
    pub indexed_entries: i64,
    /// Size of the database on disk, in bytes. In statistics of a set of threads: the bytes of the texts, metadata, tags
    /// and images of their entries.
    pub database_bytes: u64,
    /// Use of the connections.
    pub connections: ConnectionMetrics,
    /// The full-text engine: `fts5` or `tsvector`.
    pub fts_engine: &'static str,
    /// The owner's revision when the counts were read.
    pub revision: i64,
}
