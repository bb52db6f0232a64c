//! What a read does on its connection.

use std::fmt::Write as _;
use std::time::Duration;

use context_model::{Filter, MetadataPath};
use context_store::OwnerId;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool};

use crate::connection::AsyncPgConnection;
use crate::failure::Failure;
use crate::sql::{self, Bind, Fragment};

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

/// Ends it. What was read is read: whoever uses the connection next hears whether this worked.
pub(crate) async fn commit(conn: &mut AsyncPgConnection) -> Result<(), Failure> {
    conn.send_batch("COMMIT").await;
    Ok(())
}

/// The owner's revision; `None` when it never wrote.
pub(crate) async fn revision(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
) -> Result<Option<i64>, Failure> {
    #[derive(QueryableByName)]
    struct Revision {
        #[diesel(sql_type = BigInt)]
        revision: i64,
    }
    let read = "SELECT revision FROM context.owners WHERE owner_id = ?";
    let rows: Vec<Revision> = sql::query(
        conn,
        Fragment::prepared(read, vec![Bind::text(owner.as_str())]),
    )
    .await?;
    Ok(rows.first().map(|row| row.revision))
}

/// Whether this server only follows another one, so that later revisions may come without a write here.
pub(crate) async fn is_standby(conn: &mut AsyncPgConnection) -> Result<bool, Failure> {
    #[derive(QueryableByName)]
    struct Recovery {
        #[diesel(sql_type = Bool)]
        standby: bool,
    }
    let rows: Vec<Recovery> = sql::query(
        conn,
        Fragment::prepared("SELECT pg_is_in_recovery() AS standby", Vec::new()),
    )
    .await?;
    Ok(rows.first().is_some_and(|row| row.standby))
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
