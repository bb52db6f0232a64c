//! The two ends of a migration.

use async_trait::async_trait;

use super::row::{Cell, Row};
use super::table::Table;
use crate::{BoxError, EmbeddingModel, OwnerId};

/// Why a migration did not happen, or not to its end. Each message is a sentence for whoever started it.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// It cannot be done, and nothing was changed by finding out.
    #[error("{0}")]
    Refused(String),
    /// A database failed; what was committed stays, and the same command goes on from there.
    #[error("{shown}: {source}; run the same command again to go on")]
    Database {
        /// Which one, without a password.
        shown: String,
        /// What it says.
        #[source]
        source: BoxError,
    },
    /// Both were read again and are not equal.
    #[error(
        "the target does not hold what the source holds: {0}; empty the target and start again"
    )]
    Differs(String),
}

impl TransferError {
    /// A failure of this database.
    pub fn database(shown: &str, source: impl Into<BoxError>) -> Self {
        Self::Database {
            shown: shown.to_owned(),
            source: source.into(),
        }
    }
}

/// An owner and the counters that its rows do not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The owner.
    pub owner: OwnerId,
    /// Its revision.
    pub revision: i64,
    /// The first id that no entry ever had.
    pub next_id: i64,
}

/// A database to read, in one state from first to last.
#[async_trait]
pub trait Source: Send {
    /// Where it is, without a password; the same at every call.
    fn shown(&self) -> &str;

    /// Whether it has rows of this table.
    fn holds(&self, table: &Table) -> bool;

    /// The model whose vectors it holds.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn model(&mut self) -> Result<Option<EmbeddingModel>, TransferError>;

    /// Owners in the order of their names, some at a time; none when there are no more.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn owners(&mut self, after: Option<&OwnerId>) -> Result<Vec<Head>, TransferError>;

    /// Rows of a table, of all owners.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn count(&mut self, table: &'static Table) -> Result<u64, TransferError>;

    /// The rows after this key (an empty one: from the first on) in the order of their keys: at most
    /// [`BATCH_ROWS`](super::BATCH_ROWS), and about [`BATCH_BYTES`](super::BATCH_BYTES), but one at least while there are any.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn read(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Row>, TransferError>;
}

/// A database to fill. Each call is one transaction, and keeps the mark it is given with it.
#[async_trait]
pub trait Target: Send {
    /// What it holds so far.
    fn source(&mut self) -> &mut dyn Source;

    /// The mark of a migration that has not ended.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn mark(&mut self) -> Result<Option<String>, TransferError>;

    /// Whether nothing was ever stored in it.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn is_empty(&mut self) -> Result<bool, TransferError>;

    /// Begins: from now on no service opens it.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn begin(
        &mut self,
        model: Option<&EmbeddingModel>,
        mark: &str,
    ) -> Result<(), TransferError>;

    /// Writes rows, and what is derived of them.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn write(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        rows: &[Row],
        mark: &str,
    ) -> Result<(), TransferError>;

    /// Sets an owner's counters; all its rows are there.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn close_owner(&mut self, head: &Head, mark: &str) -> Result<(), TransferError>;

    /// Ends: takes the mark away, so that services may open it.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn finish(&mut self) -> Result<(), TransferError>;
}
