//! The options, criteria and outcomes of writes.

use context_model::{Error, Source, ThreadId, ThreadSet, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Embedding;

/// Options of a write.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// The current time of the service's clock. A store may move it forward as described in [`crate::clock`].
    pub now: Timestamp,
    /// Makes a retry of the same request harmless.
    pub idempotency: Option<Idempotency>,
    /// The API key that made the change, for `changes`.
    pub key_id: Option<String>,
    /// The embedding of each item, in the order of the items. Missing ones are added later.
    pub embeddings: Vec<Embedding>,
}

impl WriteOptions {
    /// Includes these items of the batch, by index, in the stored outcome.
    pub fn reject(&mut self, failed: &[(usize, Error)]) {
        if let Some(key) = &mut self.idempotency {
            let rejected = failed
                .iter()
                .map(|(index, error)| (*index, Box::new(ErrorByMessage(error.clone()))));
            key.rejected = rejected.collect();
        }
    }
}

/// An idempotency key. For 24 hours the same key and hash return the first outcome again. The same key with another
/// hash is rejected with `IDEMPOTENCY_KEY_REUSED`. The key is stored in the transaction of the write, so a failed write
/// stores nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// Hash of the operation and the request.
    pub request_hash: [u8; 32],
    /// The items of the batch that were rejected before the write, by index, in ascending order. They are part of the
    /// stored outcome, because a repetition may reject other items: entries were deleted or limits changed since.
    pub rejected: Vec<(usize, ItemError)>,
}

/// A committed write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// The outcome.
    pub outcome: T,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// The outcome of each item of a batch, in the order of the request. The stored outcome of a repeated request includes
/// the [items that were rejected before the write](Idempotency::rejected).
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBatch {
    /// One outcome for each item.
    pub items: Vec<Result<ItemOutcome, ItemError>>,
}

/// The error of an item. Errors with the same reason and message compare equal.
pub type ItemError = Box<ErrorByMessage>;

/// A domain error that is compared by reason and message.
#[derive(Debug, Clone)]
pub struct ErrorByMessage(pub Error);

impl Eq for ErrorByMessage {}

impl PartialEq for ErrorByMessage {
    fn eq(&self, other: &Self) -> bool {
        self.0.reason == other.0.reason && self.0.message == other.0.message
    }
}

/// An item that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemOutcome {
    /// The entry's id.
    pub id: i64,
    /// The entry's version after the write.
    pub version: i64,
    /// Whether the item repeated the thread's newest entry. Then nothing was written, and `id` is that entry's.
    pub duplicate: bool,
}

/// Which entries to delete. All given criteria must hold. At least one of ids, threads and `created_before` must be
/// given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteCriteria {
    /// Entries with these ids.
    pub ids: Option<Vec<i64>>,
    /// Entries of the threads that the caller may access. It selects nothing by itself.
    pub within: Option<ThreadSet>,
    /// Entries of these threads.
    pub threads: Option<Vec<ThreadId>>,
    /// Entries of this source.
    pub source: Option<Source>,
    /// Entries created before this moment.
    pub created_before: Option<Timestamp>,
}
