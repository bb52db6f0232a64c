//! A database that is filled.

use crate::pg::connection::AsyncPgConnection;
use async_trait::async_trait;
use context_store::transfer::{Head, MARK, Row, Source, Table, Target, TransferError};
use context_store::{EmbeddingModel, Neighbourhood, OwnerId};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::SimpleAsyncConnection as _;

use super::source::PostgresSource;
use super::{Link, write};
use crate::config::Config;
use crate::fts::{self, Language};
use crate::open::{self, OpenError, Opened};
use crate::pg::connection::connect;
use crate::pg::failure::{Failure, cause};
use crate::pg::sql::{self, Bind, Fragment};
use crate::vectors::make_set;

/// Migrations into one database take turns. Any number that nobody else locks in it.
const LOCK: i64 = 0x6374_785f_6d6f_7665;

/// A database of this service that a migration fills.
pub struct PostgresTarget {
    source: PostgresSource,
    language: Language,
    neighbourhood: Neighbourhood,
}

impl PostgresTarget {
    /// Opens the database: makes or updates its schema and its indexes.
    ///
    /// # Errors
    /// [`TransferError`], a sentence for whoever named the database.
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
        let mut link = Link::patient(conn, &shown).await?;
        let Link { conn, shown, .. } = &mut link;
        let lock = Fragment::prepared(
            "SELECT pg_try_advisory_lock(?)::int::bigint AS locked",
            vec![Bind::Int(LOCK)],
        );
        let rows: Vec<Locked> = sql::query(conn, lock).await.map_err(Link::failed(shown))?;
        if rows.first().is_none_or(|row| row.locked == 0) {
            return Err(TransferError::Refused(format!(
                "another migration into {shown} is running"
            )));
        }
        fts::rebuild(conn, &language, config.neighbourhood)
            .await
            .map_err(Link::failed(shown))?;
        Ok(Self {
            source: PostgresSource { link },
            language,
            neighbourhood: config.neighbourhood,
        })
    }

    async fn commit(&mut self, mark: &str, done: Result<(), Failure>) -> Result<(), TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        let marked = match done {
            Ok(()) => set_mark(conn, mark).await,
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

    async fn start(&mut self) -> Result<(), TransferError> {
        let Link { conn, shown, .. } = &mut self.source.link;
        conn.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            .await
            .map_err(Link::failed(shown))
    }
}

/// Makes the set that the vectors belong to; a service that was started on the empty database may have made one.
async fn use_model(conn: &mut AsyncPgConnection, model: &EmbeddingModel) -> Result<(), Failure> {
    sql::execute(
        conn,
        Fragment::prepared("DELETE FROM context.embedding_sets", Vec::new()),
    )
    .await?;
    make_set(conn, model, "current").await
}

async fn set_mark(conn: &mut AsyncPgConnection, mark: &str) -> Result<(), Failure> {
    let set = "INSERT INTO context.settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    sql::execute(
        conn,
        Fragment::prepared(set, vec![Bind::text(MARK), Bind::text(mark)]),
    )
    .await?;
    Ok(())
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
        #[derive(QueryableByName)]
        struct Owners {
            #[diesel(sql_type = BigInt)]
            owners: i64,
        }
        let Link { conn, shown, .. } = &mut self.source.link;
        let count = "SELECT (SELECT count(*) FROM context.owners) + (SELECT count(*) FROM context.threads) AS owners";
        let rows: Vec<Owners> = sql::query(conn, Fragment::prepared(count, Vec::new()))
            .await
            .map_err(Link::failed(shown))?;
        Ok(rows.first().is_none_or(|row| row.owners == 0))
    }

    async fn begin(
        &mut self,
        model: Option<&EmbeddingModel>,
        mark: &str,
    ) -> Result<(), TransferError> {
        self.start().await?;
        let Link {
            conn, has_vectors, ..
        } = &mut self.source.link;
        let done = match model.filter(|_| *has_vectors) {
            Some(model) => use_model(conn, model).await,
            None => Ok(()),
        };
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
        // An entry's neighbours may have come after it.
        fts::renew_contexts(conn, self.neighbourhood)
            .await
            .map_err(Link::failed(shown))?;
        // The planner knows nothing of the rows that came.
        let tables = "ANALYZE context.entries, context.entry_tags, context.threads, context.images, context.artifacts, \
                      context.artifact_versions, context.changes";
        conn.batch_execute(tables)
            .await
            .map_err(Link::failed(shown))?;
        let gone = Fragment::prepared(
            "DELETE FROM context.settings WHERE key = ?",
            vec![Bind::text(MARK)],
        );
        sql::execute(conn, gone)
            .await
            .map_err(Link::failed(shown))?;
        Ok(())
    }
}
