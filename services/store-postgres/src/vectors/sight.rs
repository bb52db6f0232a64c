//! How many candidates the index of a set must keep in sight (`hnsw.ef_search`), found by searching near some of the set's
//! own vectors. Vectors of some models and texts need many times more than others.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, Text};
use diesel_async::SimpleAsyncConnection as _;

use super::index;
use crate::connection::AsyncPgConnection;
use crate::sql::{self, Bind, Fragment};

/// Searches, and of how many of the nearest each is to find all. A query lies between two stored vectors, much nearer to one:
/// those of 100 000 real sentences are found as well as sentences that are not stored. A stored vector itself is found too
/// easily, one in the middle not easily enough. So many, since few are found nowhere near, and decide nothing here.
const SAMPLE: i64 = 96;
const NEAREST: i64 = 10;
/// The share that must be found of what the farthest sight finds. What that one misses, the others miss too.
const WANTED: f64 = 0.98;
const FARTHEST: u32 = 1_000;
/// What is tried, in this order; the first is what a set has before.
const STEPS: [u32; 6] = [100, 150, 200, 300, 400, 800];
/// As many candidates as a search of ten takes from the index.
const CANDIDATES: i64 = 96;
/// The set is looked at again when it has grown by this.
const GROWTH: i64 = 2;

/// What a set has before it was looked at.
pub(super) const FIRST: i64 = STEPS[0] as i64;
/// Where it stands in `settings`, up to the set's number.
pub(super) const KEY: &str = "vectors_sight_";

#[derive(QueryableByName)]
struct Value {
    #[diesel(sql_type = Text)]
    value: String,
}

/// Looks at a set of about so many vectors, unless that was done when it had more than half of them.
pub(super) async fn keep(conn: &mut AsyncPgConnection, set_id: i64, dimensions: u32, vectors: i64) -> diesel::QueryResult<()> {
    let key = format!("{KEY}{set_id}");
    let read = Fragment::prepared("SELECT value FROM context.settings WHERE key = ?", vec![Bind::text(key.as_str())]);
    let known = sql::query::<Value>(conn, read).await?.pop();
    let looked_at = known.and_then(|row| row.value.split_once(' ')?.1.parse::<i64>().ok()).unwrap_or(0);
    if looked_at > 0 && vectors < looked_at.saturating_mul(GROWTH) {
        return Ok(());
    }
    conn.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 600000; SET LOCAL jit = off; SET LOCAL enable_sort = off")
        .await?;
    let found = measure(conn, set_id, dimensions, vectors).await;
    conn.batch_execute("ROLLBACK").await?;
    let (sight, recall) = found?;
    tracing::info!(set = set_id, vectors, sight, recall, "Found how far the index of the vectors must look");
    let write = "INSERT INTO context.settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    sql::execute(conn, Fragment::prepared(write, vec![Bind::text(key), Bind::text(format!("{sight} {vectors}"))])).await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Query {
    #[diesel(sql_type = Text)]
    query: String,
}

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = Text)]
    query: String,
    #[diesel(sql_type = Array<Text>)]
    nearest: Vec<String>,
}

/// The least sight that suffices, or the last that is tried, and the share that it finds.
async fn measure(conn: &mut AsyncPgConnection, set_id: i64, dimensions: u32, vectors: i64) -> diesel::QueryResult<(u32, f64)> {
    // Rows of a page are sampled together: of more pages than needed only some rows are taken.
    let percent = (SAMPLE as f64 * 2_000.0 / vectors.max(1) as f64).clamp(0.01, 100.0);
    let between = Fragment::new(format!(
        "WITH sample AS MATERIALIZED (SELECT c.embedding, row_number() OVER (ORDER BY random()) AS n FROM context.chunks AS c \
         TABLESAMPLE SYSTEM ({percent}) WHERE c.set_id = {set_id} ORDER BY n LIMIT {SAMPLE} + 1) \
         SELECT l2_normalize(a.embedding + a.embedding + a.embedding + b.embedding)::text AS query FROM sample AS a, sample AS b WHERE b.n = a.n + 1"
    ));
    let queries: Vec<String> = sql::query::<Query>(conn, between).await?.into_iter().map(|row| row.query).collect();
    let farthest = search(conn, set_id, dimensions, &queries, FARTHEST).await?;
    let all = farthest.values().map(Vec::len).sum::<usize>().max(1);
    let mut best = (STEPS[0], 1.0);
    for sight in STEPS {
        let near = search(conn, set_id, dimensions, &queries, sight).await?;
        let found = near.iter().map(|(query, nearest)| {
            let expected = farthest.get(query).map(Vec::as_slice).unwrap_or_default();
            expected.iter().filter(|place| nearest.contains(place)).count()
        });
        best = (sight, found.sum::<usize>() as f64 / all as f64);
        if best.1 >= WANTED {
            break;
        }
    }
    Ok(best)
}

/// The places of the rows nearest to each of the queries.
async fn search(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    queries: &[String],
    sight: u32,
) -> diesel::QueryResult<HashMap<String, Vec<String>>> {
    conn.batch_execute(&format!("SET LOCAL hnsw.ef_search = {sight}")).await?;
    let order = index::expression(dimensions);
    let mut near = Fragment::new(format!(
        "SELECT q.query, (SELECT array_agg(n.place) FROM (SELECT k.place FROM (SELECT k.ctid::text AS place, k.embedding \
         FROM context.chunks AS k WHERE k.set_id = {set_id} ORDER BY k.{order} <-> q.query::vector::halfvec({dimensions}) \
         LIMIT {CANDIDATES}) AS k ORDER BY k.embedding <-> q.query::vector LIMIT {NEAREST}) AS n) AS nearest FROM unnest("
    ));
    near.bind(Bind::texts(queries)).push(") AS q(query)");
    let found: Vec<Found> = sql::query(conn, near).await?;
    Ok(found.into_iter().map(|found| (found.query, found.nearest)).collect())
}
