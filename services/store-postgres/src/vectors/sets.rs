//! The rows of `embedding_sets`: a set of vectors for each model.

use context_store::EmbeddingModel;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::schema::embedding_sets as table;

/// The advisory lock of [`lock`]. The number is arbitrary, but no other code may lock it in this database.
const LOCK: i64 = 0x6374_785f_6d6f_6465;

/// The states in which a set can be created. The database has two more: `retired`, for a set that was current and that
/// services with its model still search and write to, and `discarded`, for a set that will be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetState {
    /// The set that searches use.
    Current,
    /// It is being filled to become current.
    Building,
}

impl SetState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Building => "building",
        }
    }
}

/// The UPDATE that discards sets. A discarded set gets another name, so that no lookup by model finds it and
/// `UNIQUE (model, dimensions)` allows a new set of its model.
macro_rules! discard {
    ($condition:literal) => {
        concat!(
            "UPDATE context.embedding_sets SET state = 'discarded', model = model || ' discarded ' || set_id \
             WHERE ",
            $condition
        )
    };
}

/// Until the transaction ends, no other service creates the tables or a set, or makes another set the current one. The
/// sweep, which discards and deletes old sets, and inserts of chunks do not take this lock.
pub(crate) async fn lock(conn: &mut AsyncPgConnection) -> diesel::QueryResult<()> {
    let lock = Fragment::prepared("SELECT pg_advisory_xact_lock(?)", vec![Bind::Int(LOCK)]);
    sql::execute(conn, lock).await?;
    Ok(())
}

/// The current set and its model, if there is one.
pub(crate) async fn current(
    conn: &mut AsyncPgConnection,
) -> Result<Option<(i64, EmbeddingModel)>, Failure> {
    find(conn, SetState::Current).await
}

/// The set in this state, with its model. There is at most one.
pub(super) async fn find(
    conn: &mut AsyncPgConnection,
    state: SetState,
) -> Result<Option<(i64, EmbeddingModel)>, Failure> {
    let find = table::table
        .filter(table::state.eq(state.as_str()))
        .select((table::set_id, table::model, table::dimensions));
    let mut rows: Vec<(i64, String, i64)> = fixed!(find).load(conn).await?;
    Ok(rows.pop().map(|(set_id, model, dimensions)| {
        let model = EmbeddingModel {
            identity: model,
            dimensions: u32::try_from(dimensions).unwrap_or(0),
        };
        (set_id, model)
    }))
}

/// Whether a set has vectors.
pub(super) async fn has_vectors(
    conn: &mut AsyncPgConnection,
    set_id: i64,
) -> Result<bool, Failure> {
    let count =
        "SELECT count(*) FROM (SELECT 1 FROM context.chunks WHERE set_id = ? LIMIT 1) AS found";
    let count = Fragment::prepared(count, vec![Bind::Int(set_id)]);
    Ok(sql::number(conn, count).await? > 0)
}

/// Creates a set for this model.
pub(crate) async fn create(
    conn: &mut AsyncPgConnection,
    model: &EmbeddingModel,
    state: SetState,
) -> Result<(), Failure> {
    // A retired set of the model is not used again, because entries have changed since.
    let discard = discard!("model = ? AND dimensions = ?");
    let binds = vec![
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
    ];
    sql::execute(conn, Fragment::prepared(discard, binds)).await?;
    // A number is never used again: a write that was running when its set was deleted may have left chunks.
    let insert = "WITH counted AS (INSERT INTO context.settings AS s (key, value) VALUES ('embedding_sets', '1') \
                  ON CONFLICT (key) DO UPDATE SET value = (s.value::bigint + 1)::text RETURNING value) \
                  INSERT INTO context.embedding_sets (set_id, model, dimensions, state, since) \
                  SELECT value::bigint, ?, ?, ?, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM counted";
    let binds = vec![
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
        Bind::text(state.as_str()),
    ];
    sql::execute(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

/// Discards the set that is being filled, if there is one.
pub(super) async fn discard_building(conn: &mut AsyncPgConnection) -> Result<(), Failure> {
    let discard = discard!("state = 'building'");
    sql::execute(conn, Fragment::prepared(discard, Vec::new())).await?;
    Ok(())
}

/// Discards this set if it is retired. Returns whether it was.
pub(super) async fn discard_retired(
    conn: &mut AsyncPgConnection,
    set_id: i64,
) -> Result<bool, Failure> {
    let discard = discard!("set_id = ? AND state = 'retired'");
    let discard = Fragment::prepared(discard, vec![Bind::Int(set_id)]);
    Ok(sql::execute(conn, discard).await? > 0)
}

/// Makes the building set the current one, and retires the previous one if there is one.
pub(super) async fn replace_current(
    conn: &mut AsyncPgConnection,
    set_id: i64,
) -> Result<(), Failure> {
    let replace = "UPDATE context.embedding_sets SET state = CASE WHEN set_id = ? THEN 'current' ELSE 'retired' END, \
                   since = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE state IN ('current', 'building')";
    sql::execute(conn, Fragment::prepared(replace, vec![Bind::Int(set_id)])).await?;
    Ok(())
}

/// Deletes a set without vectors. A write that runs at the same time may leave chunks of it. No search finds them, and
/// they are deleted with the next change of their text or with their entry.
pub(super) async fn delete(conn: &mut AsyncPgConnection, set_id: i64) -> Result<(), Failure> {
    let delete = diesel::delete(table::table.filter(table::set_id.eq(set_id)));
    fixed!(delete).execute(conn).await?;
    Ok(())
}
