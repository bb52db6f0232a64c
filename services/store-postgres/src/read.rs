//! Reads, and the transactions they run in.

use std::fmt::Write as _;
use std::time::Duration;

use context_model::{Filter, MetadataPath};
use context_store::OwnerId;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::schema::owners;

/// A read. It may run more than once.
pub(crate) trait Reading: Sync {
    /// The result.
    type Outcome: Send;

    /// The result for an owner that has never written.
    fn empty(&self) -> Self::Outcome;

    /// The filter of a search, and the indexed fields.
    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        None
    }

    /// Reads the owner's revision and the result from one state of the database. `None` when the owner has never
    /// written. A read that is never called with a required revision may return 0 as the revision.
    fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> impl Future<Output = Result<Option<(i64, Self::Outcome)>, Failure>> + Send;
}

/// Begins a transaction that reads one state of the database. It is pipelined with the transaction's first statement.
pub(crate) async fn begin(
    conn: &mut AsyncPgConnection,
    statement_timeout: Duration,
) -> Result<(), Failure> {
    let mut begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned();
    if !conn.has_session() {
        let _ = write!(
            begin,
            "; SET LOCAL statement_timeout = {}; SET LOCAL jit = off",
            statement_timeout.as_millis()
        );
    }
    conn.set_in_transaction(true);
    conn.send_batch(begin).await;
    Ok(())
}

/// Begins a transaction as [`begin`] does, if one is needed: when `several` statements must see the same state, or when
/// no session holds the settings for a single statement. Returns whether a transaction was begun.
pub(crate) async fn begin_if_needed(
    conn: &mut AsyncPgConnection,
    several: bool,
    statement_timeout: Duration,
) -> Result<bool, Failure> {
    let needed = several || !conn.has_session();
    if needed {
        begin(conn, statement_timeout).await?;
    }
    Ok(needed)
}

/// Ends the transaction. An error concerns only the connection, and its next statement returns the error.
pub(crate) async fn commit(conn: &mut AsyncPgConnection) -> Result<(), Failure> {
    conn.set_in_transaction(false);
    conn.send_batch("COMMIT").await;
    Ok(())
}

/// The owner's revision. `None` when the owner has never written.
pub(crate) async fn revision(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
) -> Result<Option<i64>, Failure> {
    Ok(owners::table
        .find(owner.as_str())
        .select(owners::revision)
        .get_result(conn)
        .await
        .optional()?)
}

define_sql_function! {
    /// Whether the server is a standby.
    fn pg_is_in_recovery() -> Bool;
}

/// Whether this server is a standby, so that later revisions can arrive without a write here.
pub(crate) async fn is_standby(conn: &mut AsyncPgConnection) -> Result<bool, Failure> {
    Ok(diesel::select(pg_is_in_recovery()).get_result(conn).await?)
}

/// Reads only the revision.
pub(crate) struct RevisionAlone;

impl Reading for RevisionAlone {
    type Outcome = ();

    fn empty(&self) {}

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, ())>, Failure> {
        Ok(revision(conn, owner).await?.map(|revision| (revision, ())))
    }
}
