//! Search by meaning: the nearest entries, through the index or by measuring all that satisfy the filter.

use std::collections::HashMap;

use context_model::{Filter, MetadataPath};
use context_store::{OwnerId, RankedByMeaning};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Double};

use super::Vector;
use super::index::{self, MAX_DIMENSIONS};
use crate::filter;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};

/// Entries whose vectors are measured one and all, whatever the index could do.
const ALWAYS_MEASURED: f64 = 2_000.0;
/// Entries of which planning takes longer than a plan for few could lose.
const FEW: f64 = 500.0;
/// How many vectors are measured in the time in which the index gives one. Measured: see docs/benchmarks.md.
const MEASURED_PER_STEP: f64 = 7.0;
/// Candidates that the index keeps in sight (`hnsw.ef_search`), at least and at most; the most is pgvector's.
const SIGHT: (u32, u32) = (100, 1_000);
/// Vectors the index may look at for one search (`hnsw.max_scan_tuples`), at least and at most.
const LOOKED_AT: (f64, f64) = (20_000.0, 400_000.0);

/// A set of vectors as a search finds it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetState {
    pub id: i64,
    pub dimensions: u32,
    /// Vectors of all owners, about.
    pub chunks: i64,
    /// Entries of the owner.
    pub entries: i64,
    /// Whether its index can be used.
    pub indexed: bool,
    /// How many candidates the index must keep in sight for these vectors.
    pub sight: u32,
}

pub(super) struct Search<'s> {
    pub owner: &'s OwnerId,
    pub set: SetState,
    pub vector: &'s [f32],
    pub filter: &'s Filter,
    pub indexed: &'s [MetadataPath],
    /// How many entries the planner expects to satisfy the filter, if there is one.
    pub expected: Option<f64>,
    /// Entries wanted.
    pub depth: u32,
    /// Whether the plan of the database is asked for.
    pub explain: bool,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    /// Nearest first, then the greater id.
    pub hits: Vec<RankedByMeaning>,
    /// How they were found, for `explain_query`.
    pub notes: Vec<String>,
    /// Whether the index found them, and no farther than it must look for this set anyway.
    pub by_sight: bool,
}

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
    /// The nearest entries that satisfy the filter. To be called inside a transaction, whose settings it changes.
    pub async fn run(&self, conn: &mut AsyncPgConnection) -> Result<Found, Failure> {
        if self.depth == 0 || u32::try_from(self.vector.len()) != Ok(self.set.dimensions) {
            return Ok(Found::default());
        }
        // To start processes costs more than to read a few thousand rows, and makes the planner prefer reading a whole table to
        // the index of the filter.
        conn.send_batch("SET LOCAL max_parallel_workers_per_gather = 0")
            .await;
        let matching = self
            .expected
            .unwrap_or(f64::INFINITY)
            .min(self.set.entries as f64);
        let most_measured = (MEASURED_PER_STEP * f64::from(self.depth) * self.total())
            .sqrt()
            .max(ALWAYS_MEASURED);
        if !self.set.indexed || self.set.dimensions > MAX_DIMENSIONS || matching <= most_measured {
            return self.measured(conn, matching).await;
        }
        match self.near(conn, matching).await? {
            Some(found) => Ok(found),
            None => self.measured(conn, matching).await,
        }
    }

    /// Vectors that there are to choose from. The server's own count comes late.
    fn total(&self) -> f64 {
        self.set.chunks.max(self.set.entries).max(1) as f64
    }

    /// What narrows `chunks AS c` to the set and the filter.
    fn condition(&self) -> Fragment<'_> {
        let mut condition = Fragment::new("");
        if self.filter.count() > 0 {
            condition.push("JOIN context.entries AS entries ON entries.owner_id = c.owner_id AND entries.id = c.id ");
        }
        // The number is ours; in the text it lets the planner see that the index of the set applies.
        condition
            .push(&format!(
                "WHERE c.set_id = {} AND c.owner_id = ",
                self.set.id
            ))
            .bind(Bind::text(self.owner.as_str()));
        if self.filter.count() > 0 {
            condition.push(" AND ").append(filter::compile(
                self.filter,
                self.owner.as_str(),
                self.indexed,
            ));
        }
        condition
    }

    /// All vectors of the entries that satisfy the filter. No index knows this order, so that the planner goes through the
    /// filter.
    async fn measured(
        &self,
        conn: &mut AsyncPgConnection,
        matching: f64,
    ) -> Result<Found, Failure> {
        let measured = "SELECT n.id, n.distance, n.position, n.start_char, n.end_char FROM (SELECT DISTINCT ON (c.id) c.id, c.embedding <-> ";
        // A plan that is kept is one for few entries, whose vectors are looked up one by one.
        let mut select = if matching <= FEW {
            Fragment::search(measured)
        } else {
            Fragment::new(measured)
        };
        select
            .bind(Bind::Vector(Vector::new(self.vector)))
            .push(" AS distance, c.position, c.start_char, c.end_char FROM context.chunks AS c ");
        select.append(self.condition()).push(
            " ORDER BY c.id, distance, c.position) AS n ORDER BY n.distance, n.id DESC LIMIT ",
        );
        select.bind(Bind::Int(i64::from(self.depth)));
        let mut notes = Vec::new();
        if self.explain {
            notes.push(
                "semantic: the vectors of all entries that satisfy the filter are measured"
                    .to_owned(),
            );
            notes.extend(plan(conn, &select).await?);
        }
        let rows: Vec<Row> = sql::query(conn, select).await?;
        Ok(Found {
            hits: self.best(rows),
            notes,
            by_sight: false,
        })
    }

    /// The nearest by the index; `None` when it gave up before there were enough.
    async fn near(
        &self,
        conn: &mut AsyncPgConnection,
        matching: f64,
    ) -> Result<Option<Found>, Failure> {
        let mut wanted = self.depth.saturating_add(self.depth / 2);
        loop {
            // Those that do not satisfy the filter are looked at too.
            let steps = f64::from(wanted) * self.total() / matching.max(1.0);
            self.settings(conn, wanted, steps).await?;
            let select = self.nearest(wanted);
            let plan = if self.explain {
                plan(conn, &select).await?
            } else {
                Vec::new()
            };
            let rows: Vec<Row> = sql::query(conn, select).await?;
            let count = rows.len();
            let hits = self.best(rows);
            if hits.len() >= self.depth as usize {
                let mut notes = Vec::new();
                if self.explain {
                    notes.push(format!("semantic: {count} chunks from the index, rescored"));
                    notes.extend(plan);
                }
                return Ok(Some(Found {
                    hits,
                    notes,
                    by_sight: wanted < SIGHT.1,
                }));
            }
            if count < wanted as usize {
                return Ok(None);
            }
            // Several chunks of one entry have taken the places of other entries.
            wanted = wanted.saturating_mul(2);
        }
    }

    /// For this transaction alone, so that it holds behind a pooler and spoils no other statement's plan.
    async fn settings(
        &self,
        conn: &mut AsyncPgConnection,
        wanted: u32,
        steps: f64,
    ) -> Result<(), Failure> {
        let sight = wanted.max(self.set.sight).clamp(SIGHT.0, SIGHT.1);
        let looked_at = (steps * 4.0).clamp(LOOKED_AT.0, LOOKED_AT.1);
        // In the strict order the index leaves out what it finds later than something farther away, and with a filter that is much.
        // All are rescored, so that their order does not matter.
        // Without sorting, the index is the only way to the order; that it is the better one was decided before.
        let set = format!(
            "SET LOCAL hnsw.iterative_scan = relaxed_order; SET LOCAL hnsw.ef_search = {sight}; \
             SET LOCAL hnsw.max_scan_tuples = {looked_at:.0}; SET LOCAL hnsw.scan_mem_multiplier = 8; SET LOCAL enable_sort = off"
        );
        conn.send_batch(set).await;
        Ok(())
    }

    fn nearest(&self, wanted: u32) -> Fragment<'_> {
        let vector = || Bind::Vector(Vector::new(self.vector));
        let near = "SELECT near.id, near.embedding <-> ";
        // A plan that is kept knows nothing of the filter, and may join what the index gives with all rows of the filter anew
        // for each: forty times the work.
        let mut select = if self.filter.count() == 0 {
            Fragment::search(near)
        } else {
            Fragment::new(near)
        };
        select
            .bind(vector())
            .push(" AS distance, near.position, near.start_char, near.end_char FROM (SELECT c.id, c.embedding, c.position, c.start_char, c.end_char ");
        select
            .push("FROM context.chunks AS c ")
            .append(self.condition());
        let order = index::expression(self.set.dimensions);
        // The number wanted stands in the text: without it, a plan that is kept would be one for a tenth of all rows.
        select
            .push(&format!(" ORDER BY c.{order} <-> "))
            .bind(vector())
            .push(&format!(
                "::halfvec({}) LIMIT {wanted}) AS near",
                self.set.dimensions
            ));
        select
    }

    /// Each entry by its nearest chunk.
    fn best(&self, rows: Vec<Row>) -> Vec<RankedByMeaning> {
        let place = |at: i64| u32::try_from(at).unwrap_or(0);
        let mut of_entry: HashMap<i64, RankedByMeaning> = HashMap::with_capacity(rows.len());
        for Row {
            id,
            distance,
            position,
            start_char,
            end_char,
        } in rows
        {
            let found = RankedByMeaning {
                id,
                distance,
                position: place(position),
                start: place(start_char),
                end: place(end_char),
            };
            let best = of_entry.entry(id).or_insert(found);
            if distance < best.distance {
                *best = found;
            }
        }
        let mut hits: Vec<RankedByMeaning> = of_entry.into_values().collect();
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
