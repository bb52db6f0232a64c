//! Loading the vector index at start.

use std::sync::Arc;

use context_store::EmbeddingModel;
use context_vector::{Change, Code, Item};
use diesel::connection::DefaultLoadingMode;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::set::{OpenVectors, Set};
use super::use_model::{BUILDING, CURRENT};
use crate::schema::{chunks, embedding_sets};

/// Number of changes passed to the index at a time.
const SLICE: usize = 8192;

/// Loads the codes of the current set, if there is one.
///
/// # Errors
/// Database errors.
pub(crate) fn load(conn: &mut SqliteConnection) -> QueryResult<OpenVectors> {
    let last: Option<i64> = chunks::table
        .select(chunks::chunk_id)
        .order(chunks::chunk_id.desc())
        .first(conn)
        .optional()?;
    let current = set_of(conn, CURRENT)?;
    if let Some(set) = &current {
        fill(conn, set)?;
    }
    let building = set_of(conn, BUILDING)?;
    Ok(OpenVectors::new(
        current.map(Arc::new),
        building.map(Arc::new),
        last.unwrap_or(0) + 1,
    ))
}

/// The set in this state, with an empty index.
fn set_of(conn: &mut SqliteConnection, state: i64) -> QueryResult<Option<Set>> {
    let found: Option<(i64, String, i64)> = embedding_sets::table
        .filter(embedding_sets::current.eq(state))
        .select((
            embedding_sets::set_id,
            embedding_sets::model,
            embedding_sets::dimensions,
        ))
        .first(conn)
        .optional()?;
    Ok(found.map(|(id, identity, dimensions)| {
        Set::new(
            id,
            EmbeddingModel {
                identity,
                dimensions: u32::try_from(dimensions).unwrap_or(0),
            },
        )
    }))
}

/// Loads the codes of a set into its index.
pub(super) fn fill(conn: &mut SqliteConnection, set: &Set) -> QueryResult<()> {
    let rows = chunks::table
        .filter(chunks::set_id.eq(set.id))
        .order(chunks::chunk_id)
        .select((
            chunks::chunk_id,
            chunks::owner,
            chunks::row_id,
            chunks::position,
            chunks::code,
        ))
        .load_iter::<(i64, i64, i64, i64, Vec<u8>), DefaultLoadingMode>(conn)?;
    let mut changes = Vec::with_capacity(SLICE);
    for row in rows {
        let (chunk, owner, entry, position, code) = row?;
        let Some(code) = Code::from_bytes(&code, set.index.words()) else {
            continue;
        };
        changes.push(Change::Add {
            owner,
            item: Item { chunk, entry, code },
        });
        set.count(owner, i64::from(position == 0));
        if changes.len() == SLICE {
            set.index.apply(changes.drain(..));
        }
    }
    set.index.apply(changes);
    Ok(())
}
