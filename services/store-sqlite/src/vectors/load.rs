//! Loads the vector index of a set, at start and when another set comes into use.
//!
//! Sign bits are stored with the chunks. Codes of four bits are computed from the vectors.

use std::sync::Arc;

use context_store::EmbeddingModel;
use context_vector::{Change, Code, Index, Item, Precision, Signs, decode};
use diesel::connection::DefaultLoadingMode;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use super::set::{OpenVectors, Set};
use super::use_model::{BUILDING, CURRENT};
use crate::collection::Collection;
use crate::schema::{chunks, embedding_sets, vectors};

/// Number of rows that are read before their codes are computed.
const SLICE: usize = 4096;
/// Maximum number of threads that compute codes.
const MAX_THREADS: usize = 4;

/// The sets of the database. The index of the current set is filled.
///
/// # Errors
/// Database errors.
pub(crate) fn load(conn: &mut SqliteConnection, precision: Precision) -> QueryResult<OpenVectors> {
    let last: Option<i64> = chunks::table
        .select(chunks::chunk_id)
        .order(chunks::chunk_id.desc())
        .first(conn)
        .optional()?;
    let current = set_of(conn, CURRENT, precision)?;
    if let Some(set) = &current {
        fill(conn, set)?;
    }
    let building = set_of(conn, BUILDING, precision)?;
    Ok(OpenVectors::new(
        precision,
        current.map(Arc::new),
        building.map(Arc::new),
        last.unwrap_or(0) + 1,
    ))
}

/// The set in this state, with an empty index.
fn set_of(
    conn: &mut SqliteConnection,
    state: i64,
    precision: Precision,
) -> QueryResult<Option<Set>> {
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
            precision,
        )
    }))
}

/// The number, owner, entry and position of a chunk, and its stored sign bits or vector.
type Row = ((i64, i64, i64, i64), Vec<u8>);

/// Fills the index of a set from the database, and counts its entries.
pub(super) fn fill(conn: &mut SqliteConnection, set: &Set) -> QueryResult<()> {
    let of_set = chunks::table.filter(chunks::set_id.eq(set.id));
    let place = (
        chunks::chunk_id,
        chunks::owner,
        chunks::row_id,
        chunks::position,
    );
    match set.index.precision() {
        Precision::SignBits => {
            let rows = of_set
                .order(chunks::chunk_id)
                .select((place, chunks::code))
                .load_iter::<_, DefaultLoadingMode>(conn)?;
            add(set, rows, |index, bytes| {
                Signs::from_bytes(bytes, index.words()).map(Into::into)
            })
        }
        Precision::FourBits => {
            let rows = of_set
                .inner_join(vectors::table.on(vectors::chunk_id.eq(chunks::chunk_id)))
                .order(chunks::chunk_id)
                .select((place, vectors::vector))
                .load_iter::<_, DefaultLoadingMode>(conn)?;
            add(set, rows, |index, bytes| {
                let mut vector = vec![0.0; set.model.dimensions as usize];
                decode(bytes, &mut vector).then(|| index.code(&vector))
            })
        }
    }
}

/// Adds rows to the index of a set. Several threads compute the codes of a slice. A value of another length is skipped.
fn add(
    set: &Set,
    rows: impl Iterator<Item = QueryResult<Row>>,
    code: impl Fn(&Index, &[u8]) -> Option<Code> + Sync,
) -> QueryResult<()> {
    let threads =
        std::thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
    // SQLite restarts a finished statement when another row is requested.
    let mut rows = rows.fuse();
    loop {
        let slice = rows
            .by_ref()
            .take(SLICE)
            .collect::<QueryResult<Vec<Row>>>()?;
        if slice.is_empty() {
            return Ok(());
        }
        let change = |((chunk, owner, entry, position), value): &Row| {
            let item = Item {
                chunk: *chunk,
                entry: *entry,
                code: code(&set.index, value)?,
            };
            let key = Collection::of_row(*owner, *entry).key();
            set.count(key, i64::from(*position == 0));
            Some(Change::Add { owner: key, item })
        };
        std::thread::scope(|scope| {
            let parts: Vec<_> = slice
                .chunks(SLICE.div_ceil(threads))
                .map(|part| scope.spawn(|| part.iter().filter_map(change).collect::<Vec<Change>>()))
                .collect();
            for part in parts {
                // Propagates a panic of the thread.
                let changes = part
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                set.index.apply(changes);
            }
        });
    }
}
