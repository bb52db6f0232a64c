//! What a database must do for the context service: the [`Store`] trait, its errors, the in-memory oracle for filters
//! and the conformance suite that every database runs.
//!
//! A store gets domain types that obey every rule already. It never sees a scope or a status code, and only touches
//! the owner it is given. Every write is one transaction, durable when the call returns.

pub mod bm25;
pub mod call;
pub mod clock;
pub mod conformance;
pub mod generate;
pub mod oracle;
pub mod rules;
pub mod seal;
pub mod transfer;

mod artifacts;
mod error;
mod keys;
mod memory;
mod neighbourhood;
mod read;
mod record;
mod sealing;
mod shares;
mod summaries;
mod vectors;
mod write;

pub use artifacts::{
    ArtifactHistory, ArtifactPage, ArtifactRestore, ArtifactStore, ArtifactsPage, AtRevision,
    ListedArtifact, ListedVersion, PageStart, StoredArtifact, StoredVersion, VersionLookup,
};
pub use error::{BoxError, StoreError};
pub use keys::{AuditLine, Denial, KeyChange, KeyEvent, KeyStore, OwnerSummary, StoredKey};
pub use memory::{Memory, Meter};
pub use neighbourhood::Neighbourhood;
pub use read::{
    FtsPage, FtsSearch, Page, Read, RowSelection, ScoredEntry, SearchPage, StoreStatistics,
    StoredEntry, ThreadsPage, Usage,
};
pub use record::{Once, Record, Recorded, RecordedItem};
pub use sealing::{SealStore, SealedPage, Soundness};
pub use shares::{Sharer, Shares};
pub use summaries::{LateSummary, SummaryStore, Unsummarized, UnsummarizedPage};
pub use vectors::{
    ChunkPlace, ChunkTokens, Embedded, EmbeddedChunk, Embedding, EmbeddingModel, LateEmbedding,
    ModelUse, MoveState, Moved, Place, RankSearch, RankedByMeaning, RankedByWords, Ranking,
    SemanticSearch, Unembedded, UnembeddedPage, VectorStore,
};
pub use write::{
    DeleteCriteria, ErrorByMessage, Idempotency, ItemError, ItemOutcome, StoredBatch, WriteOptions,
    Written,
};

use std::sync::Arc;

use async_trait::async_trait;
use context_model::{EntryUpdate, Filter, NewEntry, ThreadSet, Timestamp};

/// What a store call gives.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// The owner (tenant) of entries: `default` when authentication is off. Not empty, without U+0000.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// The owner of everything stored without authentication.
    pub const DEFAULT: &'static str = "default";

    /// An owner by name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OwnerId {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}

/// A database of context entries.
///
/// Dropping a returned future does not undo or halve a write: once it was handed over it runs to its end. A write that
/// still waits in a queue when its future is dropped may be skipped. A read whose future is dropped is stopped, and one
/// that is not done at the [deadline of its call](call::deadline) fails with [`StoreError::TooSlow`].
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The database's name in statistics: `sqlite` or `postgresql`.
    fn backend(&self) -> &'static str;

    /// Whether the database answers reads now, has the schema of this binary and has reported no damage to its structure.
    ///
    /// # Errors
    /// What keeps it from answering.
    async fn check(&self) -> Result<()>;

    /// What the store can do with vectors; `None` when it keeps none.
    fn vectors(&self) -> Option<&dyn VectorStore> {
        None
    }

    /// What the store can do with summaries; `None` when it keeps none.
    fn summaries(&self) -> Option<&dyn SummaryStore> {
        None
    }

    /// What the store can do for rows without checksums; `None` when it keeps none.
    fn seals(&self) -> Option<&dyn SealStore> {
        None
    }

    /// Stores entries in order. With `atomic` the first failure undoes all and is the error (wrapped in
    /// [`StoreError::Item`]); without it each item stands alone.
    ///
    /// The retransmit rule of the contract is decided inside the transaction, for each item.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is stored then.
    async fn store_contexts(
        &self,
        owner: &OwnerId,
        entries: Vec<NewEntry>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>>;

    /// Updates entries in order, with the same meaning of `atomic`. An unknown id is `CONTEXT_NOT_FOUND`, another
    /// version than the expected one `VERSION_MISMATCH`.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then.
    async fn update_contexts(
        &self,
        owner: &OwnerId,
        updates: Vec<EntryUpdate>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>>;

    /// Deletes what the criteria select and gives the number of entries deleted.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is deleted then.
    async fn delete_contexts(
        &self,
        owner: &OwnerId,
        criteria: DeleteCriteria,
        options: WriteOptions,
    ) -> Result<Written<u64>>;

    /// Entries by id, newest first (created_at, then id, descending); unknown ids are skipped.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn get_contexts(
        &self,
        owner: &OwnerId,
        ids: Vec<i64>,
        selection: RowSelection,
        read: Read,
    ) -> Result<SearchPage>;

    /// Entries that satisfy the filter, newest first.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn search_contexts(
        &self,
        owner: &OwnerId,
        filter: Filter,
        page: Page,
        selection: RowSelection,
        read: Read,
    ) -> Result<SearchPage>;

    /// Entries that match the query and satisfy the filter, best first (score, then id, descending).
    ///
    /// # Errors
    /// [`StoreError`].
    async fn fts_search(
        &self,
        owner: &OwnerId,
        search: FtsSearch,
        filter: Filter,
        page: Page,
        selection: RowSelection,
        read: Read,
    ) -> Result<FtsPage>;

    /// Threads, latest activity first (last entry, then last id, descending).
    ///
    /// # Errors
    /// [`StoreError`].
    async fn list_threads(&self, owner: &OwnerId, page: Page, read: Read) -> Result<ThreadsPage>;

    /// The same, of these threads alone.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn list_threads_within(
        &self,
        owner: &OwnerId,
        threads: ThreadSet,
        page: Page,
        read: Read,
    ) -> Result<ThreadsPage>;

    /// The counts of the entries in these threads, and the state of the database. It costs as much as these entries are.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn statistics_within(
        &self,
        owner: &OwnerId,
        threads: ThreadSet,
        read: Read,
    ) -> Result<StoreStatistics>;

    /// The owner's counts and the state of the database. Cheap whatever the size.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn statistics(&self, owner: &OwnerId, read: Read) -> Result<StoreStatistics>;

    /// What the owner has. It costs as much as its entries and artifacts are many, but reads no text.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn usage(&self, owner: &OwnerId) -> Result<Usage>;

    /// Whether the outcome of a request with this idempotency key is stored, so that a write with it adds nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn is_recorded(&self, owner: &OwnerId, key: &Idempotency, now: Timestamp)
    -> Result<bool>;

    /// Bytes of the outcomes that are stored for this owner and not forgotten yet. It costs as much as they are many.
    ///
    /// # Errors
    /// [`StoreError`].
    async fn recorded_bytes(&self, owner: &OwnerId, now: Timestamp) -> Result<u64>;

    /// The artifacts of this database; `None` when it has none.
    fn artifacts(&self) -> Option<&dyn ArtifactStore> {
        None
    }

    /// The API keys and owners of this database; `None` when it has none.
    fn keys(&self) -> Option<&dyn KeyStore> {
        None
    }

    /// Finishes queued writes and closes the database. Later calls fail with [`StoreError::Closed`].
    async fn close(&self);
}
