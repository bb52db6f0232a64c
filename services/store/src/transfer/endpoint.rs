//! The source and the target of a migration.

use async_trait::async_trait;

use super::losses::Losses;
use super::row::{Cell, Row};
use super::table::Table;
use crate::{BoxError, EmbeddingModel, OwnerId};

/// Why a migration did not start or did not finish. Each message is a sentence for the operator who started it.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The migration cannot begin or continue. What was committed before stays.
    #[error("{0}")]
    Refused(String),
    /// A database failed. What was committed stays, and the same command continues from there.
    #[error("{shown}: {source}; run the same command again to continue")]
    Database {
        /// The database, without a password.
        shown: String,
        /// The error of the database.
        #[source]
        source: BoxError,
    },
    /// A database failed at these rows. What was committed stays, and the same command continues from there.
    #[error(
        "{shown}, {rows}: {source}; run the same command again to continue; if it fails there again, repair or delete the row \
         in the source, empty the target and start again"
    )]
    Rows {
        /// The database, without a password.
        shown: String,
        /// The table, the owner, and what is known of the rows.
        rows: String,
        /// The error of the database.
        #[source]
        source: BoxError,
    },
    /// After copying, source and target are not equal.
    #[error("the target and the source differ: {0}; empty the target and start again")]
    Differs(String),
}

impl TransferError {
    /// The error of a database.
    pub fn database(shown: &str, source: impl Into<BoxError>) -> Self {
        Self::Database {
            shown: shown.to_owned(),
            source: source.into(),
        }
    }

    /// Adds the rows at which a database failed.
    pub(super) fn at(self, rows: String) -> Self {
        match self {
            Self::Database { shown, source } => Self::Rows {
                shown,
                rows,
                source,
            },
            Self::Refused(_) | Self::Rows { .. } | Self::Differs(_) => self,
        }
    }
}

/// A table of an owner, for a message.
pub(super) fn place(owner: &OwnerId, table: &Table) -> String {
    // Escaped, because a name could contain control sequences for the terminal.
    let owner = owner.as_str().escape_debug();
    format!("table {} of owner `{owner}`", table.name)
}

/// An owner and the counters that cannot be derived from its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The owner.
    pub owner: OwnerId,
    /// The owner's revision.
    pub revision: i64,
    /// The next unused entry id.
    pub next_id: i64,
}

/// An erased owner, of which only the next id remains, so that no id is used twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErasedOwner {
    /// The owner.
    pub owner: OwnerId,
    /// The next unused entry id.
    pub next_id: i64,
}

/// A database to read. All reads of a migration see the same state of it.
#[async_trait]
pub trait Source: Send {
    /// The location, without a password. Constant.
    fn shown(&self) -> &str;

    /// Whether the database stores rows of this table.
    fn holds(&self, table: &Table) -> bool;

    /// The embedding model whose vectors it holds.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn model(&mut self) -> Result<Option<EmbeddingModel>, TransferError>;

    /// A page of owners in the order of their names. Empty when there are no more.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn owners(&mut self, after: Option<&OwnerId>) -> Result<Vec<Head>, TransferError>;

    /// The owners that were erased and not created again.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn erased_owners(&mut self) -> Result<Vec<ErasedOwner>, TransferError> {
        Ok(Vec::new())
    }

    /// Number of rows of a table, for all owners.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn count(&mut self, table: &'static Table) -> Result<u64, TransferError>;

    /// The values that the source changed in the rows read so far. Reading a table from its first row starts its count
    /// again.
    fn losses(&self) -> Losses {
        Losses::default()
    }

    /// The rows after this key, in the order of their keys. An empty key starts at the first row. Returns at most
    /// [`BATCH_ROWS`](super::BATCH_ROWS) rows and about [`BATCH_BYTES`](super::BATCH_BYTES) bytes, but at least one row
    /// if there is any.
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

/// A database to fill. Each write that takes a mark is one transaction, which also stores the mark.
#[async_trait]
pub trait Target: Send {
    /// The target's current content.
    fn source(&mut self) -> &mut dyn Source;

    /// The stored mark of an incomplete migration.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn mark(&mut self) -> Result<Option<String>, TransferError>;

    /// Whether the database has no owner, and so no data of any.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn is_empty(&mut self) -> Result<bool, TransferError>;

    /// Stores the first mark and the next ids of erased owners. From now on no service opens the database.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn begin(
        &mut self,
        model: Option<&EmbeddingModel>,
        erased: &[ErasedOwner],
        mark: &str,
    ) -> Result<(), TransferError>;

    /// Writes rows and their derived data, except what [`finish`](Self::finish) builds.
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

    /// Sets an owner's counters after all its rows are written.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn close_owner(&mut self, head: &Head, mark: &str) -> Result<(), TransferError>;

    /// Builds the derived data that is still missing and removes the mark, so that services may open the database.
    ///
    /// # Errors
    /// [`TransferError`].
    async fn finish(&mut self) -> Result<(), TransferError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_shows_the_control_characters_of_an_owner_as_escapes() {
        let entries = Table::named("entries").unwrap();
        assert_eq!(
            place(&OwnerId::new("a\u{1b}[2J"), entries),
            "table entries of owner `a\\u{1b}[2J`"
        );
    }
}
