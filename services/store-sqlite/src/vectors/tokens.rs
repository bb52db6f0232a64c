//! Stores, deletes and reads the token vectors of chunks. They are stored and deleted together with their chunks.

use context_store::{ChunkKey, ChunkTokens};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::owners::Owner;
use crate::schema::{chunk_tokens, chunks};
use crate::transaction::Transaction;

/// Stores the token vectors of a chunk.
pub(super) fn insert(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    set_id: i64,
    position: i64,
    tokens: &[u8],
) -> QueryResult<()> {
    diesel::insert_into(chunk_tokens::table)
        .values((
            chunk_tokens::owner.eq(transaction.owner.owner),
            chunk_tokens::row_id.eq(row_id),
            chunk_tokens::set_id.eq(set_id),
            chunk_tokens::position.eq(position),
            chunk_tokens::tokens.eq(tokens),
        ))
        .execute(transaction.conn)?;
    Ok(())
}

/// Deletes the token vectors of an entry, for all models.
pub(super) fn remove(transaction: &mut Transaction<'_>, row_id: i64) -> QueryResult<()> {
    let of_entry = chunk_tokens::owner
        .eq(transaction.owner.owner)
        .and(chunk_tokens::row_id.eq(row_id));
    diesel::delete(chunk_tokens::table.filter(of_entry)).execute(transaction.conn)?;
    Ok(())
}

/// Deletes the token vectors of these chunks, for all owners.
pub(super) fn sweep(conn: &mut SqliteConnection, chunk_ids: &[i64]) -> QueryResult<()> {
    let keys: Vec<(i64, i64, i64, i64)> = chunks::table
        .filter(chunks::chunk_id.eq_any(chunk_ids))
        .select((
            chunks::owner,
            chunks::row_id,
            chunks::set_id,
            chunks::position,
        ))
        .load(conn)?;
    for key in keys {
        diesel::delete(chunk_tokens::table.find(key)).execute(conn)?;
    }
    Ok(())
}

/// The token vectors of these chunks of an owner. Chunks that have none are left out.
pub(super) fn read(
    conn: &mut SqliteConnection,
    owner: &Owner,
    set_id: i64,
    wanted: &[ChunkKey],
) -> QueryResult<Vec<ChunkTokens>> {
    let mut found = Vec::with_capacity(wanted.len());
    for key in wanted {
        let Some(row_id) = owner.row_id(key.id) else {
            continue;
        };
        let row = (owner.owner, row_id, set_id, i64::from(key.position));
        let tokens = chunk_tokens::table
            .find(row)
            .select(chunk_tokens::tokens)
            .get_result(conn)
            .optional()?;
        found.extend(tokens.map(|tokens| ChunkTokens { key: *key, tokens }));
    }
    Ok(found)
}
