//! diesel's query language on this crate's connection. It adds fixed texts, pipelining, and a query sent together with
//! the end of its transaction.
//!
//! `execute`, `load` and the like are those of [`diesel_async::RunQueryDsl`].

use std::any::TypeId;
use std::marker::PhantomData;

use diesel::QueryResult;
use diesel::deserialize::FromSqlRow;
use diesel::pg::Pg;
use diesel::query_builder::{AsQuery, AstPass, Query, QueryFragment, QueryId};

use super::connection::AsyncPgConnection;
use super::driver::PgRow;
use super::failure::CommitError;

/// A query whose text never varies, although diesel assumes that it may, such as an UPDATE, an ON CONFLICT DO UPDATE or
/// an `eq_any`. [`fixed!`] creates it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fixed<Id, Q> {
    query: Q,
    id: PhantomData<fn() -> Id>,
}

impl<Id, Q> Fixed<Id, Q> {
    pub fn new(query: Q) -> Self {
        Self {
            query,
            id: PhantomData,
        }
    }
}

/// Marks a query as one with a fixed text, which stays prepared. No part of the text may depend on a value: no `Option`
/// as a change, no list of rows, no boxed part.
macro_rules! fixed {
    ($query:expr) => {{
        // Each use of the macro has its own type, and therefore its own statement id.
        struct Id;
        $crate::pg::dsl::Fixed::<Id, _>::new($query)
    }};
}
pub(crate) use fixed;

impl<Id: 'static, Q> QueryId for Fixed<Id, Q> {
    type QueryId = Id;
    const HAS_STATIC_QUERY_ID: bool = true;

    fn query_id() -> Option<TypeId> {
        Some(TypeId::of::<Id>())
    }
}

impl<Id, Q: QueryFragment<Pg>> QueryFragment<Pg> for Fixed<Id, Q> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        self.query.walk_ast(out)
    }
}

impl<Id, Q: Query> Query for Fixed<Id, Q> {
    type SqlType = Q::SqlType;
}

/// Adds pipelining to [`diesel_async::RunQueryDsl`].
pub(crate) trait PipelineDsl: Sized {
    /// Pipelines the statement. The next awaited statement returns its error.
    async fn send(self, conn: &mut AsyncPgConnection) -> QueryResult<()>
    where
        Self: QueryFragment<Pg> + QueryId,
    {
        let statement = conn.encode_query(&self)?;
        conn.send(statement).await
    }

    /// Returns the rows of a transaction's last query. `end`, which ends the transaction, is pipelined after it.
    ///
    /// # Errors
    /// [`CommitError`], also for the statements in flight.
    async fn load_and_end<Row>(
        self,
        conn: &mut AsyncPgConnection,
        end: &str,
    ) -> Result<Vec<Row>, CommitError>
    where
        Self: AsQuery,
        Self::Query: QueryFragment<Pg> + QueryId,
        Row: FromSqlRow<Self::SqlType, Pg>,
    {
        let statement = conn
            .encode_query(&self.as_query())
            .map_err(CommitError::Rejected)?;
        let rows = conn.rows_and_end(statement, end).await?;
        let read = |row: &PgRow| {
            Row::build_from_row(row).map_err(|error| {
                CommitError::OutcomeUnknown(diesel::result::Error::DeserializationError(error))
            })
        };
        rows.iter().map(read).collect()
    }
}

impl<Q> PipelineDsl for Q {}
