//! Choosing the model whose vectors are kept.

use std::sync::Arc;

use context_store::{EmbeddingModel, ModelUse};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::set::Set;
use crate::failure::Failure;
use crate::schema::{chunks, embedding_sets};
use crate::writer::Open;

/// The states of a set, in `embedding_sets.current`.
pub(super) const BUILDING: i64 = 0;
pub(super) const CURRENT: i64 = 1;
/// Its chunks are being deleted, and then its row.
pub(super) const DISCARDED: i64 = 2;

pub(super) fn use_model(
    conn: &mut SqliteConnection,
    open: &mut Open,
    model: &EmbeddingModel,
) -> Result<ModelUse, Failure> {
    match open.vectors.current() {
        Some(set) if set.model == *model => return Ok(ModelUse::Ready),
        Some(set)
            if !chunks::table
                .select(chunks::chunk_id)
                .limit(1)
                .load::<i64>(conn)?
                .is_empty() =>
        {
            return Ok(ModelUse::Other(set.model.clone()));
        }
        _ => {}
    }
    // Sets without a vector are of no use to anybody.
    diesel::delete(embedding_sets::table).execute(conn)?;
    let set = Arc::new(make(conn, model, CURRENT)?);
    open.vectors.switch(set);
    Ok(ModelUse::Ready)
}

/// Makes a set. Its number is greater than that of every set of which something is left.
pub(super) fn make(
    conn: &mut SqliteConnection,
    model: &EmbeddingModel,
    state: i64,
) -> QueryResult<Set> {
    let last: Option<i64> = embedding_sets::table
        .select(diesel::dsl::max(embedding_sets::set_id))
        .first(conn)?;
    let id = last.unwrap_or(0) + 1;
    diesel::insert_into(embedding_sets::table)
        .values((
            embedding_sets::set_id.eq(id),
            embedding_sets::model.eq(&model.identity),
            embedding_sets::dimensions.eq(i64::from(model.dimensions)),
            embedding_sets::current.eq(state),
        ))
        .execute(conn)?;
    Ok(Set::new(id, model.clone()))
}
