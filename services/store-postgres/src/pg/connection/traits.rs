//! The traits through which diesel's queries run on a connection.

use std::sync::Arc;

use diesel::QueryResult;
use diesel::pg::Pg;
use diesel::query_builder::{AsQuery, QueryFragment, QueryId};
use diesel_async::{AsyncConnectionCore, SimpleAsyncConnection};
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, StreamExt as _, TryStreamExt as _};

use super::{AsyncPgConnection, report};
use crate::pg::driver::{PgRow, Source};
use crate::pg::failure::failed;

impl SimpleAsyncConnection for AsyncPgConnection {
    async fn batch_execute(&mut self, sql: &str) -> QueryResult<()> {
        report(sql, Source::Raw(None));
        let client = Arc::clone(&self.client);
        self.run_in_order(client.batch_execute(sql)).await
    }
}

impl AsyncConnectionCore for AsyncPgConnection {
    type ExecuteFuture<'conn, 'query> = BoxFuture<'conn, QueryResult<usize>>;
    type LoadFuture<'conn, 'query> =
        BoxFuture<'conn, QueryResult<BoxStream<'static, QueryResult<PgRow>>>>;
    type Stream<'conn, 'query> = BoxStream<'static, QueryResult<PgRow>>;
    type Row<'conn, 'query> = PgRow;
    type Backend = Pg;

    fn load<'conn, 'query, T>(&'conn mut self, source: T) -> Self::LoadFuture<'conn, 'query>
    where
        T: AsQuery + 'query,
        T::Query: QueryFragment<Pg> + QueryId + 'query,
    {
        let statement = self.encode_query(&source.as_query());
        async move {
            let rows = self.rows(statement?).await?;
            Ok(rows.map_err(failed).map_ok(PgRow).boxed())
        }
        .boxed()
    }

    fn execute_returning_count<'conn, 'query, T>(
        &'conn mut self,
        source: T,
    ) -> Self::ExecuteFuture<'conn, 'query>
    where
        T: QueryFragment<Pg> + QueryId + 'query,
    {
        let statement = self.encode_query(&source);
        async move { self.execute(statement?).await }.boxed()
    }
}
