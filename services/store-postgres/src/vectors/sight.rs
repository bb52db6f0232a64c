//! How many candidates the index of a set must keep in sight (`hnsw.ef_search`). Vectors of some models and texts need many
//! times more than others. It is found by asking again what was asked last, and while nothing was, by searching near some of
//! the set's own vectors.

use std::collections::HashMap;

use diesel::QueryableByName;
use diesel::sql_types::{Array, Bool, Text};
use diesel_async::SimpleAsyncConnection as _;

use super::asked::{Asked, Look};
use super::index;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Bind, Fragment};

/// Searches near a sample, and of how many of the nearest each is to find all. A query lies between two stored vectors, much
/// nearer to one: those of 100 000 real sentences are found as well as sentences that are not stored. A stored vector itself
/// is found too easily, one in the middle not easily enough. So many, since few are found nowhere near, and decide nothing
/// here.
const SAMPLE: i64 = 96;
const NEAREST: i64 = 10;
/// The share that must be found of what the farthest sight finds, of what was asked and of a sample, which is harder. What that
/// one misses, the others miss too.
const WANTED: f64 = 0.99;
const WANTED_OF_SAMPLE: f64 = 0.98;
const FARTHEST: u32 = 1_000;
/// What is tried, in this order; the first is what a set has before.
const STEPS: [u32; 7] = [100, 150, 200, 300, 400, 600, 800];
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

/// What is known of a set: `<sight> <vectors>`, and `asked` when that is not from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Known {
    sight: u32,
    /// How many vectors the set had.
    vectors: i64,
    is_asked: bool,
}

/// What a set is looked at with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum With {
    Sample,
    /// Some queries; too few to say that a set needs less than it has.
    Few,
    Many,
}

/// Looks at a set of about so many vectors, unless that was done when it had more than half of them: with what was asked of
/// it, or with a sample of it when this service does not know.
pub(super) async fn keep(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    vectors: i64,
    asked: &Asked,
) -> diesel::QueryResult<()> {
    let known = known(conn, set_id).await?;
    if known
        .is_some_and(|known| known.vectors > 0 && vectors < known.vectors.saturating_mul(GROWTH))
    {
        return Ok(());
    }
    let asked = asked.look(set_id);
    look(conn, set_id, dimensions, (known, vectors), asked.as_ref()).await
}

/// Looks at a set again with what was asked of it. A set that was never looked at is left alone.
pub(super) async fn learn(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    asked: &Asked,
) -> diesel::QueryResult<()> {
    let (Some(known), Some(asked)) = (known(conn, set_id).await?, asked.look(set_id)) else {
        return Ok(());
    };
    look(
        conn,
        set_id,
        dimensions,
        (Some(known), known.vectors),
        Some(&asked),
    )
    .await
}

/// What is known of a set.
async fn known(conn: &mut AsyncPgConnection, set_id: i64) -> diesel::QueryResult<Option<Known>> {
    let read = Fragment::prepared(
        "SELECT value FROM context.settings WHERE key = ?",
        vec![Bind::text(format!("{KEY}{set_id}"))],
    );
    Ok(sql::query::<Value>(conn, read)
        .await?
        .pop()
        .and_then(|row| parse(&row.value)))
}

async fn is_standby(conn: &mut AsyncPgConnection) -> diesel::QueryResult<bool> {
    #[derive(QueryableByName)]
    struct Standby {
        #[diesel(sql_type = Bool)]
        is_standby: bool,
    }
    let rows: Vec<Standby> = sql::query(
        conn,
        Fragment::prepared("SELECT pg_is_in_recovery() AS is_standby", Vec::new()),
    )
    .await?;
    Ok(rows.first().is_some_and(|row| row.is_standby))
}

fn parse(value: &str) -> Option<Known> {
    let mut words = value.split(' ');
    Some(Known {
        sight: words.next()?.parse().ok()?,
        vectors: words.next()?.parse().ok()?,
        is_asked: words.next() == Some("asked"),
    })
}

async fn look(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    (known, vectors): (Option<Known>, i64),
    asked: Option<&Look<'_>>,
) -> diesel::QueryResult<()> {
    // What is found could not be written.
    if is_standby(conn).await? {
        return Ok(());
    }
    conn.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = 60000; SET LOCAL jit = off; SET LOCAL enable_sort = off")
        .await?;
    let (with, found) = match asked {
        Some(look) if look.is_full() => (
            With::Many,
            measure(conn, set_id, dimensions, &look.queries, WANTED).await,
        ),
        Some(look) => (
            With::Few,
            measure(conn, set_id, dimensions, &look.queries, WANTED).await,
        ),
        None => (
            With::Sample,
            measure_with_sample(conn, set_id, dimensions, vectors).await,
        ),
    };
    conn.batch_execute("ROLLBACK").await?;
    let (found, recall) = found?;
    let (sight, is_asked) = settled(known, found, with);
    let write = "INSERT INTO context.settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    let asked = if is_asked { " asked" } else { "" };
    let binds = vec![
        Bind::text(format!("{KEY}{set_id}")),
        Bind::text(format!("{sight} {vectors}{asked}")),
    ];
    sql::execute(conn, Fragment::prepared(write, binds)).await?;
    tracing::info!(
        set = set_id,
        vectors,
        ?with,
        found,
        recall,
        sight,
        "Found how far the index of the vectors must look"
    );
    Ok(())
}

/// The sight of a set after one was found, and whether it comes from what was asked. Other services are asked other things,
/// so that what they learnt is taken back slowly, and never for a sample.
fn settled(known: Option<Known>, found: u32, with: With) -> (u32, bool) {
    let Some(known) = known else {
        return (found, with != With::Sample);
    };
    let below = STEPS
        .into_iter()
        .rev()
        .find(|step| *step < known.sight)
        .unwrap_or(STEPS[0]);
    match with {
        With::Sample if !known.is_asked => (found, false),
        With::Sample | With::Few => (found.max(known.sight), true),
        With::Many => (found.max(below), true),
    }
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

/// As [`measure`], with queries between vectors of the set.
async fn measure_with_sample(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    vectors: i64,
) -> diesel::QueryResult<(u32, f64)> {
    // Rows of a page are sampled together: of more pages than needed only some rows are taken.
    let percent = (SAMPLE as f64 * 2_000.0 / vectors.max(1) as f64).clamp(0.01, 100.0);
    let between = Fragment::new(format!(
        "WITH sample AS MATERIALIZED (SELECT c.embedding, row_number() OVER (ORDER BY random()) AS n FROM context.chunks AS c \
         TABLESAMPLE SYSTEM ({percent}) WHERE c.set_id = {set_id} ORDER BY n LIMIT {SAMPLE} + 1) \
         SELECT l2_normalize(a.embedding + a.embedding + a.embedding + b.embedding)::text AS query FROM sample AS a, sample AS b WHERE b.n = a.n + 1"
    ));
    let queries: Vec<String> = sql::query::<Query>(conn, between)
        .await?
        .into_iter()
        .map(|row| row.query)
        .collect();
    measure(conn, set_id, dimensions, &queries, WANTED_OF_SAMPLE).await
}

/// The least sight that suffices, and the share that it finds of what the farthest does.
async fn measure(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    queries: &[String],
    wanted: f64,
) -> diesel::QueryResult<(u32, f64)> {
    let farthest = search(conn, set_id, dimensions, queries, FARTHEST).await?;
    let all = farthest.values().map(Vec::len).sum::<usize>().max(1);
    for sight in STEPS {
        let near = search(conn, set_id, dimensions, queries, sight).await?;
        let found = near.iter().map(|(query, nearest)| {
            let expected = farthest.get(query).map(Vec::as_slice).unwrap_or_default();
            expected
                .iter()
                .filter(|place| nearest.contains(place))
                .count()
        });
        let recall = found.sum::<usize>() as f64 / all as f64;
        if recall >= wanted {
            return Ok((sight, recall));
        }
    }
    Ok((FARTHEST, 1.0))
}

/// The places of the rows nearest to each of the queries.
async fn search(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
    queries: &[String],
    sight: u32,
) -> diesel::QueryResult<HashMap<String, Vec<String>>> {
    conn.batch_execute(&format!("SET LOCAL hnsw.ef_search = {sight}"))
        .await?;
    let order = index::expression(dimensions);
    let mut near = Fragment::new(format!(
        "SELECT q.query, (SELECT array_agg(n.place) FROM (SELECT k.place FROM (SELECT k.ctid::text AS place, k.embedding \
         FROM context.chunks AS k WHERE k.set_id = {set_id} ORDER BY k.{order} <-> q.query::vector::halfvec({dimensions}) \
         LIMIT {CANDIDATES}) AS k ORDER BY k.embedding <-> q.query::vector LIMIT {NEAREST}) AS n) AS nearest FROM unnest("
    ));
    near.bind(Bind::texts(queries)).push(") AS q(query)");
    let found: Vec<Found> = sql::query(conn, near).await?;
    Ok(found
        .into_iter()
        .map(|found| (found.query, found.nearest))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_learnt_is_taken_back_slowly() {
        let known = |value| parse(value);
        assert_eq!(
            known("400 100000"),
            Some(Known {
                sight: 400,
                vectors: 100_000,
                is_asked: false
            })
        );
        assert_eq!((known(""), known("x 1"), known("100")), (None, None, None));
        let sampled = known("400 100000");
        let asked = known("400 100000 asked");
        assert_eq!(
            (
                settled(None, 150, With::Sample),
                settled(None, 150, With::Few)
            ),
            ((150, false), (150, true))
        );
        assert_eq!(
            (
                settled(sampled, 100, With::Sample),
                settled(asked, 100, With::Sample)
            ),
            ((100, false), (400, true))
        );
        assert_eq!(
            (
                settled(sampled, 100, With::Few),
                settled(asked, 600, With::Few)
            ),
            ((400, true), (600, true))
        );
        assert_eq!(
            (
                settled(asked, 100, With::Many),
                settled(asked, 1000, With::Many)
            ),
            ((300, true), (1000, true))
        );
        assert_eq!(
            (
                settled(known("1000 1 asked"), 100, With::Many),
                settled(known("100 1"), 100, With::Many)
            ),
            ((800, true), (100, true))
        );
    }
}
