//! A database as the source of a migration.

use std::time::Duration;

use async_trait::async_trait;
use context_store::transfer::predecessor::Predecessor;
use context_store::transfer::{
    Cell, ErasedOwner, Examined, Head, Row, Source, Table, TransferError,
};
use context_store::{EmbeddingModel, OwnerId};
use diesel_async::SimpleAsyncConnection as _;

use super::predecessor::OldTables;
use super::{Link, read};
use crate::open::{self, Readable};
use crate::pg::failure::cause;
use crate::pg::target::Target;
use crate::vectors::current_set;

/// A database of this service. A migration reads it in one snapshot, and an examination reads each batch in its own.
pub struct PostgresSource {
    pub(super) link: Link,
}

impl PostgresSource {
    /// Connects to a database of this service or of an mcp-context-server. The entries of an mcp-context-server get the
    /// owner `owner`.
    ///
    /// # Errors
    /// [`TransferError`], whose message is a sentence for the operator.
    pub async fn open(
        target: &Target,
        connect_timeout: Duration,
        owner: OwnerId,
    ) -> Result<Box<dyn Source>, TransferError> {
        let (readable, conn) = open::open_to_read(target, connect_timeout).await?;
        let mut link = Link::without_timeouts(conn, &target.shown()).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        link.conn
            .batch_execute(begin)
            .await
            .map_err(Link::failed(&link.shown))?;
        match readable {
            Readable::Ours => Ok(Box::new(Self { link })),
            Readable::Foreign => Ok(Box::new(
                Predecessor::open(OldTables::open(link).await?, owner).await?,
            )),
        }
    }

    /// Connects to a database of this service to examine it, while services may be using it. Each read sees one state.
    ///
    /// # Errors
    /// [`TransferError`], whose message is a sentence for the operator.
    pub async fn open_to_examine(
        target: &Target,
        connect_timeout: Duration,
    ) -> Result<Self, TransferError> {
        let (readable, conn) = open::open_to_read(target, connect_timeout).await?;
        let link = Link::without_timeouts(conn, &target.shown()).await?;
        match readable {
            Readable::Ours => Ok(Self { link }),
            Readable::Foreign => Err(TransferError::Refused(format!(
                "{} holds nothing that this service stored",
                link.shown
            ))),
        }
    }
}

#[async_trait]
impl Examined for PostgresSource {
    /// The server offers no structural check without an extension. Reading every row verifies the page checksums, if
    /// the server has them.
    async fn structure(&mut self) -> Result<Vec<String>, TransferError> {
        Ok(Vec::new())
    }

    async fn keys(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Vec<Cell>>, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        read::keys(conn, owner, table, after)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))
    }

    async fn row(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        key: &[Cell],
    ) -> Result<Option<Row>, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        read::row(conn, owner, table, key)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))
    }
}

#[async_trait]
impl Source for PostgresSource {
    fn shown(&self) -> &str {
        &self.link.shown
    }

    fn holds(&self, table: &Table) -> bool {
        self.link.holds(table)
    }

    async fn model(&mut self) -> Result<Option<EmbeddingModel>, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        let set = current_set(conn)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))?;
        Ok(set.map(|(_, model)| model))
    }

    async fn owners(&mut self, after: Option<&OwnerId>) -> Result<Vec<Head>, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        read::owners(conn, after)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))
    }

    async fn erased_owners(&mut self) -> Result<Vec<ErasedOwner>, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        read::erased(conn)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))
    }

    async fn count(&mut self, table: &'static Table) -> Result<u64, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        read::count(conn, table)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))
    }

    async fn read(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Row>, TransferError> {
        let Link { conn, shown, .. } = &mut self.link;
        read::rows(conn, owner, table, after)
            .await
            .map_err(cause)
            .map_err(Link::failed(shown))
    }
}
