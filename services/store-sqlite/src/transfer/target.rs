//! A database file as the target of a migration.

use async_trait::async_trait;
use context_store::transfer::{ErasedOwner, Head, MARK, Row, Source, Table, Target, TransferError};
use context_store::{BoxError, ContextWindow, EmbeddingModel, OwnerId};
use context_text::Language;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;

use super::source::SqliteSource;
use super::{Worker, write};
use crate::artifacts::documents;
use crate::config::Config;
use crate::fts;
use crate::open;
use crate::schema::{embedding_sets, meta, owners};
use crate::seals::SEALED;

/// A database of this service that a migration fills. No other process opens it in the meantime.
pub struct SqliteTarget {
    source: SqliteSource,
    language: Language,
    context_window: ContextWindow,
}

impl SqliteTarget {
    /// Opens the file. It is created when it is missing.
    ///
    /// # Errors
    /// [`TransferError`], a sentence for the operator who named the file.
    pub async fn open(config: Config) -> Result<Self, TransferError> {
        crate::tokenizer::register();
        let (language, context_window) = (
            Language::parse(&config.language).unwrap_or(Language::Unstemmed),
            config.context_window,
        );
        let shown = config.path.display().to_string();
        let opened = tokio::task::spawn_blocking(move || open::open(&config)).await;
        let (opened, conn) = opened.map_err(|error| TransferError::database(&shown, error))??;
        let source = SqliteSource {
            worker: Worker::new(conn, &opened.settings.path),
            _lock: Some(opened.lock),
        };
        Ok(Self {
            source,
            language,
            context_window,
        })
    }

    /// Runs `work` in a transaction that also stores the mark.
    async fn write_marked(
        &mut self,
        mark: &str,
        work: impl FnOnce(&mut SqliteConnection) -> Result<(), BoxError> + Send + 'static,
    ) -> Result<(), TransferError> {
        let mark = mark.to_owned();
        let transaction = move |conn: &mut SqliteConnection| {
            conn.batch_execute("BEGIN IMMEDIATE")?;
            let done = work(conn).and_then(|()| {
                diesel::replace_into(meta::table)
                    .values((meta::key.eq(MARK), meta::value.eq(mark)))
                    .execute(conn)?;
                Ok(conn.batch_execute("COMMIT")?)
            });
            if done.is_err() {
                // SQLite may have ended the transaction itself.
                let _ = conn.batch_execute("ROLLBACK");
            }
            done
        };
        self.source.worker.run(transaction).await
    }
}

#[async_trait]
impl Target for SqliteTarget {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.source
    }

    async fn mark(&mut self) -> Result<Option<String>, TransferError> {
        self.source.worker.run(open::mark).await
    }

    async fn is_empty(&mut self) -> Result<bool, TransferError> {
        self.source
            .worker
            .run(|conn| {
                Ok::<_, diesel::result::Error>(owners::table.count().get_result::<i64>(conn)? == 0)
            })
            .await
    }

    async fn begin(
        &mut self,
        model: Option<&EmbeddingModel>,
        erased: &[ErasedOwner],
        mark: &str,
    ) -> Result<(), TransferError> {
        let (model, erased) = (model.cloned(), erased.to_vec());
        self.write_marked(mark, move |conn| {
            write::erased(conn, &erased)?;
            // The full-text index is built at the end.
            fts::forget(conn)?;
            diesel::delete(embedding_sets::table).execute(conn)?;
            if let Some(EmbeddingModel {
                identity,
                dimensions,
            }) = model
            {
                diesel::insert_into(embedding_sets::table)
                    .values((
                        embedding_sets::set_id.eq(write::SET),
                        embedding_sets::model.eq(identity),
                        embedding_sets::dimensions.eq(i64::from(dimensions)),
                        embedding_sets::current.eq(1),
                    ))
                    .execute(conn)?;
            }
            Ok(())
        })
        .await
    }

    async fn write(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        rows: &[Row],
        mark: &str,
    ) -> Result<(), TransferError> {
        let (owner, rows) = (owner.clone(), rows.to_vec());
        self.write_marked(mark, move |conn| write::rows(conn, &owner, table, &rows))
            .await
    }

    async fn close_owner(&mut self, head: &Head, mark: &str) -> Result<(), TransferError> {
        let head = head.clone();
        self.write_marked(mark, move |conn| write::close_owner(conn, &head))
            .await
    }

    async fn finish(&mut self) -> Result<(), TransferError> {
        let (language, context_window) = (self.language, self.context_window);
        self.source
            .worker
            .run(move |conn| {
                fts::rebuild(conn, language, context_window)?;
                documents::complete(conn, language)?;
                conn.batch_execute("PRAGMA optimize")?;
                conn.immediate_transaction(|conn| {
                    diesel::delete(meta::table.filter(meta::key.eq_any([MARK, SEALED])))
                        .execute(conn)
                })?;
                // The migration is complete, and without its mark the same command could not continue it.
                if let Err(error) = conn.batch_execute("PRAGMA wal_checkpoint(TRUNCATE)") {
                    tracing::warn!(error = %error, "Could not checkpoint the log; the next start will do it");
                }
                Ok::<_, diesel::result::Error>(())
            })
            .await
    }
}
