//! Selects the model whose vectors are stored.

use std::sync::Arc;

use context_store::{EmbeddingModel, ModelUse};
use context_vector::Precision;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::set::Set;
use crate::failure::Failure;
use crate::schema::{chunks, embedding_sets};
use crate::writer::Open;

// The states of a set, in `embedding_sets.current`.

/// The set is being filled while the operator moves to another model.
pub(super) const BUILDING: i64 = 0;
/// The set is searched, and new entries are embedded with its model.
pub(super) const CURRENT: i64 = 1;
/// The chunks of the set, and then its row, are being deleted.
pub(super) const DISCARDED: i64 = 2;

/// Selects this model, unless the database has vectors of another one, which the outcome then names.
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
    // No vectors are stored, so sets of earlier models can go.
    diesel::delete(embedding_sets::table).execute(conn)?;
    let set = Arc::new(make(conn, model, CURRENT, open.vectors.precision)?);
    open.vectors.switch(set);
    Ok(ModelUse::Ready)
}

/// Creates a set. Its number is greater than that of every set with remaining data.
pub(super) fn make(
    conn: &mut SqliteConnection,
    model: &EmbeddingModel,
    state: i64,
    precision: Precision,
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
    Ok(Set::new(id, model.clone(), precision))
}
