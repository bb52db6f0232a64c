//! A database file as the source of a migration.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use context_store::transfer::predecessor::Predecessor;
use context_store::transfer::{
    Cell, ErasedOwner, Examined, Head, Row, Source, Table, TransferError,
};
use context_store::{EmbeddingModel, OwnerId};
use diesel::connection::SimpleConnection as _;

use super::predecessor::OldFile;
use super::{Worker, read};
use crate::lock::Lock;
use crate::open::{self, OpenError, Readable};

/// A database of this service. From [`Self::open`] it is read in one transaction, and no other process opens it in the
/// meantime. From [`Self::open_to_examine`] a service may write to it, and each read is a transaction of its own.
pub struct SqliteSource {
    pub(super) worker: Worker,
    pub(super) _lock: Option<Lock>,
}

impl SqliteSource {
    /// Opens a file of this service, or one of an mcp-context-server, whose entries become entries of `owner`.
    ///
    /// # Errors
    /// [`TransferError`], a sentence for the operator who named the file.
    pub async fn open(path: PathBuf, owner: OwnerId) -> Result<Box<dyn Source>, TransferError> {
        crate::tokenizer::register();
        let path = context_model::local::absolute(&path);
        let shown = path.clone();
        let opened = tokio::task::spawn_blocking(move || open::open_to_read(&path)).await;
        let (readable, mut conn) = opened
            .map_err(|error| TransferError::database(&shown.display().to_string(), error))??;
        begin(&mut conn, &shown)?;
        let worker = Worker::new(conn, &shown);
        match readable {
            Readable::Ours(lock) => Ok(Box::new(Self {
                worker,
                _lock: Some(lock),
            })),
            Readable::Foreign => Ok(Box::new(
                Predecessor::open(OldFile::open(worker, &shown).await?, owner).await?,
            )),
        }
    }
}

impl SqliteSource {
    /// Opens a file of this service to examine it while a service may be running on it.
    ///
    /// # Errors
    /// [`OpenError`], a sentence for the operator who named the file.
    pub async fn open_to_examine(path: PathBuf) -> Result<Self, OpenError> {
        crate::tokenizer::register();
        let path = context_model::local::absolute(&path);
        let shown = path.clone();
        let failed = |error: tokio::task::JoinError| OpenError::Other {
            path: shown.clone(),
            source: error.into(),
        };
        let conn = tokio::task::spawn_blocking(move || open::open_to_examine(&path))
            .await
            .map_err(failed)??;
        Ok(Self {
            worker: Worker::new(conn, &shown),
            _lock: None,
        })
    }
}

#[async_trait]
impl Examined for SqliteSource {
    async fn structure(&mut self) -> Result<Vec<String>, TransferError> {
        self.worker.run(read::structure).await
    }

    async fn keys(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Vec<Cell>>, TransferError> {
        let (owner, after) = (owner.clone(), after.to_vec());
        self.worker
            .run(move |conn| read::keys(conn, &owner, table, &after))
            .await
    }

    async fn row(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        key: &[Cell],
    ) -> Result<Option<Row>, TransferError> {
        let (owner, key) = (owner.clone(), key.to_vec());
        self.worker
            .run(move |conn| read::row(conn, &owner, table, &key))
            .await
    }
}

fn begin(conn: &mut diesel::sqlite::SqliteConnection, path: &Path) -> Result<(), TransferError> {
    conn.batch_execute("BEGIN")
        .map_err(|error| TransferError::database(&path.display().to_string(), error))
}

#[async_trait]
impl Source for SqliteSource {
    fn shown(&self) -> &str {
        &self.worker.shown
    }

    fn holds(&self, _: &Table) -> bool {
        true
    }

    async fn model(&mut self) -> Result<Option<EmbeddingModel>, TransferError> {
        Ok(self.worker.run(read::model).await?.map(|(_, model)| model))
    }

    async fn owners(&mut self, after: Option<&OwnerId>) -> Result<Vec<Head>, TransferError> {
        let after = after.cloned();
        self.worker
            .run(move |conn| read::owners(conn, after.as_ref()))
            .await
    }

    async fn erased_owners(&mut self) -> Result<Vec<ErasedOwner>, TransferError> {
        self.worker.run(read::erased).await
    }

    async fn count(&mut self, table: &'static Table) -> Result<u64, TransferError> {
        self.worker.run(move |conn| read::count(conn, table)).await
    }

    async fn read(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        after: &[Cell],
    ) -> Result<Vec<Row>, TransferError> {
        let (owner, after) = (owner.clone(), after.to_vec());
        self.worker
            .run(move |conn| read::rows(conn, &owner, table, &after))
            .await
    }
}
