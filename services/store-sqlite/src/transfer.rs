//! This database as the source or the target of a migration (`context_store::transfer`).

mod predecessor;
mod read;
mod source;
mod target;
mod write;

pub use source::SqliteSource;
pub use target::SqliteTarget;

use std::path::Path;

use context_store::transfer::TransferError;
use diesel::sqlite::SqliteConnection;

use crate::open::OpenError;

impl From<OpenError> for TransferError {
    fn from(error: OpenError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A connection whose calls run on blocking threads, one at a time.
struct Worker {
    /// `None` during a call, and forever after a call panicked.
    conn: Option<SqliteConnection>,
    shown: String,
}

impl Worker {
    fn new(conn: SqliteConnection, path: &Path) -> Self {
        Self {
            conn: Some(conn),
            shown: format!("sqlite://{}", path.display()),
        }
    }

    async fn run<T, E>(
        &mut self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, TransferError>
    where
        T: Send + 'static,
        E: Into<context_store::BoxError> + Send + 'static,
    {
        let failed = |error: context_store::BoxError| TransferError::database(&self.shown, error);
        let Some(mut conn) = self.conn.take() else {
            return Err(failed("an earlier call failed".into()));
        };
        let running = tokio::task::spawn_blocking(move || {
            let outcome = work(&mut conn);
            (conn, outcome)
        });
        let (conn, outcome) = running.await.map_err(|error| failed(error.into()))?;
        let outcome = outcome.map_err(|error| failed(error.into()));
        self.conn = Some(conn);
        outcome
    }
}
