//! The change to another embedding model. A second set is built from its vectors, beside the set in use. When it is
//! complete, one transaction switches to it.

use std::sync::Arc;

use context_store::{EmbeddingModel, MoveState, Moved};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use super::load::fill;
use super::set::Set;
use super::tokens;
use super::use_model::{BUILDING, CURRENT, DISCARDED, make, use_model};
use crate::failure::Failure;
use crate::schema::{artifact_documents, chunks, embedding_sets, entries, vectors};
use crate::sql::{Bind, Fragment, query};
use crate::writer::Open;

/// Maximum number of chunks that [`sweep`] deletes in one transaction.
const SWEEP_CHUNKS: i64 = 1_000;

/// Starts building the set of this model, or resumes it.
pub(super) fn begin(
    conn: &mut SqliteConnection,
    open: &mut Open,
    model: &EmbeddingModel,
) -> Result<MoveState, Failure> {
    if let context_store::ModelUse::Ready = use_model(conn, open, model)? {
        return Ok(MoveState::Done);
    }
    let set_id = match open.vectors.building() {
        Some(set) if set.model == *model => set.id,
        other => {
            if let Some(set) = other {
                discard(conn, &[set.id])?;
            }
            let set = make(conn, model, BUILDING, open.vectors.precision)?;
            let id = set.id;
            open.vectors.begin(Arc::new(set));
            id
        }
    };
    let embedded = chunks::table
        .filter(chunks::set_id.eq(set_id).and(chunks::position.eq(0)))
        .count()
        .get_result(conn)?;
    Ok(MoveState::Begun {
        embedded,
        entries: entries::table.count().get_result::<i64>(conn)?
            + artifact_documents::table.count().get_result::<i64>(conn)?,
    })
}

/// Marks sets for deletion by [`sweep`].
fn discard(conn: &mut SqliteConnection, sets: &[i64]) -> QueryResult<()> {
    let sets = embedding_sets::table.filter(embedding_sets::set_id.eq_any(sets));
    diesel::update(sets)
        .set(embedding_sets::current.eq(DISCARDED))
        .execute(conn)?;
    Ok(())
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

/// Switches to the set that is being built, if at most `may_be_missing` entries have no vectors in it.
pub(super) fn finish(
    conn: &mut SqliteConnection,
    open: &mut Open,
    model: &EmbeddingModel,
    may_be_missing: u64,
) -> Result<Moved, Failure> {
    let before = open.vectors.current();
    if before.as_ref().is_some_and(|set| set.model == *model) {
        return Ok(Moved::Done);
    }
    let Some(building) = open.vectors.building().filter(|set| set.model == *model) else {
        return Ok(Moved::NotBegun);
    };
    let may_be_missing = i64::try_from(may_be_missing).unwrap_or(i64::MAX);
    let mut missing = Fragment::new(
        "SELECT count(*) AS count FROM (SELECT 1 FROM (\
             SELECT row_id FROM entries NOT INDEXED \
             UNION ALL SELECT row_id FROM artifact_documents NOT INDEXED\
         ) AS d WHERE NOT EXISTS \
             (SELECT 1 FROM chunks WHERE chunks.row_id = d.row_id AND chunks.set_id = ",
    );
    missing
        .bind(Bind::Int(building.id))
        .push(") LIMIT ")
        .bind(Bind::Int(may_be_missing.saturating_add(1)))
        .push(")");
    if query::<Count>(conn, &missing)?
        .first()
        .map_or(0, |row| row.count)
        > may_be_missing
    {
        return Ok(Moved::Waiting);
    }
    if let Some(before) = before {
        discard(conn, &[before.id])?;
    }
    let set = embedding_sets::table.find(building.id);
    diesel::update(set)
        .set(embedding_sets::current.eq(CURRENT))
        .execute(conn)?;
    let set = Set::new(building.id, model.clone(), open.vectors.precision);
    fill(conn, &set)?;
    open.vectors.switch(Arc::new(set));
    Ok(Moved::Done)
}

/// Deletes some chunks of a discarded set or, after the last of them, the set. Returns the chunk after which the next
/// call must continue, or `None` when no discarded set is left.
pub(super) fn sweep(conn: &mut SqliteConnection, after: i64) -> Result<Option<i64>, Failure> {
    let discarded: Option<i64> = embedding_sets::table
        .filter(embedding_sets::current.eq(DISCARDED))
        .select(embedding_sets::set_id)
        .order(embedding_sets::set_id)
        .first(conn)
        .optional()?;
    let Some(set_id) = discarded else {
        return Ok(None);
    };
    let found: Vec<i64> = chunks::table
        .filter(chunks::chunk_id.gt(after).and(chunks::set_id.eq(set_id)))
        .select(chunks::chunk_id)
        .order(chunks::chunk_id)
        .limit(SWEEP_CHUNKS)
        .load(conn)?;
    tokens::sweep(conn, &found)?;
    diesel::delete(vectors::table.filter(vectors::chunk_id.eq_any(&found))).execute(conn)?;
    diesel::delete(chunks::table.filter(chunks::chunk_id.eq_any(&found))).execute(conn)?;
    if i64::try_from(found.len()).unwrap_or(i64::MAX) < SWEEP_CHUNKS {
        diesel::delete(embedding_sets::table.find(set_id)).execute(conn)?;
        return Ok(Some(0));
    }
    Ok(found.last().copied())
}
