//! Converts vectors for a data migration and writes them. A migration carries 32-bit little-endian floats; pgvector's
//! binary form is a header and then big-endian floats.

use crate::pg::connection::AsyncPgConnection;
use context_store::transfer::{Row, Table};
use context_store::{OwnerId, unreadable};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;

use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::vectors::{Vector, current_set};

/// Bytes before the floats: the number of dimensions, and a zero.
const HEADER: usize = 4;

/// Whether the database has this table of vectors. A database without pgvector has no such table.
pub(super) async fn table_exists(
    conn: &mut AsyncPgConnection,
    table: &'static str,
) -> diesel::QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Existence {
        #[diesel(sql_type = BigInt)]
        exists: i64,
    }
    // Raw SQL, because diesel's query language has no `to_regclass`.
    let exists = "SELECT (to_regclass(?) IS NOT NULL)::int::bigint AS exists";
    let rows: Vec<Existence> =
        sql::query(conn, Fragment::prepared(exists, vec![Bind::text(table)])).await?;
    Ok(rows.first().is_some_and(|row| row.exists == 1))
}

/// The id of the current set of embeddings, or 0 if the database has none. Ids of sets begin at 1.
pub(super) async fn set(conn: &mut AsyncPgConnection) -> Result<i64, Failure> {
    Ok(current_set(conn).await?.map_or(0, |(set, _)| set))
}

/// Converts the output of `vector_send` to little-endian floats without the header. `None` if it is malformed.
pub(super) fn to_little_endian(sent: &[u8]) -> Option<Vec<u8>> {
    let (floats, rest) = sent.get(HEADER..)?.as_chunks::<4>();
    rest.is_empty().then(|| {
        floats
            .iter()
            .flat_map(|float| f32::from_be_bytes(*float).to_le_bytes())
            .collect()
    })
}

/// Writes rows of `chunks`. Rejects vectors whose length is not the model's: the source is damaged.
pub(super) async fn write(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), Failure> {
    let Some((set, model)) = current_set(conn).await? else {
        return Err(unreadable("model of vectors", None).into());
    };
    let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(rows.len());
    for row in rows {
        let (floats, rest) = row.bytes(table, "vector").as_chunks::<4>();
        if !rest.is_empty() || u32::try_from(floats.len()) != Ok(model.dimensions) {
            return Err(unreadable("vector", None).into());
        }
        vectors.push(
            floats
                .iter()
                .map(|float| f32::from_le_bytes(*float))
                .collect(),
        );
    }
    let ints = |column: &'static str| Bind::ints(rows.iter().map(|row| row.int(table, column)));
    // Raw SQL for `unnest`.
    let insert = "INSERT INTO context.chunks (owner_id, id, set_id, position, start_char, end_char, embedding) \
                  SELECT ?, c.id, ?, c.position, c.start_char, c.end_char, c.embedding \
                  FROM unnest(?, ?, ?, ?, ?) AS c(id, position, start_char, end_char, embedding)";
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::Int(set),
        ints("id"),
        ints("position"),
        ints("start_char"),
        ints("end_char"),
        Bind::Vectors(vectors.iter().map(|vector| Vector::new(vector)).collect()),
    ];
    sql::execute(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

/// Writes rows of `chunk_tokens` unchanged.
pub(super) async fn write_tokens(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    table: &'static Table,
    rows: &[Row],
) -> Result<(), Failure> {
    let ints = |column: &'static str| Bind::ints(rows.iter().map(|row| row.int(table, column)));
    // Raw SQL for `unnest`.
    let insert = "INSERT INTO context.chunk_tokens (owner_id, id, set_id, position, tokens) \
                  SELECT ?, t.id, ?, t.position, t.tokens FROM unnest(?, ?, ?) AS t(id, position, tokens)";
    let set = Bind::Int(set(conn).await?);
    let tokens = Bind::ByteStrings(rows.iter().map(|row| row.bytes(table, "tokens")).collect());
    sql::execute(
        conn,
        Fragment::prepared(
            insert,
            vec![
                Bind::text(owner.as_str()),
                set,
                ints("id"),
                ints("position"),
                tokens,
            ],
        ),
    )
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_bits_and_damaged_ones_are_none() {
        let sent = [
            &[0, 2, 0, 0][..],
            &1.5_f32.to_be_bytes(),
            &(-0.1_f32).to_be_bytes(),
        ]
        .concat();
        assert_eq!(
            to_little_endian(&sent),
            Some([1.5_f32.to_le_bytes(), (-0.1_f32).to_le_bytes()].concat())
        );
        assert_eq!(
            (to_little_endian(&sent[..5]), to_little_endian(&sent[..3])),
            (None, None)
        );
    }
}
