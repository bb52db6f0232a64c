//! The trait that a database implements.

use async_trait::async_trait;
use context_model::{
    EntryUpdate, Filter, NewEntry, TagPrefix, ThreadNamePart, ThreadSet, Timestamp,
};
use context_text::Query;

use crate::artifacts::ArtifactStore;
use crate::changes::ChangeStore;
use crate::error::Result;
use crate::keys::KeyStore;
use crate::owner::OwnerId;
use crate::read::{
    DayCounts, FtsPage, FtsSearch, MetadataSample, Page, Read, RowSelection, SearchPage,
    StoreStatistics, TagsPage, ThreadsPage, Usage,
};
use crate::sealing::SealStore;
use crate::summaries::SummaryStore;
use crate::vectors::{DocumentKind, VectorStore};
use crate::write::{DeleteCriteria, Idempotency, StoredBatch, WriteOptions, Written};

/// A database of context entries.
///
/// Dropping a returned future does not undo or interrupt a write: once it was handed over it runs to its end. A write
/// that is still queued when its future is dropped may be skipped. A read whose future is dropped is stopped. A read
/// that is not finished at the [deadline of its call](crate::call::deadline) fails with
/// [`StoreError::TooSlow`](crate::StoreError::TooSlow).
///
/// A write that fails changes nothing. Only after [`StoreError::OutcomeUnknown`](crate::StoreError::OutcomeUnknown) its
/// changes may have been committed.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The database's name in statistics: `sqlite` or `postgresql`.
    fn backend(&self) -> &'static str;

    /// Succeeds if the database responds to reads, has a schema that this binary can use, and has not reported
    /// structural damage.
    ///
    /// # Errors
    /// Why the database cannot serve reads.
    async fn check(&self) -> Result<()>;

    /// The embeddings in this database.
    fn vectors(&self) -> &dyn VectorStore;

    /// The summaries in this database.
    fn summaries(&self) -> &dyn SummaryStore;

    /// The checksums in this database.
    fn seals(&self) -> &dyn SealStore;

    /// The artifacts in this database.
    fn artifacts(&self) -> &dyn ArtifactStore;

    /// The feed of changes of this database.
    fn changes(&self) -> &dyn ChangeStore;

    /// The API keys and owners in this database.
    fn keys(&self) -> &dyn KeyStore;

    /// Stores entries in order. If `atomic`, the first failure undoes all of them and is returned, wrapped in
    /// [`StoreError::Item`](crate::StoreError::Item). Otherwise each item succeeds or fails on its own.
    ///
    /// The retransmit rule of the contract is applied to each item inside the transaction.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn store_contexts(
        &self,
        owner: &OwnerId,
        entries: Vec<NewEntry>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>>;

    /// Updates entries in order. `atomic` has the same meaning as for storing. An unknown id is `CONTEXT_NOT_FOUND`. An
    /// unexpected version is `VERSION_MISMATCH`.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn update_contexts(
        &self,
        owner: &OwnerId,
        updates: Vec<EntryUpdate>,
        atomic: bool,
        options: WriteOptions,
    ) -> Result<Written<StoredBatch>>;

    /// Deletes the entries that match the criteria and returns their number.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn delete_contexts(
        &self,
        owner: &OwnerId,
        criteria: DeleteCriteria,
        options: WriteOptions,
    ) -> Result<Written<u64>>;

    /// Entries by id, newest first (created_at, then id, descending). Unknown ids are skipped.
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

    /// For each query, the number of the owner's documents of this kind whose text matches it, counted up to
    /// `max`. The time for a query is bounded by `max` as far as the database's index allows it.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn document_frequencies(
        &self,
        owner: &OwnerId,
        kind: DocumentKind,
        queries: Vec<Query>,
        max: u32,
        read: Read,
    ) -> Result<Vec<u64>>;

    /// The owner's threads, or those of a set, by latest activity (last entry, then last id, descending). With `name`
    /// only those whose name contains it, ignoring the case of A to Z, among the
    /// [`MAX_NAMED_THREADS`](crate::MAX_NAMED_THREADS) with the latest activity.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_threads(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        name: Option<ThreadNamePart>,
        page: Page,
        read: Read,
    ) -> Result<ThreadsPage>;

    /// The tags of the entries that satisfy the filter, with the number of those entries: most frequent first, then by
    /// tag. With a prefix only the tags that begin with it.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_tags(
        &self,
        owner: &OwnerId,
        filter: Filter,
        prefix: Option<TagPrefix>,
        page: Page,
        read: Read,
    ) -> Result<TagsPage>;

    /// The metadata of the newest `limit` entries that satisfy the filter, newest first. `None` for metadata of more
    /// than `max_bytes` bytes.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn metadata_sample(
        &self,
        owner: &OwnerId,
        filter: Filter,
        limit: u32,
        max_bytes: u32,
        read: Read,
    ) -> Result<MetadataSample>;

    /// The number of entries by day, newest day first, counted in the newest `limit` entries that satisfy the filter.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn days(
        &self,
        owner: &OwnerId,
        filter: Filter,
        limit: u32,
        read: Read,
    ) -> Result<DayCounts>;

    /// The counts of the owner's entries, or of those in a set of threads, and the state of the database. The owner's
    /// counts are cheap for any number of entries. Those of a set are computed from its entries.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn statistics(
        &self,
        owner: &OwnerId,
        threads: Option<ThreadSet>,
        read: Read,
    ) -> Result<StoreStatistics>;

    /// The storage that the owner uses. The cost grows with the number of entries and artifacts, but no text is read.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn usage(&self, owner: &OwnerId) -> Result<Usage>;

    /// Whether the outcome of a request with this idempotency key is stored, so that repeating the write adds nothing.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn is_recorded(&self, owner: &OwnerId, key: &Idempotency, now: Timestamp)
    -> Result<bool>;

    /// Bytes of the owner's stored outcomes that have not expired. The cost grows with their number.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn recorded_bytes(&self, owner: &OwnerId, now: Timestamp) -> Result<u64>;

    /// Finishes the writes that were handed over, as far as a time limit allows, and closes the database. Later calls
    /// fail with [`StoreError::Closed`](crate::StoreError::Closed).
    async fn close(&self);
}
