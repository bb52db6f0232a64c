//! Connections to the server.

mod open;
mod traits;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel_async::SimpleAsyncConnection as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::TryStreamExt as _;
use futures::{join, poll, try_join};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use crate::pg::driver::{Encoded, PgRow, Source, Types};
use crate::pg::failure::{self, CommitError, Kind, failed};
use crate::pg::statement_cache::{CachePolicy, Lookup, SlowSearches, StatementCache, StatementId};

pub(crate) use self::open::{ConnectError, connect, connect_to_listen, connect_within};

/// Maximum number of statements in flight. Unsent statements are held in memory.
const MAX_IN_FLIGHT: usize = 64;
/// Maximum bytes of the values of a statement in flight. Larger statements are awaited.
const MAX_IN_FLIGHT_BYTES: usize = 256 * 1024;

/// One connection with its statement cache.
///
/// It replaces diesel-async's type of the same name behind the same traits. diesel-async's type hides the SQLSTATE of
/// an error, needs a further round trip to prepare each statement that is not cached, and pipelines only statements
/// whose futures are polled at the same time.
pub(crate) struct AsyncPgConnection {
    client: Arc<Client>,
    /// `None` behind a pooler that loses prepared statements between transactions.
    cache: Option<StatementCache>,
    slow_searches: Arc<SlowSearches>,
    has_session: bool,
    /// OIDs of extension types. They differ between databases.
    types: Types,
    /// Statements in flight, in order.
    in_flight: VecDeque<BoxFuture<'static, Result<(), tokio_postgres::Error>>>,
    /// Whether a transaction was begun.
    in_transaction: bool,
    /// Dropping the connection drops this sender, which ends the task that reads and writes.
    _alive: tokio::sync::oneshot::Sender<()>,
}

impl AsyncPgConnection {
    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sets the session's parameters. Without a timeout it sets none, because behind a pooler the next transaction may
    /// run in another server process. If this fails, the next statement returns the error.
    pub async fn start_session(
        &mut self,
        statement_timeout: Option<Duration>,
        slow_searches: &Arc<SlowSearches>,
    ) {
        self.slow_searches = Arc::clone(slow_searches);
        if let Some(timeout) = statement_timeout {
            self.has_session = true;
            let timeout = timeout.as_millis();
            // JIT compilation of a statement costs more than a search.
            self.send_batch(format!("SET statement_timeout = {timeout}; SET jit = off"))
                .await;
        }
    }

    /// Whether [`AsyncPgConnection::start_session`] set parameters. Otherwise each transaction sets its own.
    pub fn has_session(&self) -> bool {
        self.has_session
    }

    /// Records that a transaction was begun or ended.
    pub const fn set_in_transaction(&mut self, in_transaction: bool) {
        self.in_transaction = in_transaction;
    }

    /// Ends what a failed operation left: its transaction, and rows that it did not read.
    pub async fn clean_up(&mut self) -> QueryResult<()> {
        if self.in_transaction {
            self.in_transaction = false;
            return self.batch_execute("ROLLBACK").await;
        }
        let client = Arc::clone(&self.client);
        self.run_in_order(client.check_connection()).await
    }

    /// Searches whose plans are not cached.
    pub const fn slow_searches(&self) -> &Arc<SlowSearches> {
        &self.slow_searches
    }

    /// The token that cancels the statement running on this connection.
    pub fn cancel_token(&self) -> tokio_postgres::CancelToken {
        self.client.cancel_token()
    }

    /// Encodes a query whose text varies.
    pub fn encode(
        &self,
        query: &(impl QueryFragment<Pg> + ?Sized),
        policy: CachePolicy,
    ) -> QueryResult<Encoded> {
        Encoded::of(query, policy, &self.types)
    }

    /// Encodes a query with a fixed text. The text is rendered only until the statement is prepared.
    pub fn encode_fixed(
        &self,
        id: StatementId,
        query: &(impl QueryFragment<Pg> + ?Sized),
    ) -> QueryResult<Encoded> {
        let prepared = self.cache.as_ref().and_then(|cache| cache.find_by_id(id));
        #[cfg(debug_assertions)]
        if let Some(cached) = self.cache.as_ref().and_then(|cache| cache.text_of(id)) {
            let sql = self.encode(query, CachePolicy::Always)?.sql;
            assert_eq!(cached, sql, "a fixed query has two texts");
        }
        match prepared {
            Some(prepared) => Encoded::of_prepared(prepared.clone(), query, &self.types),
            None => Ok(Encoded {
                id: Some(id),
                ..self.encode(query, CachePolicy::Always)?
            }),
        }
    }

    /// Encodes a diesel query. A query with a static query id has a fixed text. Other queries share the bounded part of
    /// the cache.
    pub fn encode_query<Q: QueryFragment<Pg> + QueryId>(&self, query: &Q) -> QueryResult<Encoded> {
        match Q::query_id() {
            Some(id) => self.encode_fixed(StatementId::Query(id), query),
            None if query.is_safe_to_cache_prepared(&Pg)? => {
                self.encode(query, CachePolicy::WhileUsed)
            }
            None => self.encode(query, CachePolicy::Never),
        }
    }

    /// Reads the OIDs of an extension's type in any schema, unless this connection has read them already.
    pub async fn load_type(&mut self, name: &'static str) -> QueryResult<()> {
        if self.types.contains_key(name) {
            return Ok(());
        }
        let find = "SELECT oid, typarray FROM pg_catalog.pg_type WHERE typname = $1 \
                    ORDER BY pg_catalog.pg_type_is_visible(oid) DESC, oid LIMIT 1";
        report(find, Source::Raw(Some(find)));
        let client = Arc::clone(&self.client);
        let rows = self
            .run_in_order(client.query_typed(find, &[(&name, Type::TEXT)]))
            .await?;
        if let Some(row) = rows.first() {
            let oids = (
                row.try_get(0).map_err(failed)?,
                row.try_get(1).map_err(failed)?,
            );
            Arc::make_mut(&mut self.types).insert(name, oids);
        }
        Ok(())
    }

    /// Sends `statement` after the statements in flight, and waits for the results of all. Returns the first error,
    /// because in a transaction the later errors follow from it.
    async fn run_in_order<T>(
        &mut self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> QueryResult<T> {
        let mut statement = pin!(statement);
        // The first poll sends the statement.
        let mut result = match poll!(statement.as_mut()) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        };
        let mut first = Ok(());
        while let Some(earlier) = self.in_flight.front_mut() {
            let earlier = earlier.await;
            self.in_flight.pop_front();
            first = first.and(earlier);
        }
        if result.is_none() {
            result = Some(statement.await);
        }
        match (first, result) {
            (Ok(()), Some(result)) => result.map_err(failed),
            (Err(error), _) => Err(failed(error)),
            (Ok(()), None) => Err(DieselError::BrokenTransactionManager),
        }
    }

    /// Sends `statement` after the statements in flight, without waiting for its result.
    async fn send_in_order(
        &mut self,
        mut statement: BoxFuture<'static, Result<(), tokio_postgres::Error>>,
    ) {
        // The first poll sends the statement.
        let sent = match poll!(statement.as_mut()) {
            Poll::Ready(result) => std::future::ready(result).boxed(),
            Poll::Pending => statement,
        };
        self.in_flight.push_back(sent);
    }

    /// Pipelines statements without parameters. The next awaited statement returns their error.
    pub async fn send_batch(&mut self, sql: impl Into<String>) {
        let (client, sql) = (Arc::clone(&self.client), sql.into());
        report(&sql, Source::Raw(None));
        self.send_in_order(async move { client.batch_execute(&sql).await }.boxed())
            .await;
    }

    /// Pipelines a statement. The next awaited statement returns its error.
    ///
    /// # Errors
    /// When the statement cannot be prepared, or an earlier one failed.
    pub async fn send(&mut self, statement: Encoded) -> QueryResult<()> {
        if statement.bytes() > MAX_IN_FLIGHT_BYTES || self.in_flight.len() >= MAX_IN_FLIGHT {
            return self.execute(statement).await.map(drop);
        }
        let client = Arc::clone(&self.client);
        let sending = match self.prepare(&statement).await? {
            Some(prepared) => async move {
                client
                    .execute_raw(&prepared, statement.values)
                    .await
                    .map(drop)
            }
            .boxed(),
            None => async move {
                client
                    .execute_typed(&statement.sql, &statement.parameters())
                    .await
                    .map(drop)
            }
            .boxed(),
        };
        self.send_in_order(sending).await;
        Ok(())
    }

    /// Runs a statement and returns the number of rows it changed.
    pub async fn execute(&mut self, statement: Encoded) -> QueryResult<usize> {
        let client = Arc::clone(&self.client);
        let changed = match self.prepare(&statement).await? {
            Some(prepared) => {
                self.run_in_order(client.execute_raw(&prepared, statement.values))
                    .await?
            }
            None => {
                self.run_in_order(client.execute_typed(&statement.sql, &statement.parameters()))
                    .await?
            }
        };
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// Runs a query and streams its rows.
    pub async fn rows(&mut self, statement: Encoded) -> QueryResult<tokio_postgres::RowStream> {
        let client = Arc::clone(&self.client);
        match self.prepare(&statement).await? {
            Some(prepared) => {
                self.run_in_order(client.query_raw(&prepared, statement.values))
                    .await
            }
            None => {
                // Parse, bind, describe and execute in one round trip. No prepared statement is left that a pooler
                // could lose.
                let Encoded {
                    sql, values, types, ..
                } = statement;
                self.run_in_order(client.query_typed_raw(&sql, values.into_iter().zip(types)))
                    .await
            }
        }
    }

    /// Runs two queries in one round trip and returns the rows of both.
    pub async fn rows_of_both(
        &mut self,
        first: Encoded,
        second: Encoded,
    ) -> QueryResult<(Vec<PgRow>, Vec<PgRow>)> {
        let client = Arc::clone(&self.client);
        let prepared = (self.prepare(&first).await?, self.prepare(&second).await?);
        self.run_in_order(async {
            try_join!(
                rows_of(&client, first, prepared.0),
                rows_of(&client, second, prepared.1)
            )
        })
        .await
    }

    /// Runs a query and pipelines `end`, which ends the transaction, behind it. The query's locks are then held while
    /// the server works, not during a further round trip.
    ///
    /// # Errors
    /// [`CommitError::OutcomeUnknown`] when the server may have ended the transaction: the connection was lost, or
    /// `end` was interrupted by a timeout or a shutdown of the server. [`CommitError::Rejected`] for every other error,
    /// also of the statements in flight.
    pub async fn rows_and_end(
        &mut self,
        statement: Encoded,
        end: &str,
    ) -> Result<Vec<PgRow>, CommitError> {
        report(end, Source::Raw(None));
        let client = Arc::clone(&self.client);
        let prepared = self
            .prepare(&statement)
            .await
            .map_err(CommitError::Rejected)?;
        let both = async {
            Ok(join!(
                rows_of(&client, statement, prepared),
                client.batch_execute(end)
            ))
        };
        let before = |error: DieselError| match failure::is_from_server(&error) {
            true => CommitError::Rejected(error),
            false => CommitError::OutcomeUnknown(error),
        };
        let (rows, ended) = self.run_in_order(both).await.map_err(before)?;
        let rows = rows.map_err(|error| before(failed(error)))?;
        match ended.map_err(failed) {
            Ok(()) => Ok(rows),
            Err(error) if matches!(failure::kind(&error), Kind::Unavailable | Kind::TooSlow) => {
                Err(CommitError::OutcomeUnknown(error))
            }
            Err(error) => Err(CommitError::Rejected(error)),
        }
    }

    /// The prepared statement, unless the cache says to run it unprepared.
    async fn prepare(&mut self, statement: &Encoded) -> QueryResult<Option<Statement>> {
        let Encoded {
            sql,
            types,
            policy,
            id,
            prepared,
            source,
            values: _,
        } = statement;
        if prepared.is_some() {
            return Ok(prepared.clone());
        }
        report(sql, *source);
        let Some(cache) = &mut self.cache else {
            return Ok(None);
        };
        if *policy == CachePolicy::WhileUsed && !self.slow_searches.may_cache(sql) {
            return Ok(None);
        }
        let prepared = match cache.find(sql, *policy) {
            Lookup::Unprepared => return Ok(None),
            Lookup::Hit(prepared) => prepared,
            Lookup::Miss => {
                let client = Arc::clone(&self.client);
                // The server resolves types that this program does not know.
                let prepared = self.run_in_order(client.prepare_typed(sql, types)).await?;
                if let Some(cache) = &mut self.cache {
                    cache.insert(sql, &prepared);
                }
                prepared
            }
        };
        if let (Some(cache), Some(id)) = (&mut self.cache, *id) {
            cache.insert_id(id, sql, &prepared);
        }
        Ok(Some(prepared))
    }
}

/// Logs a statement's text, without values, at the level `trace`. A statement with a [`StatementId`] is not logged
/// again once it is prepared.
///
/// The field `raw` is the literal in the source code, or the text itself if it does not come from one literal. It is
/// absent if diesel's query language wrote the text. The tests read this field (`tests/it/sent_sql.rs`).
fn report(sql: &str, source: Source) {
    let raw = match source {
        Source::Diesel => None,
        Source::Raw(literal) => Some(literal.unwrap_or(sql)),
    };
    tracing::trace!(target: "context_store_postgres::sql", sql, raw, "Sent a statement");
}

/// All rows of a query.
async fn rows_of(
    client: &Client,
    statement: Encoded,
    prepared: Option<Statement>,
) -> Result<Vec<PgRow>, tokio_postgres::Error> {
    let rows = match prepared {
        Some(prepared) => client.query_raw(&prepared, statement.values).await?,
        None => {
            let parameters = statement.values.into_iter().zip(statement.types);
            client.query_typed_raw(&statement.sql, parameters).await?
        }
    };
    rows.map_ok(PgRow).try_collect().await
}
