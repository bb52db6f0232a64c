//! Semantic search: candidates from the index, distances from the stored vectors or, where they suffice, from the
//! index's estimates.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use context_model::{Filter, MetadataPath};
use context_store::DocumentKind;
use context_vector::{Allowed, Near, Precision, Query, Snapshot, decode, distance};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary};
use diesel::sqlite::SqliteConnection;

use super::set::Set;
use crate::cancel;
use crate::collection::Collection;
use crate::filter::{Candidates, candidates, compile, json_list};
use crate::sql::{Bind, Fragment, each, query};

/// When a database index shows that the filter leaves at most this many rows, only they are searched.
const MAX_PROBED_ROWS: usize = 20_000;
/// If a database index leaves at most this many rows, all of them are checked against the rest of the filter before the
/// search. If it leaves more, only the rows near the query are checked.
const MAX_CHECKED_FIRST: usize = 1_000;
/// Maximum number of entries whose vectors are all read instead of using the vector index. The first number is for an
/// index of four bits per dimension, the second for sign bits.
const MAX_EXACT_ROWS: (usize, usize) = (50, 1_000);
/// Number of vectors read for each requested entry, but at least `MIN_DEPTH` in total. With an index of sign bits
/// a search reads this many, or more if it has a filter or several chunks of an entry displace other entries. With an
/// index of four bits it reads at most this many, or all those of the first `exact` entries if these have more.
/// Measured: see docs/benchmarks.md.
const DEPTH_FACTOR: usize = 5;
const MIN_DEPTH: usize = 800;
/// Maximum number of times that the candidates are doubled because several chunks of an entry displace other entries.
const MAX_DOUBLINGS: u32 = 3;
/// If an estimate is closer to a boundary than this fraction of its error bound, the vector is read to decide on which
/// side the entry is. Hardly any estimate is wrong by more than its error bound. One in seven is wrong by more than
/// half of it.
const UNDECIDED: f32 = 0.5;
/// Maximum number of candidates that are checked against the filter before the filter is evaluated for all entries. If
/// a search needs more than half of this number, twice as many as it needs.
const MAX_CHECKED: usize = 8_192;

/// The beginning of a query for the vectors of chunks. The list of requested ids follows.
const SELECT_VECTORS: &str = "\
    SELECT chunks.chunk_id AS chunk_id, chunks.row_id AS row_id, chunks.position AS position, \
        chunks.start_char AS start_char, chunks.end_char AS end_char, vectors.vector AS vector \
    FROM json_each(";

/// An entry with its nearest chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Hit {
    pub row_id: i64,
    pub distance: f64,
    /// The chunk. `None` when the distance is an estimate, for which nothing was read.
    pub chunk: Option<NearestChunk>,
}

/// The chunk of an entry that is nearest to the query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NearestChunk {
    /// Index of the chunk among the entry's chunks.
    pub position: i64,
    /// The character at which the chunk starts.
    pub start: i64,
    /// The character after its last one.
    pub end: i64,
}

/// The result of a search.
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

/// A semantic search in one collection of an owner.
pub(super) struct Search<'s> {
    pub set: &'s Set,
    pub vector: &'s [f32],
    pub filter: &'s Filter,
    pub collection: Collection,
    /// The metadata fields with an index.
    pub indexed: &'s [MetadataPath],
    /// Number of requested entries.
    pub depth: usize,
    /// Number of entries at the top whose order and distances must be exact.
    pub exact: usize,
    /// Ranks at which a part of the ranking ends. Which entries are in such a part is decided by vectors where
    /// estimates leave it open.
    pub boundaries: &'static [u32],
}

impl Search<'_> {
    /// The nearest entries that satisfy the filter. Must be called inside a transaction.
    pub fn run(&self, conn: &mut SqliteConnection) -> QueryResult<Found> {
        let snapshot = self.set.index.snapshot(self.collection.key());
        if self.depth == 0
            || snapshot.is_empty()
            || self.vector.len() != self.set.model.dimensions as usize
        {
            return Ok(Found::default());
        }
        let query = self.set.index.query(self.vector);
        if self.filter.count() == 0 {
            return self.nearest(conn, &snapshot, &query, None);
        }
        match self.candidates(conn)? {
            Candidates::All(rows) if rows.len() <= MAX_CHECKED_FIRST => {
                let rows = self.satisfying(conn, &rows)?;
                self.among(conn, &snapshot, &query, rows)
            }
            Candidates::All(rows) => self.check_nearest(conn, &snapshot, &query, Some(&rows)),
            Candidates::Many { .. } => self.check_nearest(conn, &snapshot, &query, None),
        }
    }

    /// The rows that a database index shows to be the only ones that can satisfy the filter. Only entries have such
    /// indexes.
    fn candidates(&self, conn: &mut SqliteConnection) -> QueryResult<Candidates> {
        match self.collection.kind {
            DocumentKind::Context => candidates(
                conn,
                self.filter,
                self.collection.owner,
                self.indexed,
                MAX_PROBED_ROWS,
            ),
            DocumentKind::Artifact => Ok(Candidates::Many { rarest: None }),
        }
    }

    /// The given entries with exact distances, nearest first. Entries that are not in the index are left out. Must be
    /// called inside a transaction.
    pub fn exact_distances(
        &self,
        conn: &mut SqliteConnection,
        rows: Vec<i64>,
    ) -> QueryResult<Found> {
        let snapshot = self.set.index.snapshot(self.collection.key());
        if self.vector.len() != self.set.model.dimensions as usize {
            return Ok(Found::default());
        }
        let query = self.set.index.query(self.vector);
        self.nearest(conn, &snapshot, &query, Some(&rows.into_iter().collect()))
    }

    /// The nearest of these entries.
    fn among(
        &self,
        conn: &mut SqliteConnection,
        snapshot: &Snapshot,
        query: &Query,
        rows: Vec<i64>,
    ) -> QueryResult<Found> {
        let (with_estimates, without) = MAX_EXACT_ROWS;
        let max_exact = match self.set.index.precision() {
            Precision::FourBits => with_estimates,
            Precision::SignBits => without,
        };
        if rows.len() > max_exact {
            return self.nearest(conn, snapshot, query, Some(&rows.into_iter().collect()));
        }
        let hits = self.of_entries(conn, &rows)?;
        let notes = vec![format!(
            "semantic: {} entries satisfy the filter; the distances of their {} chunks are exact",
            rows.len(),
            hits.len()
        )];
        let mut hits = nearest_of_entries(hits);
        hits.truncate(self.depth);
        Ok(Found { hits, notes })
    }

    /// The nearest entries according to the index, among these entries or all.
    fn nearest(
        &self,
        conn: &mut SqliteConnection,
        snapshot: &Snapshot,
        query: &Query,
        allowed: Option<&Allowed>,
    ) -> QueryResult<Found> {
        let near = match self.set.index.precision() {
            Precision::FourBits => snapshot.nearest(query, self.depth, allowed),
            Precision::SignBits => self.nearest_by_signs(snapshot, query, allowed)?,
        };
        let (hits, rescored) = self.ranked(conn, &near)?;
        let of = allowed.map_or_else(String::new, |allowed| {
            format!(" among {} entries that satisfy the filter", allowed.len())
        });
        let notes = vec![format!(
            "semantic: {rescored} of {} chunks rescored{of}",
            snapshot.len()
        )];
        Ok(Found { hits, notes })
    }

    /// The nearest chunks by sign bits. Their number is doubled while several chunks of an entry displace other
    /// entries.
    fn nearest_by_signs(
        &self,
        snapshot: &Snapshot,
        query: &Query,
        allowed: Option<&Allowed>,
    ) -> QueryResult<Vec<Near>> {
        let mut depth = self.max_rescored();
        let mut near = snapshot.nearest(query, depth, allowed);
        for _ in 0..MAX_DOUBLINGS {
            if near.len() < depth || distinct_entries(&near) >= self.depth {
                break;
            }
            cancel::check()?;
            depth = depth.saturating_mul(2);
            near = snapshot.nearest(query, depth, allowed);
        }
        Ok(near)
    }

    /// Searches with a filter that many entries are expected to satisfy. `rows`, if given, are the only rows that can
    /// satisfy it, found by a database index. The entries nearest to the query are checked first. If too few of them
    /// satisfy the filter, it is evaluated for all rows.
    fn check_nearest(
        &self,
        conn: &mut SqliteConnection,
        snapshot: &Snapshot,
        query: &Query,
        rows: Option<&[i64]>,
    ) -> QueryResult<Found> {
        let candidates: Option<Allowed> = rows.map(|rows| rows.iter().copied().collect());
        let wanted = match self.set.index.precision() {
            Precision::FourBits => self.depth,
            Precision::SignBits => self.max_rescored(),
        };
        let mut depth = wanted.saturating_mul(2);
        while depth <= MAX_CHECKED.max(wanted * 2) {
            cancel::check()?;
            let near = snapshot.nearest(query, depth, candidates.as_ref());
            let entries: Vec<i64> = near.iter().map(|near| near.entry).collect();
            let allowed: Allowed = self.satisfying(conn, &entries)?.into_iter().collect();
            let satisfying: Vec<Near> = near
                .iter()
                .copied()
                .filter(|near| allowed.contains(near.entry))
                .collect();
            let are_enough =
                satisfying.len() >= wanted && distinct_entries(&satisfying) >= self.depth;
            if near.len() < depth || are_enough {
                let (hits, rescored) = self.ranked(conn, &satisfying)?;
                let notes = vec![format!(
                    "semantic: {} of {} chunks checked, {rescored} of the {} that satisfy the filter rescored",
                    near.len(),
                    snapshot.len(),
                    satisfying.len()
                )];
                return Ok(Found { hits, notes });
            }
            depth = depth.saturating_mul(4);
        }
        let rows = match rows {
            Some(rows) => self.satisfying(conn, rows)?,
            None => {
                let mut statement = Fragment::new(format!(
                    "SELECT entries.row_id AS row_id FROM {} WHERE ",
                    self.collection.rows()
                ));
                statement.append(compile(self.filter, self.collection.owner));
                query_rows(conn, &statement)?
            }
        };
        self.among(conn, snapshot, query, rows)
    }

    /// Number of vectors that a search reads: with sign bits at first, with four bits at most. See [`DEPTH_FACTOR`].
    fn max_rescored(&self) -> usize {
        self.depth.saturating_mul(DEPTH_FACTOR).max(MIN_DEPTH)
    }

    /// Ranks the entries of these chunks, which are ordered by estimate. Also returns how many chunks were rescored:
    /// their vectors were read, and their distances are exact.
    fn ranked(&self, conn: &mut SqliteConnection, near: &[Near]) -> QueryResult<(Vec<Hit>, usize)> {
        let (mut hits, rescored) = match self.set.index.precision() {
            Precision::SignBits => (nearest_of_entries(self.of_chunks(conn, near)?), near.len()),
            Precision::FourBits => self.by_estimates(conn, near)?,
        };
        hits.truncate(self.depth);
        Ok((hits, rescored))
    }

    /// Ranks entries by their estimates where these suffice. Reads the vectors of the first `exact` entries. Also reads
    /// those of chunks whose estimates leave open whether their entries are among the first, or on which side of a
    /// boundary they are.
    fn by_estimates(
        &self,
        conn: &mut SqliteConnection,
        near: &[Near],
    ) -> QueryResult<(Vec<Hit>, usize)> {
        let exact = self.exact.min(self.depth);
        let (first, rest) = near.split_at(prefix_of_entries(near, exact));
        let mut hits = nearest_of_entries(self.of_chunks(conn, first)?);
        // A chunk that is farther away than the last of the exact hits cannot change them.
        let floor = match hits.len().min(exact).checked_sub(1) {
            Some(last) if hits.len() >= exact => similarity_at(hits[last].distance),
            _ => f32::NEG_INFINITY,
        };
        // The similarity at each boundary: that of the first chunk after it. The end of the exact ranks is a boundary,
        // too: where many distances are equal, an error bound that is a little too small would otherwise decide.
        let boundaries = self.boundaries.iter().map(|rank| *rank as usize);
        let borders: Vec<f32> = boundaries
            .chain([exact])
            .map(|rank| prefix_of_entries(near, rank))
            .filter_map(|end| near.get(end))
            .map(|after| after.similarity)
            .collect();
        let is_at_border = |near: &Near| {
            let is_open = |border: &f32| (near.similarity - border).abs() < near.error * UNDECIDED;
            borders.iter().any(is_open)
        };
        let is_open = |near: &Near| (exact > 0 && near.greatest() >= floor) || is_at_border(near);
        let (mut open, mut estimated): (Vec<Near>, Vec<Near>) =
            rest.iter().copied().partition(is_open);
        let room = self.max_rescored().saturating_sub(first.len());
        estimated.extend(open.drain(room.min(open.len())..));
        hits.extend(self.of_chunks(conn, &open)?);
        hits.extend(estimated.iter().map(|near| Hit {
            row_id: near.entry,
            distance: near.distance(),
            chunk: None,
        }));
        Ok((nearest_of_entries(hits), first.len() + open.len()))
    }

    /// Those of the rows that satisfy the filter.
    fn satisfying(&self, conn: &mut SqliteConnection, rows: &[i64]) -> QueryResult<Vec<i64>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let mut statement = Fragment::new(format!(
            "SELECT entries.row_id AS row_id FROM {} NOT INDEXED WHERE entries.row_id IN (",
            self.collection.rows()
        ));
        statement
            .push("SELECT value FROM json_each(")
            .bind(Bind::Text(json_list(rows)))
            .push(")) AND ");
        statement.append(compile(self.filter, self.collection.owner));
        query_rows(conn, &statement)
    }

    /// The exact distances of these chunks. In place of a chunk that was deleted, those of its entry's current chunks.
    fn of_chunks(&self, conn: &mut SqliteConnection, near: &[Near]) -> QueryResult<Vec<Hit>> {
        if near.is_empty() {
            return Ok(Vec::new());
        }
        // Sorted into the order in which they are stored in the file.
        let mut chunks: Vec<i64> = near.iter().map(|near| near.chunk).collect();
        chunks.sort_unstable();
        let mut statement = Fragment::new(SELECT_VECTORS);
        statement.bind(Bind::Text(json_list(&chunks)));
        statement.push(
            ") AS wanted \
             CROSS JOIN vectors ON vectors.chunk_id = wanted.value \
             CROSS JOIN chunks ON chunks.chunk_id = wanted.value",
        );
        let mut read = HashSet::with_capacity(near.len());
        let mut found = self.distances(conn, &statement, |chunk| _ = read.insert(chunk))?;
        if read.len() < near.len() {
            // An update was committed after the index was read: in the database the entry has other chunks.
            let mut entries: Vec<i64> = near
                .iter()
                .filter(|near| !read.contains(&near.chunk))
                .map(|near| near.entry)
                .collect();
            entries.sort_unstable();
            entries.dedup();
            found.extend(self.of_entries(conn, &entries)?);
        }
        Ok(found)
    }

    /// The exact distances of all chunks of these entries.
    fn of_entries(&self, conn: &mut SqliteConnection, rows: &[i64]) -> QueryResult<Vec<Hit>> {
        let mut statement = Fragment::new(SELECT_VECTORS);
        statement.bind(Bind::Text(json_list(rows)));
        statement
            .push(
                ") AS wanted \
                 CROSS JOIN chunks ON chunks.row_id = wanted.value AND chunks.set_id = ",
            )
            .bind(Bind::Int(self.set.id));
        statement.push(" CROSS JOIN vectors ON vectors.chunk_id = chunks.chunk_id");
        self.distances(conn, &statement, |_| {})
    }

    /// The exact distances of the chunks that this statement selects. `note` is called with each of them. The vectors
    /// are dropped one by one, because those of long entries can take gigabytes together.
    fn distances(
        &self,
        conn: &mut SqliteConnection,
        statement: &Fragment,
        mut note: impl FnMut(i64),
    ) -> QueryResult<Vec<Hit>> {
        let mut hits = Vec::new();
        let mut read = vec![0.0; self.vector.len()];
        for row in each::<VectorRow>(conn, statement)? {
            let VectorRow {
                chunk_id,
                row_id,
                position,
                start_char,
                end_char,
                vector,
            } = row?;
            note(chunk_id);
            if !decode(&vector, &mut read) {
                continue;
            }
            hits.push(Hit {
                row_id,
                distance: f64::from(distance(self.vector, &read)),
                chunk: Some(NearestChunk {
                    position,
                    start: start_char,
                    end: end_char,
                }),
            });
        }
        Ok(hits)
    }
}

/// The nearest hit of each entry, nearest entries first. At equal distance the greater row id comes first.
fn nearest_of_entries(hits: Vec<Hit>) -> Vec<Hit> {
    let mut of_entry: HashMap<i64, Hit> = HashMap::with_capacity(hits.len());
    for hit in hits {
        match of_entry.entry(hit.row_id) {
            Entry::Vacant(slot) => _ = slot.insert(hit),
            Entry::Occupied(mut slot) if hit.distance < slot.get().distance => _ = slot.insert(hit),
            Entry::Occupied(_) => {}
        }
    }
    let mut hits: Vec<Hit> = of_entry.into_values().collect();
    hits.sort_unstable_by(|a, b| {
        a.distance
            .total_cmp(&b.distance)
            .then(b.row_id.cmp(&a.row_id))
    });
    hits
}

/// The similarity of vectors of length 1 at this distance.
fn similarity_at(distance: f64) -> f32 {
    (1.0 - distance * distance / 2.0) as f32
}

fn distinct_entries(near: &[Near]) -> usize {
    let entries: HashSet<i64> = near.iter().map(|near| near.entry).collect();
    entries.len()
}

/// Length of the longest prefix of these chunks that belongs to at most this many entries.
fn prefix_of_entries(near: &[Near], entries: usize) -> usize {
    let mut seen = HashSet::with_capacity(entries.min(near.len()));
    near.iter()
        .position(|near| {
            let is_next = seen.len() >= entries && !seen.contains(&near.entry);
            seen.insert(near.entry);
            is_next
        })
        .unwrap_or(near.len())
}

fn query_rows(conn: &mut SqliteConnection, statement: &Fragment) -> QueryResult<Vec<i64>> {
    Ok(query::<Row>(conn, statement)?
        .into_iter()
        .map(|row| row.row_id)
        .collect())
}
