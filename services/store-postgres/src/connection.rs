//! A connection to the server, and how it is made.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;
use diesel_async::SimpleAsyncConnection;
use futures::future::{BoxFuture, FutureExt as _, select};
use futures::stream::TryStreamExt as _;
use futures::{join, poll, try_join};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use crate::failure::{self, Kind};
use crate::kept::{Found, Keep, Kept, SlowForms};
use crate::statement::{DriverError, Encoded, PgRow, Types};
use crate::target::Target;
use crate::tls::Tls;

/// How long a connection may be silent before the system asks whether the other side is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// How long a server may take to hear that a connection ends.
const FAREWELL: Duration = Duration::from_secs(5);
/// Statements sent and not yet looked at, at most, and the bytes of one of them: the connection keeps what it has not
/// sent yet in memory.
const MOST_UNDER_WAY: usize = 64;
const LARGEST_UNDER_WAY: usize = 256 * 1024;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Driver(DriverError),
    #[error("there was no answer within {0:?}")]
    TimedOut(Duration),
}

/// Why the end of a transaction, and what was sent with it, came to nothing.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// The server refused something before the end: it has undone all of it.
    Refused(DieselError),
    /// The end itself failed, or the connection was lost when the server may have read that far.
    Unknown(DieselError),
}

/// One connection, with the statements that stay prepared on it.
///
/// It takes the place of diesel-async's type of the same name, behind the same traits. That one hides the SQLSTATE of
/// an error, asks the server three times for a statement that does not stay prepared, and cannot leave a statement's
/// outcome for later.
pub(crate) struct AsyncPgConnection {
    client: Arc<Client>,
    /// `None` where the next transaction may meet another server process.
    kept: Option<Kept>,
    slow: Arc<SlowForms>,
    has_session: bool,
    /// Types of extensions, which have other numbers in each database.
    types: Types,
    /// Statements that were sent, in order, and whose outcome nobody has looked at yet.
    under_way: VecDeque<BoxFuture<'static, Result<(), tokio_postgres::Error>>>,
    /// Tells the task that reads and writes that this value is gone.
    _alive: tokio::sync::oneshot::Sender<()>,
}

impl AsyncPgConnection {
    /// Whether the server, or the way to it, has ended the connection.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Sets what holds for every statement of this connection, if the server process behind it stays the same. An error is
    /// that of the next statement.
    pub async fn start_session(&mut self, statement_timeout: Duration, slow: &Arc<SlowForms>) {
        self.slow = Arc::clone(slow);
        if self.kept.is_some() {
            self.has_session = true;
            let timeout = statement_timeout.as_millis();
            // Compiling a statement costs more than a search.
            self.send_batch(format!("SET statement_timeout = {timeout}; SET jit = off"))
                .await;
        }
    }

    /// Whether [`AsyncPgConnection::start_session`] has set something. Otherwise each transaction sets it for itself.
    pub fn has_session(&self) -> bool {
        self.has_session
    }

    /// The forms of searches whose plans are not kept.
    pub fn slow_forms(&self) -> &SlowForms {
        &self.slow
    }

    /// Stops what runs on this connection.
    pub fn cancel_token(&self) -> tokio_postgres::CancelToken {
        self.client.cancel_token()
    }

    /// Encodes a statement with the types that are known.
    pub fn encode(&self, query: &(impl QueryFragment<Pg> + ?Sized)) -> QueryResult<Encoded> {
        Encoded::of(query, &self.types)
    }

    /// As [`AsyncPgConnection::encode`], of a statement that is written like this in this program and stays prepared.
    pub fn encode_written(
        &self,
        written: &'static str,
        query: &(impl QueryFragment<Pg> + ?Sized),
    ) -> QueryResult<Encoded> {
        match self
            .kept
            .as_ref()
            .and_then(|kept| kept.find_written(written))
        {
            Some(prepared) => Encoded::of_prepared(prepared.clone(), query, &self.types),
            None => Ok(Encoded {
                written: Some(written),
                ..self.encode(query)?
            }),
        }
    }

    /// Asks the server once for the numbers of an extension's type, in whatever schema it lives.
    pub async fn learn(&mut self, name: &'static str) -> QueryResult<()> {
        if self.types.contains_key(name) {
            return Ok(());
        }
        let find = "SELECT oid, typarray FROM pg_catalog.pg_type WHERE typname = $1 \
                    ORDER BY pg_catalog.pg_type_is_visible(oid) DESC, oid LIMIT 1";
        let client = Arc::clone(&self.client);
        let rows = self
            .in_turn(client.query_typed(find, &[(&name, Type::TEXT)]))
            .await?;
        if let Some(row) = rows.first() {
            Arc::make_mut(&mut self.types).insert(
                name,
                (
                    row.try_get(0).map_err(failed)?,
                    row.try_get(1).map_err(failed)?,
                ),
            );
        }
        Ok(())
    }

    /// Runs `own` after everything that is under way, which is sent before it and answered before it. The first error
    /// of all is the result: in a transaction the later ones follow from it.
    async fn in_turn<T>(
        &mut self,
        own: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> QueryResult<T> {
        let mut own = pin!(own);
        // Sends it.
        let mut answered = match poll!(own.as_mut()) {
            Poll::Ready(answered) => Some(answered),
            Poll::Pending => None,
        };
        let mut first = Ok(());
        while let Some(earlier) = self.under_way.front_mut() {
            let earlier = earlier.await;
            self.under_way.pop_front();
            first = first.and(earlier);
        }
        if answered.is_none() {
            answered = Some(own.await);
        }
        match (first, answered) {
            (Ok(()), Some(answered)) => answered.map_err(failed),
            (Err(error), _) => Err(failed(error)),
            (Ok(()), None) => Err(DieselError::BrokenTransactionManager),
        }
    }

    async fn send_in_turn(
        &mut self,
        mut own: BoxFuture<'static, Result<(), tokio_postgres::Error>>,
    ) {
        let sent = match poll!(own.as_mut()) {
            Poll::Ready(answered) => std::future::ready(answered).boxed(),
            Poll::Pending => own,
        };
        self.under_way.push_back(sent);
    }

    /// Sends statements without parameters and does not wait: an error is that of the next statement that is waited for.
    pub async fn send_batch(&mut self, sql: impl Into<String>) {
        let (client, sql) = (Arc::clone(&self.client), sql.into());
        self.send_in_turn(async move { client.batch_execute(&sql).await }.boxed())
            .await;
    }

    /// Sends a statement and does not wait: an error is that of the next statement that is waited for.
    ///
    /// # Errors
    /// When it cannot be prepared, or an earlier one failed.
    pub async fn send(&mut self, statement: Encoded) -> QueryResult<()> {
        if statement.bytes() > LARGEST_UNDER_WAY || self.under_way.len() >= MOST_UNDER_WAY {
            return self.execute(statement).await.map(drop);
        }
        let client = Arc::clone(&self.client);
        let sending = match self.stay_prepared(&statement).await? {
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
        self.send_in_turn(sending).await;
        Ok(())
    }

    /// Runs a statement and gives the number of rows it changed.
    pub async fn execute(&mut self, statement: Encoded) -> QueryResult<usize> {
        let client = Arc::clone(&self.client);
        let changed = match self.stay_prepared(&statement).await? {
            Some(prepared) => {
                self.in_turn(client.execute_raw(&prepared, statement.values))
                    .await?
            }
            None => {
                self.in_turn(client.execute_typed(&statement.sql, &statement.parameters()))
                    .await?
            }
        };
        Ok(usize::try_from(changed).unwrap_or(usize::MAX))
    }

    /// Runs a query and gives its rows as they come.
    pub async fn rows(&mut self, statement: Encoded) -> QueryResult<tokio_postgres::RowStream> {
        let client = Arc::clone(&self.client);
        match self.stay_prepared(&statement).await? {
            Some(prepared) => {
                self.in_turn(client.query_raw(&prepared, statement.values))
                    .await
            }
            None => {
                // Parsed, bound, described and run in one go: one round trip, and nothing that a pooler would have to keep.
                let Encoded {
                    sql, values, types, ..
                } = statement;
                self.in_turn(client.query_typed_raw(&sql, values.into_iter().zip(types)))
                    .await
            }
        }
    }

    /// Runs two queries, the second right behind the first, and gives the rows of both: one round trip.
    pub async fn rows_of_both(
        &mut self,
        first: Encoded,
        second: Encoded,
    ) -> QueryResult<(Vec<PgRow>, Vec<PgRow>)> {
        let client = Arc::clone(&self.client);
        let prepared = (
            self.stay_prepared(&first).await?,
            self.stay_prepared(&second).await?,
        );
        self.in_turn(async {
            try_join!(
                rows_of(&client, first, prepared.0),
                rows_of(&client, second, prepared.1)
            )
        })
        .await
    }

    /// Runs a query and sends `end`, which ends the transaction, right behind it: what the query locks is locked while
    /// the server works, not while answers travel.
    ///
    /// # Errors
    /// [`Unfinished::Refused`] also for what is under way. An error of `end` itself that the server gave a reason for
    /// other than its own end is no unknown outcome either.
    pub async fn rows_and_end(
        &mut self,
        statement: Encoded,
        end: &str,
    ) -> Result<Vec<PgRow>, Unfinished> {
        let client = Arc::clone(&self.client);
        let prepared = self
            .stay_prepared(&statement)
            .await
            .map_err(Unfinished::Refused)?;
        let both = async {
            Ok(join!(
                rows_of(&client, statement, prepared),
                client.batch_execute(end)
            ))
        };
        let before = |error: DieselError| match failure::is_answer(&error) {
            true => Unfinished::Refused(error),
            false => Unfinished::Unknown(error),
        };
        let (rows, ended) = self.in_turn(both).await.map_err(before)?;
        let rows = rows.map_err(|error| before(failed(error)))?;
        match ended.map_err(failed) {
            Ok(()) => Ok(rows),
            Err(error) if matches!(failure::kind(&error), Kind::Unavailable | Kind::TooSlow) => {
                Err(Unfinished::Unknown(error))
            }
            Err(error) => Err(Unfinished::Refused(error)),
        }
    }

    /// The prepared statement, if it is one that stays so.
    async fn stay_prepared(&mut self, statement: &Encoded) -> QueryResult<Option<Statement>> {
        let Encoded {
            sql,
            types,
            keep,
            written,
            prepared,
            values: _,
        } = statement;
        if prepared.is_some() {
            return Ok(prepared.clone());
        }
        let Some(kept) = &mut self.kept else {
            return Ok(None);
        };
        if *keep == Keep::WhileUsed && !self.slow.may_keep(sql) {
            return Ok(None);
        }
        match kept.find(sql, *keep) {
            Found::There(prepared) => {
                written.inspect(|written| kept.note_written(written, &prepared));
                return Ok(Some(prepared));
            }
            Found::NotYet => return Ok(None),
            Found::Missing => {}
        }
        let client = Arc::clone(&self.client);
        // Types that only the server knows by number are left to it.
        let prepared = self.in_turn(client.prepare_typed(sql, types)).await?;
        if let Some(kept) = &mut self.kept {
            kept.keep(sql, &prepared);
        }
        Ok(Some(prepared))
    }
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

impl SimpleAsyncConnection for AsyncPgConnection {
    async fn batch_execute(&mut self, sql: &str) -> QueryResult<()> {
        let client = Arc::clone(&self.client);
        self.in_turn(client.batch_execute(sql)).await
    }
}

/// diesel has no variant for the errors of others; this one keeps them whole.
pub(crate) fn failed(error: tokio_postgres::Error) -> DieselError {
    DieselError::QueryBuilderError(Box::new(DriverError(error)))
}

/// A new connection.
pub(crate) async fn connect(
    target: &Target,
    tls: &Tls,
    timeout: Duration,
) -> Result<AsyncPgConnection, ConnectError> {
    let mut config = target.config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(timeout);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
    if config.get_tcp_user_timeout().is_none() {
        // A server that vanished without a word, as its machine may, is given up after this.
        config.tcp_user_timeout(timeout.saturating_mul(2));
    }
    // Each host has its own time to answer, and so has the conversation after that.
    let hosts =
        u32::try_from(config.get_hosts().len().max(config.get_hostaddrs().len())).unwrap_or(1);
    let limit = timeout.saturating_mul(hosts.saturating_add(1));
    let connecting = tokio::time::timeout(limit, config.connect(tls.clone())).await;
    let (client, connection) = connecting
        .map_err(|_| ConnectError::TimedOut(limit))?
        .map_err(|error| ConnectError::Driver(DriverError(error)))?;
    let (alive, gone) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        // A server that does not answer must not keep this task for ever.
        let farewell = async {
            let _ = gone.await;
            tokio::time::sleep(FAREWELL).await;
        };
        select(pin!(connection), pin!(farewell)).await;
    });
    Ok(AsyncPgConnection {
        client: Arc::new(client),
        kept: target.keeps_statements.then(Kept::default),
        slow: Arc::default(),
        has_session: false,
        types: Types::default(),
        under_way: VecDeque::new(),
        _alive: alive,
    })
}
