//! Why something failed: the one place that reads PostgreSQL's errors.

use context_model::Error;
use context_store::{BoxError, StoreError};
use diesel::result::{DatabaseErrorKind, Error as DieselError};

/// Why an attempt of an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request contradicts what is stored.
    Rejected(StoreError),
    /// Anything else.
    Database(DieselError),
    /// The connection was lost while the commit was under way.
    CommitUnknown(DieselError),
    /// No connection could be had.
    Unreachable(BoxError),
    /// The server could not be reached a moment ago, and was not asked again.
    NotAsked,
    /// It took longer than an operation may.
    TooSlow,
}

impl From<DieselError> for Failure {
    fn from(error: DieselError) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Rejected(StoreError::Rejected(error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Rejected(error)
    }
}

/// What PostgreSQL's errors mean to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Another transaction was in the way; the same again may succeed.
    Conflict,
    /// The server cannot be reached, or stops, or has no more connections.
    Unavailable,
    /// A statement ran into its time limit.
    TooSlow,
    Full,
    ReadOnly,
    Corrupt,
    Internal,
}

/// diesel tells few of PostgreSQL's codes apart and keeps the messages of the others, which are English where the
/// server's `lc_messages` is, as it is by default. A message in another language counts as a defect, which is safe: it
/// is not tried again.
pub(crate) fn kind(error: &DieselError) -> Kind {
    let message = match error {
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => return Kind::Conflict,
        DieselError::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => return Kind::ReadOnly,
        DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection, _)
        | DieselError::BrokenTransactionManager => return Kind::Unavailable,
        DieselError::DatabaseError(_, information) => information.message().to_ascii_lowercase(),
        _ => return Kind::Internal,
    };
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    // src/backend: deadlock.c, postmaster.c and tcop/postgres.c, md.c and fd.c, bufpage.c.
    if says(&["deadlock detected", "could not serialize access"]) {
        Kind::Conflict
    } else if says(&["due to statement timeout", "due to lock timeout", "due to user request"]) {
        Kind::TooSlow
    } else if says(&[
        "terminating connection",
        "the database system is",
        "too many clients",
        "too many connections",
        "remaining connection slots",
        "connection to server",
        "server closed the connection",
        "server conn crashed",
        "query_wait_timeout",
    ]) {
        Kind::Unavailable
    } else if says(&["no space left on device", "disk quota exceeded"]) {
        Kind::Full
    } else if says(&["read-only transaction", "read-only file system"]) {
        Kind::ReadOnly
    } else if says(&["invalid page in block", "could not read block", "missing chunk number", "unexpected zero page"]) {
        Kind::Corrupt
    } else {
        Kind::Internal
    }
}

#[derive(Debug, thiserror::Error)]
#[error("an operation took longer than its time limit")]
struct TooSlow;

#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL could not be reached a moment ago")]
struct NotAsked;

/// A driver error as the store's callers see it.
pub(crate) fn store_error(error: DieselError) -> StoreError {
    match kind(&error) {
        Kind::Conflict => StoreError::Overloaded,
        Kind::Unavailable | Kind::TooSlow => StoreError::Unavailable(error.into()),
        Kind::Full => StoreError::Full(error.into()),
        Kind::ReadOnly => StoreError::ReadOnly(error.into()),
        Kind::Corrupt => StoreError::Corrupt(error.into()),
        Kind::Internal => StoreError::Internal(error.into()),
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(error) => error,
            Failure::Database(error) => store_error(error),
            Failure::CommitUnknown(error) => Self::OutcomeUnknown(error.into()),
            Failure::Unreachable(error) => Self::Unavailable(error),
            Failure::NotAsked => Self::Unavailable(NotAsked.into()),
            Failure::TooSlow => Self::Unavailable(TooSlow.into()),
        }
    }
}

impl Failure {
    /// Whether it tells of the server's health rather than of the request.
    pub fn is_unavailability(&self) -> bool {
        match self {
            Self::Rejected(_) | Self::NotAsked => false,
            Self::Database(error) => kind(error) == Kind::Unavailable,
            Self::CommitUnknown(_) | Self::Unreachable(_) => true,
            // A statement may be slow by itself.
            Self::TooSlow => false,
        }
    }

    /// Whether the same may be tried again: nothing of it can have happened.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Database(error) => matches!(kind(error), Kind::Conflict | Kind::Unavailable),
            Self::Rejected(_) | Self::CommitUnknown(_) | Self::Unreachable(_) | Self::NotAsked | Self::TooSlow => false,
        }
    }
}

/// A stored value that no version of this program writes.
#[derive(Debug, thiserror::Error)]
#[error("stored {what} cannot be read")]
pub(crate) struct Unreadable {
    pub what: &'static str,
    #[source]
    pub source: Option<serde_json::Error>,
}

/// The database holds something that cannot have been written by this program.
pub(crate) fn unreadable(what: &'static str, source: Option<serde_json::Error>) -> StoreError {
    StoreError::Corrupt(Unreadable { what, source }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(message: &str) -> Kind {
        kind(&DieselError::DatabaseError(DatabaseErrorKind::Unknown, Box::new(message.to_owned())))
    }

    #[test]
    fn messages_are_told_apart() {
        for (message, expected) in [
            ("deadlock detected", Kind::Conflict),
            ("canceling statement due to statement timeout", Kind::TooSlow),
            ("terminating connection due to administrator command", Kind::Unavailable),
            ("the database system is shutting down", Kind::Unavailable),
            ("the database system is in recovery mode", Kind::Unavailable),
            ("sorry, too many clients already", Kind::Unavailable),
            ("could not extend file \"base/5/2619\": No space left on device", Kind::Full),
            ("cannot execute INSERT in a read-only transaction", Kind::ReadOnly),
            ("invalid page in block 3 of relation base/5/16385", Kind::Corrupt),
            ("column \"x\" does not exist", Kind::Internal),
        ] {
            assert_eq!(said(message), expected, "{message}");
        }
    }
}
