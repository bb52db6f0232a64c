//! Semantic search: finds the nearest entries with the HNSW index, or by comparing the vectors of all entries that
//! satisfy the filter.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use context_model::{Filter, MetadataPath};
use context_store::{ChunkRange, DocumentKind, OwnerId, SemanticHit};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Double};

use super::Vector;
use super::index::{self, MAX_INDEXED_DIMENSIONS};
use crate::filter;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};

/// For up to this many entries, all vectors are compared, even if there is an index.
const ALWAYS_COMPARED: f64 = 2_000.0;
/// For up to this many entries, the comparison of all vectors uses a cached plan. Such a plan is made for few entries,
/// and planning again would take longer than a better plan can save.
const FEW: f64 = 500.0;
/// Cost of one vector that the index visits, in comparisons. Measured. docs/benchmarks.md has the times of searches
/// with and without the index.
const COMPARED_PER_VISITED: f64 = 7.0;
/// pgvector's limit of `hnsw.ef_search`.
const MAX_EF_SEARCH: u32 = 1_000;
/// Range of `hnsw.max_scan_tuples`, the number of vectors after which the index stops.
const VISIT_LIMIT: RangeInclusive<f64> = 20_000.0..=400_000.0;

/// The set of vectors that a search uses.
#[derive(Debug, Clone, Copy)]
pub(super) struct VectorSet {
    pub id: i64,
    pub dimensions: u32,
    /// Whether it has a usable HNSW index.
    pub has_index: bool,
}

/// A semantic search of one owner.
pub(super) struct Search<'s> {
    pub owner: &'s OwnerId,
    /// The number of the owner's entries. For artifacts it is `expected`, because artifacts are not counted.
    pub owner_entries: i64,
    pub set: VectorSet,
    /// Rows of `chunks`: all sets and all owners, by the server's estimate.
    pub chunks: i64,
    pub vector: &'s [f32],
    /// What is searched.
    pub kind: DocumentKind,
    pub filter: &'s Filter,
    /// The metadata fields with an index.
    pub indexed_paths: &'s [MetadataPath],
    /// The planner's estimate of how many entries or artifacts satisfy the filter. `None` for entries without a filter.
    pub expected: Option<f64>,
    /// The number of entries to find.
    pub depth: u32,
    /// Search breadth of the index (`hnsw.ef_search`).
    pub ef_search: u32,
    /// Whether to return the database's plan.
    pub explain: bool,
}

/// The result of a semantic search.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The hits, nearest first. At equal distance the greater id comes first.
    pub hits: Vec<SemanticHit>,
    /// How they were found, for `explain_query`.
    pub notes: Vec<String>,
}

/// A chunk and its distance from the query.
#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Double)]
    distance: f64,
    #[diesel(sql_type = BigInt)]
    position: i64,
    #[diesel(sql_type = BigInt)]
    start_char: i64,
    #[diesel(sql_type = BigInt)]
    end_char: i64,
}

impl Search<'_> {
    /// Finds the nearest entries that satisfy the filter. Must be called inside a transaction, because it changes the
    /// transaction's settings.
    pub async fn run(&self, conn: &mut AsyncPgConnection) -> Result<Found, Failure> {
        // The engine checks the vector's length. A vector of another length cannot be compared with any.
        if self.depth == 0 || u32::try_from(self.vector.len()) != Ok(self.set.dimensions) {
            return Ok(Found::default());
        }
        // Starting parallel workers costs more than reading a few thousand rows, and makes the planner prefer reading
        // the whole table to the index of the filter.
        conn.send_batch("SET LOCAL max_parallel_workers_per_gather = 0")
            .await;
        let matching = self
            .expected
            .unwrap_or(f64::INFINITY)
            .min(self.owner_entries as f64);
        if self.by_index_is_faster(matching) {
            if let Some(found) = self.by_index(conn, matching).await? {
                return Ok(found);
            }
            // The comparison needs sorts, which `set_index_options` has turned off.
            conn.send_batch("SET LOCAL enable_sort TO DEFAULT").await;
        }
        self.compare_all(conn, matching).await
    }

    /// Whether the index finds the nearest of `matching` entries faster than a comparison of all of them. The index
    /// visits vectors in the order of their distance, including those that do not satisfy the filter, so it visits
    /// about `depth * total / matching` vectors. It is faster if `matching² > COMPARED_PER_VISITED * depth * total`.
    fn by_index_is_faster(&self, matching: f64) -> bool {
        let break_even = (COMPARED_PER_VISITED * f64::from(self.depth) * self.total()).sqrt();
        self.set.has_index
            && self.set.dimensions <= MAX_INDEXED_DIMENSIONS
            && matching > break_even.max(ALWAYS_COMPARED)
    }

    /// Approximate number of vectors in the set. The server's estimate lags while the table grows, and is too large
    /// during a change of the model, when the table has the vectors of two sets.
    fn total(&self) -> f64 {
        self.chunks.max(self.owner_entries).max(1) as f64
    }

    /// The nearest entries according to the index. `None` when the index stopped before it had found enough
    /// (`hnsw.max_scan_tuples`). Requests more chunks than entries, because an entry may have several chunks. Doubles
    /// the number of chunks while they belong to too few entries.
    async fn by_index(
        &self,
        conn: &mut AsyncPgConnection,
        matching: f64,
    ) -> Result<Option<Found>, Failure> {
        let mut wanted = self.depth.saturating_add(self.depth / 2);
        loop {
            self.set_index_options(conn, wanted, matching).await;
            let select = self.select_by_index(wanted);
            let plan = if self.explain {
                plan(conn, &select).await?
            } else {
                Vec::new()
            };
            let rows: Vec<Row> = sql::query(conn, select).await?;
            let chunks = rows.len();
            let hits = self.nearest_entries(rows);
            if hits.len() >= self.depth as usize {
                let mut notes = Vec::new();
                if self.explain {
                    notes.push(format!(
                        "semantic: {chunks} chunks from the index, rescored"
                    ));
                    notes.extend(plan);
                }
                return Ok(Some(Found { hits, notes }));
            }
            if chunks < wanted as usize {
                return Ok(None);
            }
            wanted = wanted.saturating_mul(2);
        }
    }

    /// Sets options of the index, and turns `enable_sort` off, for the rest of this transaction. This works behind a
    /// pooler.
    async fn set_index_options(&self, conn: &mut AsyncPgConnection, wanted: u32, matching: f64) {
        let ef_search = self.ef_search.max(wanted).min(MAX_EF_SEARCH);
        let visited = f64::from(wanted) * self.total() / matching.max(1.0);
        let max_visited = (visited * 4.0).clamp(*VISIT_LIMIT.start(), *VISIT_LIMIT.end());
        // With strict_order, the index omits each candidate that it finds after a farther one. With a filter, it would
        // omit many. All candidates are rescored, so their order does not matter. The decision to use the index was
        // made before, and turning enable_sort off makes the planner follow it.
        let options = format!(
            "SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = {ef_search}; \
             SET LOCAL hnsw.max_scan_tuples = {max_visited:.0}; SET LOCAL hnsw.scan_mem_multiplier = 8; SET LOCAL enable_sort = off"
        );
        conn.send_batch(options).await;
    }

    /// Selects candidates by their halfvec distance in the index, and returns the distances of their full vectors.
    fn select_by_index(&self, wanted: u32) -> Fragment<'_> {
        let vector = || Bind::Vector(Vector::new(self.vector));
        let dimensions = self.set.dimensions;
        // The limit is part of the text. With a bound value, a cached plan would assume that a tenth of all rows is
        // requested.
        let select = fragment!(
            "SELECT near.id, near.embedding <-> ? AS distance, near.position, near.start_char, near.end_char FROM \
             (SELECT c.id, c.embedding, c.position, c.start_char, c.end_char FROM context.chunks AS c {condition} \
             ORDER BY c.{expression} <-> ?::halfvec({dimensions}) LIMIT {wanted}) AS near",
            vector(),
            self.condition(),
            Fragment::new(index::expression(dimensions)),
            vector(),
            Fragment::new(dimensions.to_string()),
            Fragment::new(wanted.to_string()),
        );
        // A cached plan is made without the values of the filter. It may join each candidate with all rows of the
        // filter, which takes forty times the work.
        if !self.is_filtered() {
            select.cached()
        } else {
            select
        }
    }

    /// The nearest entries by comparing the vectors of all entries that satisfy the filter. No index has this order, so
    /// the planner uses an index for the filter.
    async fn compare_all(
        &self,
        conn: &mut AsyncPgConnection,
        matching: f64,
    ) -> Result<Found, Failure> {
        let select = fragment!(
            "SELECT n.id, n.distance, n.position, n.start_char, n.end_char FROM (SELECT DISTINCT ON (c.id) c.id, \
             c.embedding <-> ? AS distance, c.position, c.start_char, c.end_char FROM context.chunks AS c {condition} \
             ORDER BY c.id, distance, c.position) AS n ORDER BY n.distance, n.id DESC LIMIT ?",
            Bind::Vector(Vector::new(self.vector)),
            self.condition(),
            Bind::Int(i64::from(self.depth)),
        );
        // A cached plan assumes few entries and reads their vectors one by one, so it is only used for few entries.
        let select = if matching <= FEW {
            select.cached()
        } else {
            select
        };
        let mut notes = Vec::new();
        if self.explain {
            notes.push(
                "semantic: the vectors of all entries that satisfy the filter are compared"
                    .to_owned(),
            );
            notes.extend(plan(conn, &select).await?);
        }
        let rows: Vec<Row> = sql::query(conn, select).await?;
        Ok(Found {
            hits: self.nearest_entries(rows),
            notes,
        })
    }

    /// The JOIN and WHERE that restrict `chunks AS c` to the set, the owner and the filter.
    fn condition(&self) -> Fragment<'_> {
        // The set's number comes from this program. It is part of the text, so that the planner recognises that the
        // set's partial index applies.
        let set = Fragment::new(self.set.id.to_string());
        let owner = self.owner.as_str();
        let table = match self.kind {
            DocumentKind::Context => "entries",
            DocumentKind::Artifact => "artifact_documents",
        };
        if !self.is_filtered() {
            // The ids of artifacts' documents are negative.
            return fragment!(
                "WHERE c.set_id = {set} AND c.owner_id = ? AND c.id > 0",
                set,
                Bind::text(owner)
            );
        }
        fragment!(
            "JOIN context.{table} AS entries ON entries.owner_id = c.owner_id AND entries.id = c.id \
             WHERE c.set_id = {set} AND c.owner_id = ? AND {filter}",
            Fragment::new(table),
            set,
            Bind::text(owner),
            filter::compile(self.kind, self.filter, owner, self.indexed_paths),
        )
    }

    /// Whether only a part of the owner's vectors is searched.
    fn is_filtered(&self) -> bool {
        self.filter.count() > 0 || self.kind == DocumentKind::Artifact
    }

    /// Keeps the nearest chunk of each entry, and returns the `depth` nearest entries.
    fn nearest_entries(&self, rows: Vec<Row>) -> Vec<SemanticHit> {
        let unsigned = |number: i64| u32::try_from(number).unwrap_or(0);
        let mut by_entry: HashMap<i64, SemanticHit> = HashMap::with_capacity(rows.len());
        for Row {
            id,
            distance,
            position,
            start_char,
            end_char,
        } in rows
        {
            let chunk = SemanticHit {
                id,
                distance,
                chunk: Some(ChunkRange {
                    position: unsigned(position),
                    start: unsigned(start_char),
                    end: unsigned(end_char),
                }),
            };
            let nearest = by_entry.entry(id).or_insert(chunk);
            if distance < nearest.distance {
                *nearest = chunk;
            }
        }
        let mut hits: Vec<SemanticHit> = by_entry.into_values().collect();
        hits.sort_unstable_by(|a, b| a.distance.total_cmp(&b.distance).then(b.id.cmp(&a.id)));
        hits.truncate(self.depth as usize);
        hits
    }
}

/// The plan of a search, without the hundreds of numbers of its vector.
async fn plan(conn: &mut AsyncPgConnection, select: &Fragment<'_>) -> Result<Vec<String>, Failure> {
    let shortened = |line: String| match (line.find("'["), line.rfind("]'")) {
        (Some(start), Some(end)) if start < end => {
            format!("{}'[…]'{}", &line[..start], &line[end + 2..])
        }
        _ => line,
    };
    Ok(sql::explain(conn, select)
        .await?
        .into_iter()
        .map(shortened)
        .collect())
}
