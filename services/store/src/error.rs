//! Why a store call failed.

use std::time::Duration;

use context_model::{Condition, Error, Filter, Reason};

/// Result of a store call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a store call failed. Driver messages never reach the caller. They stay in the source, for the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The request contradicts what is stored (`CONTEXT_NOT_FOUND`, `VERSION_MISMATCH`, a patch that breaks a limit,
    /// a reused idempotency key, …).
    #[error("{0}")]
    Rejected(Error),
    /// One item of an atomic batch failed, so none was applied.
    #[error("item {index}: {error}")]
    Item {
        /// Index of the item, from 0.
        index: usize,
        /// Why it failed.
        error: Error,
    },
    /// The disk is full. Reads continue. Writes work again when there is space.
    #[error("the disk that holds the database is full")]
    Full(#[source] BoxError),
    /// The database accepts no writes: its file or directory cannot be written, or the server is a standby.
    #[error("the database cannot be written")]
    ReadOnly(#[source] BoxError),
    /// The database reports damage.
    #[error("the database is damaged")]
    Corrupt(#[source] BoxError),
    /// The database reported structural damage earlier. Writes have been rejected since.
    #[error("writes are rejected because the database reported damage")]
    Unsound,
    /// Too many requests wait, or this one waited too long or conflicted with others too often.
    #[error("too many requests wait for the database")]
    Overloaded,
    /// A read exceeded its time limit. It returns nothing.
    #[error("the read exceeded its time limit")]
    TooSlow {
        /// The first filter condition that no index serves, as `field (operator)`, if known.
        unindexed: Option<String>,
    },
    /// A write exceeded its time limit and was rolled back.
    #[error("the write exceeded its time limit")]
    WriteTooSlow,
    /// The database cannot be reached.
    #[error("the database is not available")]
    Unavailable(#[source] BoxError),
    /// The connection was lost, the time limit was exceeded, or the server stopped, during the commit of a write. The
    /// write may or may not have been committed.
    #[error("the outcome of the write is unknown")]
    OutcomeUnknown(#[source] BoxError),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Any other error. It indicates a defect.
    #[error("internal store error")]
    Internal(#[source] BoxError),
}

/// The cause of an error, for the log.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A stored value that no version of this program writes.
#[derive(Debug, thiserror::Error)]
#[error("stored {what} cannot be read")]
pub struct Unreadable {
    /// What it is, such as `artifact id`.
    pub what: &'static str,
    /// Why it cannot be read, if known.
    #[source]
    pub source: Option<serde_json::Error>,
}

/// The error for a stored value that this program cannot have written: `STORAGE_CORRUPT`.
#[must_use]
pub fn unreadable(what: &'static str, source: Option<serde_json::Error>) -> StoreError {
    let sentence = format!("a stored {what} cannot be read: it is damaged");
    StoreError::Rejected(
        Error::new(Reason::StorageCorrupt, sentence).with_source(Unreadable { what, source }),
    )
}

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
    /// The error of a read whose `min_revision` is later than the owner's revision, on a database that would already
    /// have it.
    #[must_use]
    pub fn beyond_revision(min_revision: i64, revision: i64) -> Self {
        let sentence = format!(
            "`min_revision` is {min_revision}, and the latest revision is {revision}; it must be the `revision` of an earlier reply"
        );
        Self::Rejected(Error::invalid("min_revision", sentence))
    }

    /// Adds the cause to the error of a read with this filter: [`StoreError::TooSlow`] gets the first condition for
    /// which `is_served` is false.
    #[must_use]
    pub fn with_filter(self, filter: &Filter, is_served: impl Fn(&Condition) -> bool) -> Self {
        match self {
            Self::TooSlow { unindexed: None } => {
                let unserved = filter
                    .conditions
                    .iter()
                    .find(|condition| !is_served(condition));
                let named = |condition: &Condition| {
                    format!(
                        "{} ({})",
                        condition.path.segments().join("."),
                        condition.comparison.operator().as_str()
                    )
                };
                Self::TooSlow {
                    unindexed: unserved.map(named),
                }
            }
            other => other,
        }
    }

    /// The domain error for the caller. `item` names the items of an atomic batch, such as `entries` for `entries[3]`.
    #[must_use]
    pub fn into_error(self, item: &str) -> Error {
        let (reason, message, source) = match self {
            Self::Rejected(error) => return error,
            Self::Item { index, error } => return error.in_item(&format!("{item}[{index}]")),
            Self::Full(source) => (
                Reason::StorageFull,
                "the disk that holds the database is full; nothing was stored; reads continue; free some space and retry",
                Some(source),
            ),
            Self::ReadOnly(source) => (
                Reason::StorageReadOnly,
                "the database cannot be written; nothing was stored; reads continue",
                Some(source),
            ),
            Self::Corrupt(source) => (
                Reason::StorageCorrupt,
                "the database is damaged; `context-service verify` names what is; repair it or restore a backup",
                Some(source),
            ),
            Self::Unsound => (
                Reason::StorageCorrupt,
                "writes are rejected because the database reported damage: find it with `context-service verify`, repair the database \
                 or restore a backup, then restart the service; reads that succeed continue",
                None,
            ),
            Self::Overloaded => {
                return Error::new(
                    Reason::Overloaded,
                    "too many requests wait for the database; retry in a second",
                )
                .with_retry_after(Duration::from_secs(1));
            }
            Self::TooSlow { unindexed } => {
                let narrow = "narrow it, with a thread, tags or dates for example";
                let message = match unindexed {
                    Some(condition) => {
                        format!(
                            "the read exceeded its time limit: no index serves the metadata filter {condition}; \
                             {narrow}"
                        )
                    }
                    None => format!("the read exceeded its time limit; {narrow}, or request less"),
                };
                return Error::new(Reason::DeadlineExceeded, message);
            }
            Self::WriteTooSlow => {
                return Error::new(
                    Reason::StoreUnavailable,
                    "the write exceeded its time limit and was rolled back: nothing was changed; retry in a second, and write or delete \
                     less at once if it fails again",
                )
                .with_retry_after(Duration::from_secs(1));
            }
            Self::Unavailable(source) => {
                let error = Error::new(
                    Reason::StoreUnavailable,
                    "the database is not available right now; retry in a second",
                );
                return error
                    .with_retry_after(Duration::from_secs(1))
                    .with_source(Cause {
                        message: "the database is not available",
                        source,
                    });
            }
            Self::OutcomeUnknown(source) => (
                Reason::StoreUnavailable,
                "the commit of the write was interrupted, so it may have happened or not; retry with the same \
                 idempotency key, or read before you retry",
                Some(source),
            ),
            Self::Closed => {
                return Error::new(
                    Reason::ShuttingDown,
                    "the service is stopping; retry in a second",
                )
                .with_retry_after(Duration::from_secs(1));
            }
            Self::Internal(source) => (
                Reason::Internal,
                "internal error; the service's log has the cause",
                Some(source),
            ),
        };
        let error = Error::new(reason, message);
        match source {
            Some(source) => error.with_source(Cause {
                message: "store error",
                source,
            }),
            None => error,
        }
    }
}
