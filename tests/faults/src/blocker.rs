//! Holds the write lock of a database, so that the service's writes wait: nothing else makes a full queue so reliably.

use std::path::Path;

use diesel::connection::SimpleConnection as _;
use diesel::sqlite::SqliteConnection;

use crate::audit::connect;

/// The lock, until it is dropped.
pub struct Blocker(SqliteConnection);

impl Blocker {
    /// Takes the lock. The service needs a `SQLITE_BUSY_TIMEOUT_MS` that is longer than the test.
    ///
    /// # Panics
    /// When the lock cannot be had.
    #[must_use]
    pub fn hold(database: &Path) -> Self {
        let mut conn = connect(database);
        conn.batch_execute("BEGIN IMMEDIATE")
            .expect("the write lock");
        Self(conn)
    }
}

impl std::fmt::Debug for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blocker").finish_non_exhaustive()
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        let _ = self.0.batch_execute("ROLLBACK");
    }
}
