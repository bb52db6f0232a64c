//! Removing old changes from the feed. The audit log has a limit of its own.

use context_store::Retention;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use crate::failure::Failure;
use crate::sql::{self, Bind, Fragment};

/// Maximum number of changes that one transaction moves.
const BATCH: i64 = 1000;

#[derive(QueryableByName)]
struct Oldest {
    #[diesel(sql_type = BigInt)]
    owner: i64,
    #[diesel(sql_type = BigInt)]
    oldest: i64,
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

#[derive(QueryableByName)]
struct Last {
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

/// The changes to remove from the feed next: those of one owner up to a revision.
pub(crate) struct Due {
    owner: i64,
    /// The revision of the last one.
    last: i64,
}

/// The oldest changes of one owner that has more than it should keep.
pub(crate) fn due(conn: &mut SqliteConnection, retention: &Retention) -> QueryResult<Option<Due>> {
    let Retention { before, max_rows } = retention;
    // CROSS JOIN: the owners come first. Else SQLite may read all changes.
    let mut find = Fragment::new(
        "SELECT o.owner, c.revision AS oldest, o.revision \
         FROM owners o \
         CROSS JOIN changes c ON c.owner = o.owner \
             AND c.revision = (SELECT min(f.revision) FROM changes f WHERE f.owner = o.owner) \
         WHERE c.revision < o.revision AND (c.at < ",
    );
    find.bind(Bind::Int(before.micros()))
        .push(" OR o.revision - c.revision >= ")
        .bind(Bind::Int(*max_rows))
        .push(") LIMIT 1");
    let Some(found) = sql::query::<Oldest>(conn, &find)?.pop() else {
        return Ok(None);
    };
    // Never the newest change: a cursor at the end must stay valid.
    let end = (found.oldest + BATCH).min(found.revision);
    let mut last =
        Fragment::new("SELECT coalesce(max(revision), 0) AS revision FROM changes WHERE owner = ");
    last.bind(Bind::Int(found.owner))
        .push(" AND revision < ")
        .bind(Bind::Int(end))
        .push(" AND (at < ")
        .bind(Bind::Int(before.micros()))
        .push(" OR revision <= ")
        .bind(Bind::Int(found.revision - max_rows))
        .push(")");
    let Some(Last { revision }) = sql::query::<Last>(conn, &last)?.pop() else {
        return Ok(None);
    };
    Ok(Some(Due {
        owner: found.owner,
        last: revision,
    }))
}

/// Moves the due changes of one owner to `audited_changes`. Returns their number, or 0 when none are due.
pub(crate) fn compact(conn: &mut SqliteConnection, retention: &Retention) -> Result<u64, Failure> {
    let Some(Due { owner, last }) = due(conn, retention)? else {
        return Ok(0);
    };
    let moved = diesel::sql_query(
        "INSERT INTO audited_changes \
             (owner, revision, at, operation, entity, entity_id, thread_id, version, key_id) \
         SELECT owner, revision, at, operation, entity, entity_id, thread_id, version, key_id \
         FROM changes WHERE owner = ? AND revision <= ?",
    )
    .bind::<BigInt, _>(owner)
    .bind::<BigInt, _>(last)
    .execute(conn)?;
    diesel::sql_query("DELETE FROM changes WHERE owner = ? AND revision <= ?")
        .bind::<BigInt, _>(owner)
        .bind::<BigInt, _>(last)
        .execute(conn)?;
    Ok(moved as u64)
}
