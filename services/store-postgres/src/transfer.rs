//! This database as the source or the target of a migration (`context_store::transfer`).

mod predecessor;
mod read;
mod source;
mod target;
mod vectors;
mod write;

pub use source::PostgresSource;
pub use target::PostgresTarget;

use crate::pg::connection::AsyncPgConnection;
use context_store::transfer::{Table, TransferError};
use diesel_async::SimpleAsyncConnection as _;

use crate::open::OpenError;

impl From<OpenError> for TransferError {
    fn from(error: OpenError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A connection for the migration alone, and the database's name.
struct Link {
    conn: AsyncPgConnection,
    shown: String,
    /// Whether the database stores vectors.
    has_vectors: bool,
    /// Whether it stores token vectors.
    has_tokens: bool,
}

impl Link {
    /// Removes the session's timeouts, which the database or the role may set: statements of a migration may take long,
    /// and so may the pauses between them.
    async fn without_timeouts(
        mut conn: AsyncPgConnection,
        shown: &str,
    ) -> Result<Self, TransferError> {
        let shown = format!("postgresql://{shown}");
        // PostgreSQL 16 has no `transaction_timeout`, so a SET of it would fail there.
        let no_timeouts = "SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name IN \
                           ('statement_timeout', 'transaction_timeout', 'idle_session_timeout', \
                           'idle_in_transaction_session_timeout')";
        conn.batch_execute(no_timeouts)
            .await
            .map_err(Self::failed(&shown))?;
        let has_vectors = vectors::table_exists(&mut conn, "context.chunks")
            .await
            .map_err(Self::failed(&shown))?;
        let has_tokens = vectors::table_exists(&mut conn, "context.chunk_tokens")
            .await
            .map_err(Self::failed(&shown))?;
        Ok(Self {
            conn,
            shown,
            has_vectors,
            has_tokens,
        })
    }

    /// Whether the database can store rows of this table. Vectors need pgvector.
    fn holds(&self, table: &Table) -> bool {
        match table.name {
            "chunks" => self.has_vectors,
            "chunk_tokens" => self.has_tokens,
            _ => true,
        }
    }

    /// Wraps an error with the database's name.
    fn failed<E: Into<context_store::BoxError>>(shown: &str) -> impl Fn(E) -> TransferError {
        move |error| TransferError::database(shown, error)
    }
}
