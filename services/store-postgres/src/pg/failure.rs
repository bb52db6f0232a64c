//! Classification of failures. Only this file interprets PostgreSQL's errors.

use context_model::Error;
use context_store::{BoxError, Soundness, StoreError, Unreadable, unreadable};
use diesel::result::Error as DieselError;
use tokio_postgres::error::{Severity, SqlState};

/// An error of the driver or the server. Its message includes the causes, because the driver's own message names only
/// the kind of the error.
#[derive(Debug)]
pub(crate) struct DriverError(pub tokio_postgres::Error);

impl std::fmt::Display for DriverError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(error) = self.0.as_db_error() {
            return write!(f, "{} (SQLSTATE {})", error.message(), error.code().code());
        }
        let mut text = self.0.to_string();
        let mut cause = std::error::Error::source(&self.0);
        while let Some(error) = cause {
            let further = error.to_string();
            if !text.contains(&further) {
                text.push_str(": ");
                text.push_str(&further);
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

impl std::error::Error for DriverError {}

/// Wraps the driver's error as a diesel error. diesel has no variant for other errors, but this variant can hold the
/// complete error.
pub(crate) fn failed(error: tokio_postgres::Error) -> DieselError {
    DieselError::QueryBuilderError(Box::new(DriverError(error)))
}

/// Error of a pipelined COMMIT.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// The server rejected a statement or the COMMIT, and rolled the transaction back.
    Rejected(DieselError),
    /// The connection was lost, or the COMMIT was interrupted. The server may have committed.
    OutcomeUnknown(DieselError),
}

/// Why an attempt of an operation failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error of the store itself: the request conflicts with stored data, the pool is full, or the store is closed.
    Rejected(StoreError),
    /// Any other error of the server or the driver.
    Database(DieselError),
    /// The connection was lost, or the time limit was exceeded, during the commit.
    CommitUnknown(DieselError),
    /// No connection could be made.
    Unreachable(BoxError),
    /// The circuit breaker is open: the server was unreachable a moment ago and was not tried again.
    BreakerOpen,
    /// The operation exceeded its timeout.
    TooSlow,
}

impl From<DieselError> for Failure {
    fn from(error: DieselError) -> Self {
        Self::Database(error)
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Rejected(error) => Self::Database(error),
            CommitError::OutcomeUnknown(error) => Self::CommitUnknown(error),
        }
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

/// The class of a PostgreSQL error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Another transaction conflicted. The same attempt may succeed if it is repeated.
    Conflict,
    /// The server cannot be reached, is shutting down, or has no free connections.
    Unavailable,
    /// A statement exceeded its timeout.
    TooSlow,
    /// The server's disk is full.
    Full,
    /// The server accepts no writes, for example because it is a standby.
    ReadOnly,
    /// Stored data is damaged or cannot be read.
    Corrupt,
    /// Any other error, such as wrong SQL.
    Internal,
}

/// Classifies an error by its SQLSTATE, so the server's message language does not matter.
pub(crate) fn kind(error: &DieselError) -> Kind {
    if matches!(error, DieselError::DeserializationError(source) if source.is::<Unreadable>()) {
        return Kind::Corrupt;
    }
    let Some(driver) = driver_error(error) else {
        return Kind::Internal;
    };
    if violates(error, ENTRY_IDS) {
        return Kind::Conflict;
    }
    match driver.as_db_error() {
        Some(error) => kind_of(error.code(), error.parsed_severity()),
        None if driver.is_closed() || is_io(driver) => Kind::Unavailable,
        None => Kind::Internal,
    }
}

/// Whether the server itself sent the error. It then did not execute the pipelined statements after the failed one.
pub(crate) fn is_from_server(error: &DieselError) -> bool {
    driver_error(error).is_some_and(|error| error.as_db_error().is_some())
}

fn driver_error(error: &DieselError) -> Option<&tokio_postgres::Error> {
    match error {
        DieselError::QueryBuilderError(source) => source
            .downcast_ref::<DriverError>()
            .map(|DriverError(error)| error),
        _ => None,
    }
}

/// The index of an entry's id.
const ENTRY_IDS: &str = "entries_pkey";

/// Whether the server refused a row because of this unique index.
fn violates(error: &DieselError, index: &str) -> bool {
    driver_error(error)
        .and_then(|error| error.as_db_error())
        .is_some_and(|error| {
            *error.code() == SqlState::UNIQUE_VIOLATION
                && names(error.constraint(), error.message(), index)
        })
}

/// Whether the server names this index. With Citus it has the number of the shard: `entries_pkey_102008`. Of an error of
/// another server, Citus passes on only the message.
fn names(constraint: Option<&str>, message: &str, index: &str) -> bool {
    constraint.unwrap_or(message).contains(index)
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>())
}

/// Whether a SQLSTATE reports damaged data or a damaged index.
fn is_damage(code: &SqlState) -> bool {
    matches!(*code, SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED)
}

/// Follows PostgreSQL's appendix "Error Codes" (errcodes.txt).
fn kind_of(code: &SqlState, severity: Option<Severity>) -> Kind {
    match *code {
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
            return Kind::Conflict;
        }
        SqlState::QUERY_CANCELED | SqlState::LOCK_NOT_AVAILABLE => return Kind::TooSlow,
        // The disk is full while a file grows. Lack of memory or connections is classified separately.
        SqlState::DISK_FULL => return Kind::Full,
        SqlState::READ_ONLY_SQL_TRANSACTION => return Kind::ReadOnly,
        SqlState::TOO_MANY_CONNECTIONS => return Kind::Unavailable,
        _ => {}
    }
    if matches!(severity, Some(Severity::Fatal | Severity::Panic)) {
        // The session is over, whatever reason a pooler gives.
        return Kind::Unavailable;
    }
    match code.code().get(..2) {
        // Connection exceptions, which poolers report about their servers, and shutdowns and startups.
        Some("08" | "57") => Kind::Unavailable,
        // Damaged data, and files that cannot be read or are missing.
        Some("XX") if *code != SqlState::INTERNAL_ERROR => Kind::Corrupt,
        Some("58") => Kind::Corrupt,
        _ => Kind::Internal,
    }
}

#[derive(Debug, thiserror::Error)]
#[error("an operation took longer than its time limit")]
struct TooSlow;

#[derive(Debug, thiserror::Error)]
#[error("PostgreSQL could not be reached a moment ago")]
struct BreakerOpen;

/// Converts a driver error to the store's error.
pub(crate) fn store_error(error: DieselError) -> StoreError {
    if let DieselError::DeserializationError(source) = &error
        && let Some(Unreadable { what, .. }) = source.downcast_ref::<Unreadable>()
    {
        return unreadable(what, None);
    }
    if violates(&error, "artifacts_by_path") {
        return StoreError::Rejected(Error::path_taken(None));
    }
    match kind(&error) {
        Kind::Conflict => StoreError::Overloaded,
        Kind::Unavailable | Kind::TooSlow => StoreError::Unavailable(error.into()),
        Kind::Full => StoreError::Full(error.into()),
        Kind::ReadOnly => StoreError::ReadOnly(error.into()),
        Kind::Corrupt => StoreError::Corrupt(error.into()),
        Kind::Internal => StoreError::Internal(error.into()),
    }
}

/// The underlying error, for a message to the operator of a migration.
pub(crate) fn cause(failure: Failure) -> BoxError {
    match failure {
        Failure::Database(error) => error.into(),
        other => StoreError::from(other).into(),
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(error) => error,
            Failure::Database(error) => store_error(error),
            Failure::CommitUnknown(error) => Self::OutcomeUnknown(error.into()),
            Failure::Unreachable(error) => Self::Unavailable(error),
            Failure::BreakerOpen => Self::Unavailable(BreakerOpen.into()),
            Failure::TooSlow => Self::Unavailable(TooSlow.into()),
        }
    }
}

impl Failure {
    /// Stops writes when PostgreSQL reports damaged data or a damaged index (XX001, XX002). The rest of class XX is no
    /// sign of damage: XX000 is any failed check of the server, an extension or a pooler.
    pub fn note_damage(&self, soundness: &Soundness) {
        let Self::Database(error) = self else { return };
        let code = driver_error(error).and_then(|driver| driver.code());
        if code.is_some_and(is_damage) && soundness.lost() {
            tracing::error!(error = %error, "The database reported damage: writes are rejected from now on, and the service is not ready");
        }
    }

    /// Whether a connection can be used again after a read that failed like this.
    pub fn leaves_connection_sound(&self) -> bool {
        match self {
            Self::Rejected(_) => true,
            Self::Database(error) => matches!(kind(error), Kind::TooSlow | Kind::Conflict),
            Self::CommitUnknown(_) | Self::Unreachable(_) | Self::BreakerOpen | Self::TooSlow => {
                false
            }
        }
    }

    /// Whether the server accepts no writes.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Database(error) if kind(error) == Kind::ReadOnly)
    }

    /// Whether the server could not be reached, or the connection was lost. The circuit breaker counts these failures.
    pub fn is_unavailability(&self) -> bool {
        match self {
            Self::Rejected(_) | Self::BreakerOpen => false,
            Self::Database(error) => kind(error) == Kind::Unavailable,
            Self::CommitUnknown(_) | Self::Unreachable(_) => true,
            // A statement may be slow although the server is healthy.
            Self::TooSlow => false,
        }
    }

    /// Whether another entry has the id that was leased for a new one.
    pub fn is_id_taken(&self) -> bool {
        matches!(self, Self::Database(error) if violates(error, ENTRY_IDS))
    }

    /// Whether an operation exceeded its timeout.
    pub fn is_too_slow(&self) -> bool {
        match self {
            Self::TooSlow => true,
            Self::Database(error) => kind(error) == Kind::TooSlow,
            Self::Rejected(_)
            | Self::CommitUnknown(_)
            | Self::Unreachable(_)
            | Self::BreakerOpen => false,
        }
    }

    /// Whether the operation is retried: the failed attempt cannot have changed anything, and another one may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            // A read-only server may have been the primary a moment ago, and another one may be the primary now.
            Self::Database(error) => matches!(
                kind(error),
                Kind::Conflict | Kind::Unavailable | Kind::ReadOnly
            ),
            Self::Rejected(_)
            | Self::CommitUnknown(_)
            | Self::Unreachable(_)
            | Self::BreakerOpen
            | Self::TooSlow => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        for (code, expected) in [
            ("40001", Kind::Conflict),
            ("40P01", Kind::Conflict),
            ("57014", Kind::TooSlow),
            ("55P03", Kind::TooSlow),
            ("57P01", Kind::Unavailable),
            ("57P03", Kind::Unavailable),
            ("53300", Kind::Unavailable),
            ("08P01", Kind::Unavailable),
            ("53100", Kind::Full),
            ("25006", Kind::ReadOnly),
            ("XX001", Kind::Corrupt),
            ("XX002", Kind::Corrupt),
            ("58030", Kind::Corrupt),
            ("XX000", Kind::Internal),
            ("42703", Kind::Internal),
            ("23505", Kind::Internal),
            ("25P02", Kind::Internal),
        ] {
            assert_eq!(
                kind_of(&SqlState::from_code(code), Some(Severity::Error)),
                expected,
                "{code}"
            );
        }
    }

    #[test]
    fn an_index_is_recognised_on_a_shard_too() {
        let on_a_shard = r#"duplicate key value violates unique constraint "entries_pkey_102008""#;
        for (constraint, message, expected) in [
            (Some(ENTRY_IDS), "", true),
            (Some("entries_pkey_102008"), "", true),
            (Some("images_pkey"), on_a_shard, false),
            (None, on_a_shard, true),
            (None, "duplicate key", false),
        ] {
            assert_eq!(names(constraint, message, ENTRY_IDS), expected);
        }
    }

    #[test]
    fn only_damaged_data_and_indexes_stop_writes() {
        for (code, expected) in [
            ("XX001", true),
            ("XX002", true),
            ("XX000", false),
            ("58030", false),
            ("58P01", false),
            ("57P01", false),
        ] {
            assert_eq!(is_damage(&SqlState::from_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn an_error_that_ends_the_session_tells_of_the_server() {
        // Supavisor reports a full pool as XX000.
        assert_eq!(
            kind_of(&SqlState::INTERNAL_ERROR, Some(Severity::Fatal)),
            Kind::Unavailable
        );
        assert_eq!(
            kind_of(&SqlState::T_R_DEADLOCK_DETECTED, Some(Severity::Fatal)),
            Kind::Conflict
        );
    }
}
