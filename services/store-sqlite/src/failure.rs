//! Conversion of SQLite's errors. This is the only place that interprets SQLite's messages.

use context_model::Error;
use context_store::{Soundness, StoreError, unreadable};
use diesel::connection::SimpleConnection as _;
use diesel::result::Error as DieselError;
use diesel::sqlite::SqliteConnection;

use crate::cancel;

/// Why a write failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The request contradicts what is stored. Only this request is undone.
    Rejected(StoreError),
    /// Any other error. The whole transaction must be undone.
    Database(DieselError),
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

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Rejected(error) => error,
            Failure::Database(error) => store_error(error),
        }
    }
}

/// The meaning of SQLite's result codes for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Full,
    ReadOnly,
    Corrupt,
    Unavailable,
    /// The caller no longer waited, or the deadline passed.
    Interrupted,
    Internal,
}

/// What SQLite says before the name of a virtual table that could not be opened.
const NOT_OPENED: &str = "vtable constructor failed: ";

/// What SQLite says after an error of the system, in lower case.
const IO_ERROR: &str = "disk i/o error";

/// Classifies a message. diesel hides SQLite's result codes and only exposes `sqlite3_errmsg`, whose texts for these
/// codes are fixed (`sqlite3ErrStr` in main.c). FTS5 has its own texts for a damaged index, one of which [`examined`]
/// corrects.
pub(crate) fn kind(message: &str) -> Kind {
    let message = message.to_ascii_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
    if says(&["database or disk is full"]) {
        Kind::Full
    } else if says(&[
        "disk image is malformed",
        "malformed database schema",
        "file is not a database",
        "corrupt",
        NOT_OPENED,
    ]) {
        Kind::Corrupt
    } else if says(&[
        "readonly database",
        "unable to open database",
        "access permission denied",
        "authorization denied",
    ]) {
        Kind::ReadOnly
    } else if says(&[
        IO_ERROR,
        "database is locked",
        "table is locked",
        "out of memory",
        "locking protocol",
    ]) {
        Kind::Unavailable
    } else if message == cancel::INTERRUPTED {
        Kind::Interrupted
    } else {
        Kind::Internal
    }
}

/// Whether a message reports an error of the system.
pub(crate) fn is_io_error(message: &str) -> bool {
    message.to_ascii_lowercase().contains(IO_ERROR)
}

/// Converts a driver error into the error for the store's callers.
pub(crate) fn store_error(error: DieselError) -> StoreError {
    if matches!(&error, DieselError::DeserializationError(source) if source.is::<std::str::Utf8Error>())
    {
        return unreadable("text", None);
    }
    if error.to_string() == "malformed JSON" {
        // The error comes from a function that reads metadata. One row is damaged, not the database.
        return unreadable("metadata", None);
    }
    match kind(&error.to_string()) {
        Kind::Full => StoreError::Full(error.into()),
        Kind::ReadOnly => StoreError::ReadOnly(error.into()),
        Kind::Corrupt => StoreError::Corrupt(error.into()),
        Kind::Unavailable => StoreError::Unavailable(error.into()),
        Kind::Interrupted => StoreError::TooSlow { unindexed: None },
        Kind::Internal => StoreError::Internal(error.into()),
    }
}

/// Whether a rollback failed because SQLite itself had already ended the transaction.
pub(crate) fn has_no_transaction(error: &DieselError) -> bool {
    error.to_string().contains("no transaction is active")
}

/// Corrects the error of a full-text table that could not be opened. SQLite's message is the same after damage and after
/// an I/O error that may have passed. FTS5 reads only the table's configuration to open it, so another read of the
/// configuration tells which it was.
pub(crate) fn examined(conn: &mut SqliteConnection, error: StoreError) -> StoreError {
    let StoreError::Corrupt(source) = error else {
        return error;
    };
    let message = source.to_string();
    let Some(table) = message.strip_prefix(NOT_OPENED) else {
        return StoreError::Corrupt(source);
    };
    let read = conn.batch_execute(&format!("SELECT * FROM \"{table}_config\""));
    let is_damaged = read.is_err_and(|cause| kind(&cause.to_string()) != Kind::Unavailable);
    match is_damaged {
        true => StoreError::Corrupt(source),
        false => StoreError::Unavailable(source),
    }
}

/// Stops writes when SQLite reports damage (`SQLITE_CORRUPT`, `SQLITE_NOTADB`).
pub(crate) fn note_damage(soundness: &Soundness, error: &StoreError) {
    if let StoreError::Corrupt(source) = error
        && soundness.lost()
    {
        tracing::error!(error = %source, "The database reported damage: writes are rejected from now on, and the service is not ready");
    }
}

#[cfg(test)]
mod tests {
    use diesel::Connection as _;

    use super::*;

    fn open(path: &std::path::Path) -> SqliteConnection {
        SqliteConnection::establish(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn a_full_text_table_that_opens_the_next_time_is_not_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("words.db");
        open(&path)
            .batch_execute("CREATE VIRTUAL TABLE words USING fts5(text)")
            .unwrap();
        let not_opened = StoreError::Corrupt(format!("{NOT_OPENED}words").into());
        let error = examined(&mut open(&path), not_opened);
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");

        open(&path)
            .batch_execute("DROP TABLE words_config")
            .unwrap();
        let mut conn = open(&path);
        let error = conn.batch_execute("SELECT * FROM words").unwrap_err();
        assert_eq!(error.to_string(), format!("{NOT_OPENED}words"));
        let error = examined(&mut conn, store_error(error));
        assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    }
}
