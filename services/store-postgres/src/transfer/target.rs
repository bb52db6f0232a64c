//! A database as the target of a migration.

use crate::pg::connection::AsyncPgConnection;
use async_trait::async_trait;
use context_store::transfer::{ErasedOwner, Head, MARK, Row, Source, Table, Target, TransferError};
use context_store::{ContextWindow, EmbeddingModel, OwnerId, StoreError};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};

use super::source::PostgresSource;
use super::{Link, write};
use crate::artifacts::documents;
use crate::config::Config;
use crate::fts::{self, Language};
use crate::open::{self, OpenError, Opened};
use crate::pg::connection::connect;
use crate::pg::failure::{Failure, cause};
use crate::pg::sql::{self, Bind, Fragment};
use crate::schema::{embedding_sets, owners, threads};
use crate::settings;
use crate::vectors::{SetState, create_set};

/// The advisory lock that serialises migrations into one database. The number is arbitrary, but no other program may
/// lock it in this database.
const LOCK: i64 = 0x6374_785f_6d6f_7665;

/// A database of this service that a migration fills.
pub struct PostgresTarget {
    source: PostgresSource,
    language: Language,
    context_window: ContextWindow,
}

impl PostgresTarget {
    /// Opens the database: creates or updates its schema and indexes.
    ///
    /// # Errors
    /// [`TransferError`], whose message is a sentence for the operator.
    pub async fn open(config: &Config) -> Result<Self, TransferError> {
        #[derive(QueryableByName)]
        struct Locked {
            #[diesel(sql_type = BigInt)]
            locked: i64,
        }
        let Opened { tls, language, .. } = open::open(config).await?;
        let shown = config.target.shown();
        let conn = connect(&config.target, &tls, config.connect_timeout).await;
        let conn = conn.map_err(|error| OpenError::Connect {
            shown: shown.clone(),
            reason: error.to_string(),
        })?;
        let mut link = Link::without_timeouts(conn, &shown).await?;
        let Link { conn, shown, .. } = &mut link;
        let lock = Fragment::prepared(
            "SELECT pg_try_advisory_lock(?)::int::bigint AS locked",
            vec![Bind::Int(LOCK)],
        );
        let rows: Vec<Locked> = sql::query(conn, lock).await.map_err(Link::failed(shown))?;
        if rows.as_slice().first().is_none_or(|row| row.locked == 0) {
            return Err(TransferError::Refused(format!(
                "another migration into {shown} is running"
            )));
        }
        let mut target = Self {
            source: PostgresSource { link },
            language,
            context_window: config.context_window,
        };
        // A database with data of its own is refused later, and services may be using its full-text index.
        if target.is_empty().await? || target.mark().await?.is_some() {
            let Link { conn, shown, .. } = &mut target.source.link;
            fts::rebuild(conn, &target.language, config.context_window)
                .await
                .map_err(Link::failed(shown))?;
        }
        Ok(target)
    }

    /// Stores the mark and commits, or rolls back if the work of the transaction failed.
    async fn commit(&mut self, mark: &str, work: Result<(), Failure>) -> Result<(), TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        let marked = match work {
            Ok(()) => settings::write(conn, MARK, mark)
                .await
                .map_err(Failure::Database),
            Err(failure) => Err(failure),
        };
        let ended = match marked {
            Ok(()) => conn
                .batch_execute("COMMIT")
                .await
                .map_err(Failure::Database),
            Err(failure) => {
                let _ = conn.batch_execute("ROLLBACK").await;
                Err(failure)
            }
        };
        ended.map_err(|failure| Link::failed(shown)(cause(failure)))
    }

    /// Begins a transaction.
    async fn start(&mut self) -> Result<(), TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        conn.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            .await
            .map_err(Link::failed(shown))
    }
}

/// Creates the set of the migrated vectors. A service that was started on the empty database may have created one.
async fn use_model(conn: &mut AsyncPgConnection, model: &EmbeddingModel) -> Result<(), Failure> {
    diesel::delete(embedding_sets::table).execute(conn).await?;
    create_set(conn, model, SetState::Current).await
}

#[async_trait]
impl Target for PostgresTarget {
    fn source(&mut self) -> &mut dyn Source {
        &mut self.source
    }

    async fn mark(&mut self) -> Result<Option<String>, TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        open::mark(conn).await.map_err(Link::failed(shown))
    }

    async fn is_empty(&mut self) -> Result<bool, TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        let owners: i64 = owners::table
            .count()
            .get_result(conn)
            .await
            .map_err(Link::failed(shown))?;
        let threads: i64 = threads::table
            .count()
            .get_result(conn)
            .await
            .map_err(Link::failed(shown))?;
        Ok(owners + threads == 0)
    }

    async fn begin(
        &mut self,
        model: Option<&EmbeddingModel>,
        erased: &[ErasedOwner],
        mark: &str,
    ) -> Result<(), TransferError> {
        self.start().await?;
        let Link {
            conn, has_vectors, ..
        } = &mut self.source.link;
        let mut done = write::erased(conn, erased).await;
        if let Some(model) = model.filter(|_| *has_vectors)
            && done.is_ok()
        {
            done = use_model(conn, model).await;
        }
        self.commit(mark, done).await
    }

    async fn write(
        &mut self,
        owner: &OwnerId,
        table: &'static Table,
        rows: &[Row],
        mark: &str,
    ) -> Result<(), TransferError> {
        self.start().await?;
        let done = write::rows(
            &mut self.source.link.conn,
            owner,
            table,
            rows,
            &self.language,
        )
        .await;
        self.commit(mark, done).await
    }

    async fn close_owner(&mut self, head: &Head, mark: &str) -> Result<(), TransferError> {
        self.start().await?;
        let done = write::close_owner(&mut self.source.link.conn, head).await;
        self.commit(mark, done).await
    }

    async fn finish(&mut self) -> Result<(), TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        // The entries of a context window may have been migrated after the entry.
        fts::rebuild_contexts(conn, self.context_window)
            .await
            .map_err(Link::failed(shown))?;
        documents::complete(conn, &self.language)
            .await
            .map_err(|failure| TransferError::database(shown, StoreError::from(failure)))?;
        // The planner has no statistics of the migrated rows.
        let tables = "ANALYZE context.entries, context.entry_tags, context.threads, context.images, context.artifacts, \
                      context.artifact_versions, context.artifact_documents, context.changes";
        conn.batch_execute(tables)
            .await
            .map_err(Link::failed(shown))?;
        settings::delete(conn, MARK)
            .await
            .map_err(Link::failed(shown))
    }
}
