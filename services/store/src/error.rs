use std::time::Duration;

use context_model::{Error, Reason};

/// Why a store call failed. Nothing of a driver's text reaches the caller: it stays in the source, for the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The request contradicts what is stored (`CONTEXT_NOT_FOUND`, `VERSION_MISMATCH`, a patch that breaks a limit,
    /// a reused idempotency key, …).
    #[error("{0}")]
    Rejected(Error),
    /// One item of an atomic batch failed, so that none was applied.
    #[error("item {index}: {error}")]
    Item {
        /// The item's place, from 0.
        index: usize,
        /// Why it failed.
        error: Error,
    },
    /// The disk is full. Reads go on; writes work again when there is room.
    #[error("the disk that holds the database is full")]
    Full(#[source] BoxError),
    /// The database file or its directory cannot be written.
    #[error("the database cannot be written")]
    ReadOnly(#[source] BoxError),
    /// The database reports damage.
    #[error("the database is damaged")]
    Corrupt(#[source] BoxError),
    /// Too many requests wait already.
    #[error("too many requests wait for the database")]
    Overloaded,
    /// The database cannot be reached, or did not reach `min_revision` in time.
    #[error("the database is not available")]
    Unavailable(#[source] BoxError),
    /// The connection to the database was lost while a write was being committed: it may have happened or not.
    #[error("whether the write was committed is not known")]
    OutcomeUnknown(#[source] BoxError),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Anything else: a defect.
    #[error("internal store error")]
    Internal(#[source] BoxError),
}

/// A cause for the log.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        Self::Rejected(error)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Cause {
    message: &'static str,
    #[source]
    source: BoxError,
}

impl StoreError {
    /// The domain error a caller sees. `item` names an item of an atomic batch, such as `entries` for `entries[3]`.
    #[must_use]
    pub fn into_error(self, item: &str) -> Error {
        let (reason, message, source) = match self {
            Self::Rejected(error) => return error,
            Self::Item { index, error } => return error.in_item(&format!("{item}[{index}]")),
            Self::Full(source) => (
                Reason::StorageFull,
                "the disk that holds the database is full; nothing was stored, reads go on; free some space and retry",
                Some(source),
            ),
            Self::ReadOnly(source) => {
                (Reason::StorageReadOnly, "the database cannot be written; nothing was stored, reads go on", Some(source))
            }
            Self::Corrupt(source) => (Reason::StorageCorrupt, "the database is damaged; restore it from a backup", Some(source)),
            Self::Overloaded => {
                return Error::new(Reason::Overloaded, "too many requests wait for the database; retry in a second")
                    .with_retry_after(Duration::from_secs(1));
            }
            Self::Unavailable(source) => {
                let error = Error::new(Reason::StoreUnavailable, "the database is not available right now; retry in a second");
                return error
                    .with_retry_after(Duration::from_secs(1))
                    .with_source(Cause { message: "the database is not available", source });
            }
            Self::OutcomeUnknown(source) => (
                Reason::StoreUnavailable,
                "the connection to the database was lost while the write was being committed, so it may have happened or not; \
                 retry with the same idempotency key, or look before you retry",
                Some(source),
            ),
            Self::Closed => {
                return Error::new(Reason::ShuttingDown, "the service is stopping; retry in a second")
                    .with_retry_after(Duration::from_secs(1));
            }
            Self::Internal(source) => (Reason::Internal, "internal error; the service's log has the cause", Some(source)),
        };
        let error = Error::new(reason, message);
        match source {
            Some(source) => error.with_source(Cause { message: "store error", source }),
            None => error,
        }
    }
}
