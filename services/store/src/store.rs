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

    /// Threads, latest activity first (last entry, then last id, descending).
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_threads(&self, owner: &OwnerId, page: Page, read: Read) -> Result<ThreadsPage>;

    /// The same, of these threads alone.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
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
    /// [`StoreError`](crate::StoreError).
    async fn statistics_within(
        &self,
        owner: &OwnerId,
        threads: ThreadSet,
        read: Read,
    ) -> Result<StoreStatistics>;

    /// The owner's counts and the state of the database. Cheap whatever the size.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn statistics(&self, owner: &OwnerId, read: Read) -> Result<StoreStatistics>;

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

    /// The artifacts of this database; `None` when it has none.
    fn artifacts(&self) -> Option<&dyn ArtifactStore> {
        None
    }

    /// The API keys and owners of this database; `None` when it has none.
    fn keys(&self) -> Option<&dyn KeyStore> {
        None
    }

    /// Finishes queued writes and closes the database. Later calls fail with [`StoreError::Closed`](crate::StoreError::Closed).
    async fn close(&self);
}
