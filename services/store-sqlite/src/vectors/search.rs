//! Semantic search: candidates from the index, distances from the stored vectors.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use context_model::{Filter, MetadataPath};
use context_vector::{Allowed, Code, Near, Snapshot, code, decode, distance};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary};
use diesel::sqlite::SqliteConnection;

use super::set::Set;
use crate::cancel;
use crate::filter::{Candidates, candidates, compile, json_list};
use crate::sql::{Bind, Fragment, query};

/// When a database index shows that the filter leaves at most this many rows, only they are searched.
const MAX_PROBED_ROWS: usize = 20_000;
/// Number of entries up to which all vectors are read instead of using the vector index.
const MAX_EXACT_ROWS: usize = 1_000;
/// Number of vectors read for each requested entry, and the minimum. Measured: see docs/benchmarks.md.
const DEPTH_FACTOR: usize = 5;
const MIN_DEPTH: usize = 800;
/// Number of best results whose positions among the candidates show whether there were enough candidates.
const TOP_RESULTS: usize = 10;
/// Maximum number of times that the candidates are doubled for this reason.
const MAX_DOUBLINGS: u32 = 3;
/// Maximum number of candidates that are checked against the filter before the filter is evaluated for all entries.
const MAX_CHECKED: usize = 8_192;

/// Number of distances computed between two cancellation checks, about 100 µs.
const DISTANCES_BETWEEN_CHECKS: usize = 1024;

/// The columns that are read of a chunk. The list of requested rows follows.
const COLUMNS: &str = "SELECT chunks.chunk_id AS chunk_id, chunks.row_id AS row_id, chunks.position AS position, \
                       chunks.start_char AS start_char, chunks.end_char AS end_char, vectors.vector AS vector FROM json_each(";

/// An entry with its nearest chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit {
    pub row_id: i64,
    /// The chunk's number.
    pub chunk: i64,
    pub distance: f64,
    /// Index of the chunk among the entry's chunks.
    pub position: i64,
    pub start: i64,
    pub end: i64,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    /// By distance, then row id descending.
    pub hits: Vec<Hit>,
    /// How they were found, for `explain_query`.
    pub notes: Vec<String>,
}

#[derive(QueryableByName)]
struct VectorRow {
    #[diesel(sql_type = BigInt)]
    chunk_id: i64,
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = BigInt)]
    position: i64,
    #[diesel(sql_type = BigInt)]
    start_char: i64,
    #[diesel(sql_type = BigInt)]
    end_char: i64,
    #[diesel(sql_type = Binary)]
    vector: Vec<u8>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
}

pub(super) struct Search<'s> {
    pub set: &'s Set,
    pub vector: &'s [f32],
    pub filter: &'s Filter,
    pub owner: i64,
    pub indexed: &'s [MetadataPath],
    /// Number of requested entries.
    pub depth: usize,
}

impl Search<'_> {
    /// The nearest entries that satisfy the filter. Must be called inside a transaction.
    pub fn run(&self, conn: &mut SqliteConnection) -> QueryResult<Found> {
        let snapshot = self.set.index.snapshot(self.owner);
        let code = code(self.vector);
        if self.depth == 0
            || snapshot.is_empty()
            || self.vector.len() != self.set.model.dimensions as usize
        {
            return Ok(Found::default());
        }
        if self.filter.count() == 0 {
            return self.nearest(conn, &snapshot, &code, None);
        }
        match candidates(conn, self.filter, self.owner, self.indexed, MAX_PROBED_ROWS)? {
            Candidates::All(rows) => {
                let rows = self.satisfying(conn, &rows)?;
                if rows.len() <= MAX_EXACT_ROWS {
                    return self.exact(conn, &rows);
                }
                self.nearest(conn, &snapshot, &code, Some(&rows.into_iter().collect()))
            }
            Candidates::Many { .. } => self.frequent(conn, &snapshot, &code),
        }
    }

    /// Compares all vectors of these entries.
    fn exact(&self, conn: &mut SqliteConnection, rows: &[i64]) -> QueryResult<Found> {
        let vectors = self.of_entries(conn, rows)?;
        let notes = vec![format!(
            "semantic: {} entries satisfy the filter; the distances of their {} chunks are exact",
            rows.len(),
            vectors.len()
        )];
        Ok(Found {
            hits: self.best(vectors)?,
            notes,
        })
    }

    /// The nearest entries according to the index, among these entries or all.
    fn nearest(
        &self,
        conn: &mut SqliteConnection,
        snapshot: &Snapshot,
        code: &Code,
        allowed: Option<&Allowed>,
    ) -> QueryResult<Found> {
        let (mut depth, mut doublings) = (self.first_depth(), 0);
        loop {
            cancel::check()?;
            let near = snapshot.nearest(code, depth, allowed);
            let hits = self.best(self.vectors(conn, &near)?)?;
            let exhausted = near.len() < depth;
            // A good result near the end of the candidates indicates that more good results follow: here the sign bits
            // are not selective.
            if !exhausted && doublings < MAX_DOUBLINGS && deepest(&hits, &near) * 2 > depth {
                doublings += 1;
                depth = depth.saturating_mul(2);
                continue;
            }
            // Several chunks of one entry may have displaced other entries.
            if hits.len() >= self.depth || exhausted {
                let of = allowed.map_or_else(String::new, |allowed| {
                    format!(" among {} entries that satisfy the filter", allowed.len())
                });
                let notes = vec![format!(
                    "semantic: {} of {} chunks rescored{of}",
                    near.len(),
                    snapshot.len()
                )];
                return Ok(Found { hits, notes });
            }
            depth = depth.saturating_mul(2);
        }
    }

    /// No index narrows the filter, so many entries are expected to satisfy it. The entries near the query are checked,
    /// nearest first. If too few satisfy the filter, it is evaluated for all entries.
    fn frequent(
        &self,
        conn: &mut SqliteConnection,
        snapshot: &Snapshot,
        code: &Code,
    ) -> QueryResult<Found> {
        let wanted = self.first_depth();
        let mut depth = wanted.saturating_mul(2);
        while depth <= MAX_CHECKED.max(wanted * 2) {
            cancel::check()?;
            let near = snapshot.nearest(code, depth, None);
            let rows: Vec<i64> = near.iter().map(|near| near.entry).collect();
            let allowed: Allowed = self.satisfying(conn, &rows)?.into_iter().collect();
            let satisfying_chunks: Vec<Near> = near
                .iter()
                .copied()
                .filter(|near| allowed.contains(near.entry))
                .take(wanted)
                .collect();
            let all = near.len() < depth;
            if satisfying_chunks.len() == wanted || all {
                let hits = self.best(self.vectors(conn, &satisfying_chunks)?)?;
                if hits.len() >= self.depth || all {
                    let notes = vec![format!(
                        "semantic: {} of {} chunks checked, {} that satisfy the filter rescored",
                        near.len(),
                        snapshot.len(),
                        satisfying_chunks.len()
                    )];
                    return Ok(Found { hits, notes });
                }
            }
            depth = depth.saturating_mul(4);
        }
        let mut statement = Fragment::new("SELECT entries.row_id AS row_id FROM entries WHERE ");
        statement.append(compile(self.filter, self.owner));
        let rows: Vec<i64> = query::<Row>(conn, &statement)?
            .into_iter()
            .map(|row| row.row_id)
            .collect();
        if rows.len() <= MAX_EXACT_ROWS {
            return self.exact(conn, &rows);
        }
        self.nearest(conn, snapshot, code, Some(&rows.into_iter().collect()))
    }

    fn first_depth(&self) -> usize {
        self.depth.saturating_mul(DEPTH_FACTOR).max(MIN_DEPTH)
    }

    /// The rows that satisfy the filter.
    fn satisfying(&self, conn: &mut SqliteConnection, rows: &[i64]) -> QueryResult<Vec<i64>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut statement = Fragment::new(
            "SELECT entries.row_id AS row_id FROM entries NOT INDEXED WHERE entries.row_id IN (",
        );
        statement
            .push("SELECT value FROM json_each(")
            .bind(Bind::Text(json_list(rows)))
            .push(")) AND ");
        statement.append(compile(self.filter, self.owner));
        Ok(query::<Row>(conn, &statement)?
            .into_iter()
            .map(|row| row.row_id)
            .collect())
    }

    fn vectors(&self, conn: &mut SqliteConnection, near: &[Near]) -> QueryResult<Vec<VectorRow>> {
        // In the order in which they are stored in the file.
        let mut chunks: Vec<i64> = near.iter().map(|near| near.chunk).collect();
        chunks.sort_unstable();
        let mut statement = Fragment::new(COLUMNS);
        statement.bind(Bind::Text(json_list(&chunks)));
        statement
            .push(") AS wanted CROSS JOIN vectors ON vectors.chunk_id = wanted.value CROSS JOIN chunks ON chunks.chunk_id = wanted.value");
        let mut found = query::<VectorRow>(conn, &statement)?;
        if found.len() < near.len() {
            // An update was committed after the index was read: in the database the entry has other chunks.
            let here: HashSet<i64> = found.iter().map(|row| row.chunk_id).collect();
            let mut entries: Vec<i64> = near
                .iter()
                .filter(|near| !here.contains(&near.chunk))
                .map(|near| near.entry)
                .collect();
            entries.sort_unstable();
            entries.dedup();
            found.extend(self.of_entries(conn, &entries)?);
        }
        Ok(found)
    }

    /// All vectors of these entries.
    fn of_entries(&self, conn: &mut SqliteConnection, rows: &[i64]) -> QueryResult<Vec<VectorRow>> {
        let mut statement = Fragment::new(COLUMNS);
        statement.bind(Bind::Text(json_list(rows)));
        statement.push(") AS wanted CROSS JOIN chunks ON chunks.row_id = wanted.value AND chunks.set_id = ").bind(Bind::Int(self.set.id));
        statement.push(" CROSS JOIN vectors ON vectors.chunk_id = chunks.chunk_id");
        query(conn, &statement)
    }

    /// The nearest chunk of each entry, nearest entries first, at most as many as requested.
    fn best(&self, vectors: Vec<VectorRow>) -> QueryResult<Vec<Hit>> {
        let mut of_entry: HashMap<i64, Hit> = HashMap::with_capacity(vectors.len());
        let mut read = vec![0.0; self.vector.len()];
        for (
            i,
            VectorRow {
                chunk_id,
                row_id,
                position,
                start_char,
                end_char,
                vector,
            },
        ) in vectors.into_iter().enumerate()
        {
            if i % DISTANCES_BETWEEN_CHECKS == 0 {
                cancel::check()?;
            }
            if !decode(&vector, &mut read) {
                continue;
            }
            let distance = f64::from(distance(self.vector, &read));
            let hit = Hit {
                row_id,
                chunk: chunk_id,
                distance,
                position,
                start: start_char,
                end: end_char,
            };
            match of_entry.entry(row_id) {
                Entry::Vacant(place) => _ = place.insert(hit),
                Entry::Occupied(mut place) if hit.distance < place.get().distance => {
                    _ = place.insert(hit)
                }
                Entry::Occupied(_) => {}
            }
        }
        let mut hits: Vec<Hit> = of_entry.into_values().collect();
        hits.sort_unstable_by(|a, b| {
            a.distance
                .total_cmp(&b.distance)
                .then(b.row_id.cmp(&a.row_id))
        });
        hits.truncate(self.depth);
        Ok(hits)
    }
}

/// The position among the candidates of the last of the best results, from 0.
fn deepest(hits: &[Hit], near: &[Near]) -> usize {
    let best: HashSet<i64> = hits.iter().take(TOP_RESULTS).map(|hit| hit.chunk).collect();
    near.iter()
        .rposition(|near| best.contains(&near.chunk))
        .unwrap_or(0)
}
