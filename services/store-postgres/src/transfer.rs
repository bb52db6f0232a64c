//! This database as an end of a migration (`context_store::transfer`).

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

/// A connection that is used by nobody else, and the database's name.
struct Link {
    conn: AsyncPgConnection,
    shown: String,
    /// Whether it keeps vectors.
    has_vectors: bool,
    /// Whether it keeps those of tokens.
    has_tokens: bool,
}

impl Link {
    /// Statements of a migration may take long, and it may wait long between two.
    async fn patient(mut conn: AsyncPgConnection, shown: &str) -> Result<Self, TransferError> {
        let shown = format!("postgresql://{shown}");
        let patience = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0";
        conn.batch_execute(patience)
            .await
            .map_err(Self::failed(&shown))?;
        let has_vectors = vectors::are_there(&mut conn, "context.chunks")
            .await
            .map_err(Self::failed(&shown))?;
        let has_tokens = vectors::are_there(&mut conn, "context.chunk_tokens")
            .await
            .map_err(Self::failed(&shown))?;
        Ok(Self {
            conn,
            shown,
            has_vectors,
            has_tokens,
        })
    }

    /// What the database can hold of what is moved.
    fn holds(&self, table: &Table) -> bool {
        match table.name {
            "chunks" => self.has_vectors,
            "chunk_tokens" => self.has_tokens,
            _ => true,
        }
    }

    /// Names the database in an error.
    fn failed<E: Into<context_store::BoxError>>(shown: &str) -> impl Fn(E) -> TransferError {
        move |error| TransferError::database(shown, error)
    }
}
