//! The chunks of an entry or an artifact, written in its transaction.

use context_store::{Embedded, Embedding, EmbeddingModel};
use context_vector::{Change, Item, encode, signs};
use diesel::prelude::*;

use super::tokens;
use crate::collection::Collection;
use crate::schema::{chunks, vectors};
use crate::transaction::Transaction;

/// Stores an entry's vectors, if they are given and the set of their model is in use or being built. An entry without
/// vectors gets them later.
pub(crate) fn insert(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    embedding: &Embedding,
) -> QueryResult<()> {
    let Embedding::Now(Embedded {
        model,
        chunks: given,
    }) = embedding
    else {
        return Ok(());
    };
    let Some(set_id) = set_of(transaction, model) else {
        return Ok(());
    };
    let current = transaction.vectors.current().filter(|set| set.id == set_id);
    let dimensions = usize::try_from(model.dimensions).unwrap_or(0);
    if given.is_empty() || given.iter().any(|chunk| chunk.vector.len() != dimensions) {
        return Ok(());
    }
    let owner = transaction.owner.owner;
    let key = Collection::of_row(owner, row_id).key();
    for (position, chunk) in (0i64..).zip(given) {
        let chunk_id = transaction.vectors.next_chunk;
        transaction.vectors.next_chunk += 1;
        diesel::insert_into(chunks::table)
            .values((
                chunks::chunk_id.eq(chunk_id),
                chunks::owner.eq(owner),
                chunks::row_id.eq(row_id),
                chunks::set_id.eq(set_id),
                chunks::position.eq(position),
                chunks::start_char.eq(i64::from(chunk.start)),
                chunks::end_char.eq(i64::from(chunk.end)),
                chunks::code.eq(signs(&chunk.vector).to_bytes()),
            ))
            .execute(transaction.conn)?;
        diesel::insert_into(vectors::table)
            .values((
                vectors::chunk_id.eq(chunk_id),
                vectors::vector.eq(encode(&chunk.vector)),
            ))
            .execute(transaction.conn)?;
        if let Some(tokens) = &chunk.tokens {
            tokens::insert(transaction, row_id, set_id, position, tokens)?;
        }
        if let Some(set) = &current {
            let code = set.index.code(&chunk.vector);
            transaction.vectors.push(Change::Add {
                owner: key,
                item: Item {
                    chunk: chunk_id,
                    entry: row_id,
                    code,
                },
            });
        }
    }
    transaction.vectors.count(key, i64::from(current.is_some()));
    Ok(())
}

/// The set of this model: the one in use or the one being built.
pub(super) fn set_of(transaction: &Transaction<'_>, model: &EmbeddingModel) -> Option<i64> {
    let vectors = &transaction.vectors;
    [vectors.current(), vectors.building()]
        .into_iter()
        .flatten()
        .find(|set| set.model == *model)
        .map(|set| set.id)
}

/// Deletes an entry's vectors, for all models.
pub(crate) fn remove(transaction: &mut Transaction<'_>, row_id: i64) -> QueryResult<()> {
    let Some(set) = transaction.vectors.current() else {
        return Ok(());
    };
    let found: Vec<(i64, i64)> = chunks::table
        .filter(chunks::row_id.eq(row_id))
        .select((chunks::chunk_id, chunks::set_id))
        .load(transaction.conn)?;
    let key = Collection::of_row(transaction.owner.owner, row_id).key();
    if !found.is_empty() {
        tokens::remove(transaction, row_id)?;
    }
    let mut had_vectors = false;
    for (chunk_id, set_id) in found {
        diesel::delete(chunks::table.find(chunk_id)).execute(transaction.conn)?;
        diesel::delete(vectors::table.find(chunk_id)).execute(transaction.conn)?;
        if set_id == set.id {
            transaction.vectors.push(Change::Remove {
                owner: key,
                chunk: chunk_id,
            });
            had_vectors = true;
        }
    }
    transaction.vectors.count(key, -i64::from(had_vectors));
    Ok(())
}

/// Replaces an entry's vectors.
pub(crate) fn replace(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    embedding: &Embedding,
) -> QueryResult<()> {
    remove(transaction, row_id)?;
    insert(transaction, row_id, embedding)
}
