//! The chunks of the entries that a transaction writes. They are written together at its end.

use std::collections::BTreeMap;

use context_store::{Embedded, EmbeddedChunk, Embedding, EmbeddingModel, OwnerId};

use super::Vector;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};

/// Maximum number of chunks inserted by one statement.
const CHUNKS_AT_ONCE: usize = 1_000;
/// Maximum number for chunks with token vectors, which take some tens of kilobytes each.
const CHUNKS_WITH_TOKENS_AT_ONCE: usize = 100;

/// A transaction's changes of `chunks`. [`write`](Self::write) first deletes and then inserts. If one transaction added
/// an entry and then removed it, its chunks would stay, so this must not happen.
#[derive(Debug, Default)]
pub(crate) struct ChunkChanges<'v> {
    /// The vectors to insert for each entry: those of its last write. `None` inserts nothing.
    entries: BTreeMap<i64, Option<&'v Embedded>>,
    /// Entries whose chunks of all sets are deleted before anything is inserted. An update during a change of the model
    /// therefore also deletes the vectors of the building set, and the entry gets new ones later.
    stale: Vec<i64>,
}

impl<'v> ChunkChanges<'v> {
    /// Records a new entry.
    pub fn add(&mut self, id: i64, embedding: Option<&'v Embedding>) {
        let embedded = match embedding {
            Some(Embedding::Now(embedded)) if fits(embedded) => Some(embedded),
            Some(Embedding::Now(_) | Embedding::Later) | None => None,
        };
        self.entries.insert(id, embedded);
    }

    /// Records the vectors of an entry that had none. Returns whether they can be stored.
    pub fn add_late(&mut self, id: i64, embedded: &'v Embedded) -> bool {
        let fits = fits(embedded);
        self.entries.insert(id, Some(embedded).filter(|_| fits));
        fits
    }

    /// Records an entry with a new text. The chunks of the old text will be deleted.
    pub fn replace(&mut self, id: i64, embedding: Option<&'v Embedding>) {
        self.stale.push(id);
        self.add(id, embedding);
    }

    /// Records deleted entries.
    pub fn remove(&mut self, ids: impl IntoIterator<Item = i64>) {
        self.stale.extend(ids);
    }

    /// Writes all changes.
    pub async fn write(
        &mut self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<(), Failure> {
        let stale = std::mem::take(&mut self.stale);
        if !stale.is_empty() {
            let delete = "DELETE FROM context.chunks WHERE owner_id = ? AND id = ANY(?)";
            sql::send(
                conn,
                Fragment::prepared(delete, vec![Bind::text(owner.as_str()), Bind::ints(stale)]),
            )
            .await?;
        }
        let entries = std::mem::take(&mut self.entries);
        let mut of_model: Vec<(&EmbeddingModel, Vec<Row<'_>>)> = Vec::new();
        for (id, embedded) in entries {
            let Some(Embedded { model, chunks }) = embedded else {
                continue;
            };
            let rows = (0i64..).zip(chunks).map(|(position, chunk)| Row {
                id,
                position,
                chunk,
            });
            match of_model.iter_mut().find(|(other, _)| *other == model) {
                Some((_, all)) => all.extend(rows),
                None => of_model.push((model, rows.collect())),
            }
        }
        for (model, rows) in of_model {
            let with_tokens = rows.iter().any(|row| row.chunk.tokens.is_some());
            for rows in rows.chunks(if with_tokens {
                CHUNKS_WITH_TOKENS_AT_ONCE
            } else {
                CHUNKS_AT_ONCE
            }) {
                insert(conn, owner, model, rows).await?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Row<'v> {
    id: i64,
    position: i64,
    chunk: &'v EmbeddedChunk,
}

/// Whether there are vectors and all have the model's dimensions. Others are never stored.
fn fits(embedded: &Embedded) -> bool {
    let Embedded { model, chunks } = embedded;
    !chunks.is_empty()
        && chunks
            .iter()
            .all(|chunk| u32::try_from(chunk.vector.len()) == Ok(model.dimensions))
}

/// Inserts chunks into the set with this model's name, in any state. If there is none, the entries remain without
/// vectors. There is no conflict: the caller holds the locks of the entries' threads, and has deleted the old chunks or
/// found that there are none.
async fn insert(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    model: &EmbeddingModel,
    rows: &[Row<'_>],
) -> Result<(), Failure> {
    macro_rules! insert {
        () => {
            "INSERT INTO context.chunks (owner_id, id, set_id, position, start_char, end_char, embedding) \
             SELECT ?, c.id, s.set_id, c.position, c.start_char, c.end_char, c.embedding \
             FROM context.embedding_sets AS s CROSS JOIN unnest(?, ?, ?, ?, ?) AS c(id, position, start_char, end_char, embedding) \
             WHERE s.model = ? AND s.dimensions = ?"
        };
    }
    // One statement, so that a chunk and its tokens go to the same set.
    const WITH_TOKENS: &str = concat!(
        "WITH stored AS (",
        insert!(),
        " RETURNING owner_id, id, set_id, position) \
         INSERT INTO context.chunk_tokens (owner_id, id, set_id, position, tokens) \
         SELECT k.owner_id, k.id, k.set_id, k.position, t.tokens FROM stored AS k \
         JOIN unnest(?, ?, ?) AS t(id, position, tokens) ON t.id = k.id AND t.position = k.position"
    );
    let mut binds = vec![
        Bind::text(owner.as_str()),
        Bind::ints(rows.iter().map(|row| row.id)),
        Bind::ints(rows.iter().map(|row| row.position)),
        Bind::ints(rows.iter().map(|row| i64::from(row.chunk.start))),
        Bind::ints(rows.iter().map(|row| i64::from(row.chunk.end))),
        Bind::Vectors(
            rows.iter()
                .map(|row| Vector::new(&row.chunk.vector))
                .collect(),
        ),
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
    ];
    let tokens: Vec<(&Row<'_>, &[u8])> = rows
        .iter()
        .filter_map(|row| Some((row, row.chunk.tokens.as_deref()?)))
        .collect();
    if tokens.is_empty() {
        sql::send(conn, Fragment::prepared(insert!(), binds)).await?;
        return Ok(());
    }
    binds.extend([
        Bind::ints(tokens.iter().map(|(row, _)| row.id)),
        Bind::ints(tokens.iter().map(|(row, _)| row.position)),
        Bind::ByteStrings(tokens.iter().map(|(_, tokens)| *tokens).collect()),
    ]);
    sql::send(conn, Fragment::prepared(WITH_TOKENS, binds)).await?;
    Ok(())
}
