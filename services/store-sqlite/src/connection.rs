//! Connections and their settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

/// `"Ctxs"`: marks a database file as ours.
pub(crate) const APPLICATION_ID: i32 = 0x4374_7873;

/// Size of the write-ahead log that is kept for reuse after a checkpoint, in bytes.
const WAL_SIZE_LIMIT_BYTES: u32 = 64 * 1024 * 1024;

/// Number of pages (of 4 KiB) in the write-ahead log at which a commit runs a checkpoint.
const CHECKPOINT_PAGES: u32 = 4000;

/// Number of bytes of the database that a connection maps into memory.
const MMAP_BYTES: u64 = 1024 * 1024 * 1024;

/// Why a connection could not be opened, with the driver's message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Connect(#[from] diesel::ConnectionError),
    #[error("{0}")]
    Settings(#[from] diesel::result::Error),
    #[error("the path is not valid UTF-8")]
    Path,
    #[error("the file system does not support a write-ahead log: the database stays in `{0}` mode")]
    JournalMode(String),
}

/// The settings of the writing connection, kept for reopening it.
#[derive(Debug, Clone)]
pub(crate) struct WriterSettings {
    pub path: PathBuf,
    pub busy_timeout: Duration,
    pub max_file_bytes: Option<u64>,
}

/// Opens the writing connection. There is only one.
pub(crate) fn writer(settings: &WriterSettings) -> Result<SqliteConnection, ConnectError> {
    let WriterSettings {
        path,
        busy_timeout,
        max_file_bytes,
    } = settings;
    let mut conn = connect(path, *busy_timeout)?;
    let mode = pragma_text(&mut conn, "PRAGMA journal_mode = WAL")?;
    if mode != "wal" {
        return Err(ConnectError::JournalMode(mode));
    }
    // FULL: a commit returns after the log has reached the disk, so that an acknowledged write survives a power
    // failure.
    conn.batch_execute(&format!(
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; \
         PRAGMA journal_size_limit = {WAL_SIZE_LIMIT_BYTES}; PRAGMA analysis_limit = 400"
    ))?;
    if let Some(bytes) = max_file_bytes {
        let page_size = pragma_int(&mut conn, "PRAGMA page_size")?;
        let pages = i64::try_from(*bytes).unwrap_or(i64::MAX) / page_size.max(1);
        pragma_int(
            &mut conn,
            &format!(
                "PRAGMA max_page_count = {}",
                pages.clamp(1, i64::from(u32::MAX) - 1)
            ),
        )?;
    }
    Ok(conn)
}

/// Opens a connection that only reads.
pub(crate) fn reader(
    path: &Path,
    busy_timeout: Duration,
) -> Result<SqliteConnection, ConnectError> {
    let mut conn = connect(path, busy_timeout)?;
    conn.batch_execute("PRAGMA query_only = ON; PRAGMA cache_size = -4096")?;
    Ok(conn)
}

fn connect(path: &Path, busy_timeout: Duration) -> Result<SqliteConnection, ConnectError> {
    // An absolute path is never interpreted as a URI.
    let path = std::path::absolute(path).ok();
    let path = path
        .as_deref()
        .and_then(Path::to_str)
        .ok_or(ConnectError::Path)?;
    let mut conn = SqliteConnection::establish(path)?;
    // This comes first because every other statement may encounter a lock.
    conn.batch_execute(&format!(
        "PRAGMA busy_timeout = {}",
        busy_timeout.as_millis()
    ))?;
    conn.batch_execute(&format!(
        "PRAGMA mmap_size = {MMAP_BYTES}; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF"
    ))?;
    Ok(conn)
}

/// Frees the page cache of a connection. Called when the service is idle.
pub(crate) fn release_memory(conn: &mut SqliteConnection) {
    if let Err(error) = conn.batch_execute("PRAGMA shrink_memory") {
        tracing::debug!(error = %error, "Could not free the memory of an idle connection");
    }
}

/// The integer that a PRAGMA returns.
pub(crate) fn pragma_int(conn: &mut SqliteConnection, sql: &str) -> QueryResult<i64> {
    // A raw expression, because a PRAGMA cannot be written in diesel's query language.
    diesel::dsl::sql::<diesel::sql_types::BigInt>(sql).get_result(conn)
}

fn pragma_text(conn: &mut SqliteConnection, sql: &str) -> QueryResult<String> {
    diesel::dsl::sql::<diesel::sql_types::Text>(sql).get_result(conn)
}
