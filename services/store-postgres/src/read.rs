//! What a read does on its connection.

use std::fmt::Write as _;
use std::time::Duration;

use context_model::{Filter, MetadataPath};
use context_store::OwnerId;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::schema::owners;

/// A read. It may be run more than once.
pub(crate) trait Reading: Sync {
    /// What it gives.
    type Outcome: Send;

    /// What an owner that never wrote reads.
    fn empty(&self) -> Self::Outcome;

    /// The filter of a search, and the fields that have an index.
    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        None
    }

    /// The owner's revision and what was read, of one state of the database; `None` when the owner never wrote.
    fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> impl Future<Output = Result<Option<(i64, Self::Outcome)>, Failure>> + Send;
}

/// Begins a transaction that reads one state of the database, together with its first statement.
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
    conn.send_batch(begin).await;
    Ok(())
}

/// As [`begin`], where it is needed: for `several` statements that must see the same state, or to give one statement the
/// settings that no session keeps for it. Whether there is a transaction to end now.
pub(crate) async fn begin_for(
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

/// Ends it. An error concerns only the connection, and is returned by its next statement.
pub(crate) async fn commit(conn: &mut AsyncPgConnection) -> Result<(), Failure> {
    conn.send_batch("COMMIT").await;
    Ok(())
}

/// The owner's revision; `None` when it never wrote.
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
    /// Whether this server is a standby.
    fn pg_is_in_recovery() -> Bool;
}

/// Whether this server only follows another one, so that later revisions may come without a write here.
pub(crate) async fn is_standby(conn: &mut AsyncPgConnection) -> Result<bool, Failure> {
    Ok(diesel::select(pg_is_in_recovery()).get_result(conn).await?)
}

/// Reads no more than the revision.
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
