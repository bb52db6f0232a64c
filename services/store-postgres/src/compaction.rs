//! Removing old changes from the feed. The audit log has a limit of its own.

use context_store::Retention;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};

/// Maximum number of changes that one statement moves.
const BATCH: i64 = 1000;

#[derive(QueryableByName)]
struct Oldest {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    oldest: i64,
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

/// Moves the oldest changes of one owner that has more than `retention` allows. Returns the number of moved changes, 0
/// when no owner has too many, or when another service has just moved the same ones. Several services may do so at the
/// same time: a service no longer finds a row that another one has moved.
pub(crate) async fn compact(
    conn: &mut AsyncPgConnection,
    retention: &Retention,
) -> Result<u64, Failure> {
    let Retention { before, max_rows } = retention;
    // Raw SQL for LATERAL: the oldest change of each owner.
    let find = "SELECT o.owner_id, c.revision AS oldest, o.revision FROM context.owners AS o CROSS JOIN LATERAL \
                (SELECT f.revision, f.at FROM context.changes AS f WHERE f.owner_id = o.owner_id ORDER BY f.revision LIMIT 1) AS c \
                WHERE c.revision < o.revision AND (c.at < ? OR o.revision - c.revision >= ?) LIMIT 1";
    let binds = vec![Bind::Int(before.micros()), Bind::Int(*max_rows)];
    let found: Vec<Oldest> = sql::query(conn, Fragment::prepared(find, binds)).await?;
    let Some(found) = found.into_iter().next() else {
        return Ok(0);
    };
    // The newest change stays in the feed, so that a cursor at the end stays valid.
    let end = (found.oldest + BATCH).min(found.revision);
    // Raw SQL for the CTE: one statement moves the rows.
    let statement = "WITH gone AS (DELETE FROM context.changes AS c WHERE c.owner_id = ? AND c.revision <= \
                     (SELECT max(f.revision) FROM context.changes AS f WHERE f.owner_id = c.owner_id AND f.revision < ? \
                     AND (f.at < ? OR f.revision <= ?)) \
                     RETURNING c.owner_id, c.revision, c.at, c.operation, c.entity, c.entity_id, c.thread_id, c.version, c.key_id) \
                     INSERT INTO context.audited_changes (owner_id, revision, at, operation, entity, entity_id, thread_id, version, key_id) \
                     SELECT owner_id, revision, at, operation, entity, entity_id, thread_id, version, key_id FROM gone";
    let binds = vec![
        Bind::text(found.owner_id),
        Bind::Int(end),
        Bind::Int(before.micros()),
        Bind::Int(found.revision - max_rows),
    ];
    let moved = sql::execute(conn, Fragment::prepared(statement, binds)).await?;
    Ok(moved as u64)
}
