//! Holds the write lock of a database, so that the service's writes wait. No other method fills the queue as reliably.

use std::path::Path;

use diesel::connection::SimpleConnection as _;
use diesel::sqlite::SqliteConnection;

use crate::audit::connect;

/// The write lock. Dropping it releases the lock.
pub struct Blocker(SqliteConnection);

impl Blocker {
    /// Takes the lock. The service needs a `SQLITE_BUSY_TIMEOUT_MS` longer than the test.
    ///
    /// # Panics
    /// The lock cannot be acquired.
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
