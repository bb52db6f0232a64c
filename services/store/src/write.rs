use context_model::{Error, Source, ThreadId, ThreadSet, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Embedding;

/// What comes with every write.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Now, by the service's clock. A store may move it forward, as [`crate::clock`] says.
    pub now: Timestamp,
    /// Makes a retry of the same request harmless.
    pub idempotency: Option<Idempotency>,
    /// The API key that made the change, for `changes`.
    pub key_id: Option<String>,
    /// What comes of each item's meaning, in the order of the items; what is missing comes later.
    pub embeddings: Vec<Embedding>,
}

/// An idempotency key. For 24 hours the same key and hash give the first outcome again; another hash is
/// `IDEMPOTENCY_KEY_REUSED`. It is recorded in the transaction of the write itself; a failed write records nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key.
    pub key: String,
    /// A hash of operation and request.
    pub request_hash: [u8; 32],
}

/// A committed write.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// What it gave.
    pub outcome: T,
    /// The owner's revision after it.
    pub revision: i64,
}

/// What became of each item of a batch, in the order of the request.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredBatch {
    /// One outcome for each item.
    pub items: Vec<Result<ItemOutcome, ItemError>>,
}

/// An item's error, comparable in tests by its message.
pub type ItemError = Box<ErrorByMessage>;

/// A domain error that compares by reason and message.
#[derive(Debug, Clone)]
pub struct ErrorByMessage(pub Error);

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
    /// The entry's version now.
    pub version: i64,
    /// Whether it repeated the thread's newest entry, so that nothing was written.
    pub duplicate: bool,
}

/// Which entries to delete; all that is present must hold, and at least one of ids, threads and `created_before` is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeleteCriteria {
    /// These ids.
    pub ids: Option<Vec<i64>>,
    /// Of these threads, which the caller may reach. It selects nothing by itself.
    pub within: Option<ThreadSet>,
    /// Entries of these threads.
    pub threads: Option<Vec<ThreadId>>,
    /// Entries of this source.
    pub source: Option<Source>,
    /// Entries created before this moment.
    pub created_before: Option<Timestamp>,
}
