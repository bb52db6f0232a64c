//! The trait of a database.

use async_trait::async_trait;
use context_model::{EntryUpdate, Filter, NewEntry, ThreadSet, Timestamp};

use crate::artifacts::ArtifactStore;
use crate::error::Result;
use crate::keys::KeyStore;
use crate::owner::OwnerId;
use crate::read::{
    FtsPage, FtsSearch, Page, Read, RowSelection, SearchPage, StoreStatistics, ThreadsPage, Usage,
};
use crate::sealing::SealStore;
use crate::summaries::SummaryStore;
use crate::vectors::VectorStore;
use crate::write::{DeleteCriteria, Idempotency, StoredBatch, WriteOptions, Written};

/// A database of context entries.
///
/// Dropping a returned future does not undo or halve a write: once it was handed over it runs to its end. A write that
/// still waits in a queue when its future is dropped may be skipped. A read whose future is dropped is stopped, and one
/// that is not done at the [deadline of its call](crate::call::deadline) fails with [`StoreError::TooSlow`](crate::StoreError::TooSlow).
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The database's name in statistics: `sqlite` or `postgresql`.
    fn backend(&self) -> &'static str;

    /// Whether the database answers reads now, has the schema of this binary and has reported no damage to its structure.
    ///
    /// # Errors
    /// What keeps it from answering.
    async fn check(&self) -> Result<()>;

    /// The vectors of this database.
    fn vectors(&self) -> &dyn VectorStore;

    /// The summaries of this database.
    fn summaries(&self) -> &dyn SummaryStore;

    /// The checksums of this database.
    fn seals(&self) -> &dyn SealStore;

    /// The artifacts of this database.
    fn artifacts(&self) -> &dyn ArtifactStore;

    /// The API keys and owners of this database.
    fn keys(&self) -> &dyn KeyStore;

    /// Stores entries in order. With `atomic` the first failure undoes all and is the error (wrapped in
    /// [`StoreError::Item`](crate::StoreError::Item)); without it each item stands alone.
    ///
    /// The retransmit rule of the contract is decided inside the transaction, for each item.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError); nothing is stored then.
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
    /// [`StoreError`](crate::StoreError); nothing is changed then.
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
    /// [`StoreError`](crate::StoreError); nothing is deleted then.
    async fn delete_contexts(
        &self,
        owner: &OwnerId,
        criteria: DeleteCriteria,
        options: WriteOptions,
    ) -> Result<Written<u64>>;

    /// Entries by id, newest first (created_at, then id, descending); unknown ids are skipped.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
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
    /// [`StoreError`](crate::StoreError).
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
    /// [`StoreError`](crate::StoreError).
    async fn fts_search(
        &self,
        owner: &OwnerId,
        search: FtsSearch,
        filter: Filter,
        page: Page,
        selection: RowSelection,
        read: Read,
    ) -> Result<FtsPage>;

    /// The owner's threads, or those of a set, latest activity first (last entry, then last id,
    /// descending).
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_threads(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        page: Page,
        read: Read,
    ) -> Result<ThreadsPage>;

    /// The counts of the owner's entries, or of those in a set of threads, and the state of the
    /// database. The owner's counts are cheap whatever their size; those of a set read its entries.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn statistics(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        read: Read,
    ) -> Result<StoreStatistics>;

    /// What the owner has. It costs as much as its entries and artifacts are many, but reads no text.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn usage(&self, owner: &OwnerId) -> Result<Usage>;

    /// Whether the outcome of a request with this idempotency key is stored, so that a write with it adds nothing.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn is_recorded(&self, owner: &OwnerId, key: &Idempotency, now: Timestamp)
    -> Result<bool>;

    /// Bytes of the outcomes that are stored for this owner and not forgotten yet. It costs as much as they are many.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn recorded_bytes(&self, owner: &OwnerId, now: Timestamp) -> Result<u64>;

    /// Finishes queued writes and closes the database. Later calls fail with [`StoreError::Closed`](crate::StoreError::Closed).
    async fn close(&self);
}
