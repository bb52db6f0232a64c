//! The HNSW index of a set, made when the set has grown large. Until then measuring all vectors is as quick, and a write
//! costs a fifth.

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::SimpleAsyncConnection as _;

use crate::open;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Bind, Fragment};

/// Vectors from which on a set has an index.
const INDEXED_FROM: i64 = 10_000;
/// An index over halfvec has no more (pgvector's HNSW).
pub(super) const MAX_DIMENSIONS: u32 = 4_000;
/// What making an index may take, where the server's own setting is less: beyond it, it is made many times slower.
const MEMORY: &str = "512MB";

/// The name of a set's index, up to the set's number.
pub(super) const PREFIX: &str = "context.chunks_near_";

/// How the statement that makes one begins. Where the vectors are spread over servers, the progress of the making is seen
/// on those alone, the statement here.
const MAKE: &str = "CREATE INDEX CONCURRENTLY IF NOT EXISTS chunks_near_";

/// What the index is over, as searches must write it.
pub(super) fn expression(dimensions: u32) -> String {
    format!("embedding::halfvec({dimensions})")
}

#[derive(QueryableByName)]
struct State {
    #[diesel(sql_type = Bool)]
    exists: bool,
    #[diesel(sql_type = Bool)]
    valid: bool,
    #[diesel(sql_type = Bool)]
    in_the_making: bool,
    #[diesel(sql_type = BigInt)]
    bytes: i64,
    #[diesel(sql_type = Bool)]
    has_memory: bool,
}

/// The state of a set's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    /// There is none yet.
    None,
    /// It can be used, and has about so many vectors; `None` where they are spread over servers.
    There(Option<i64>),
    /// It was made just now, over about so many.
    Made(Option<i64>),
}

/// Makes the index of a set when it is large enough and has none. Writes and searches go on meanwhile.
pub(super) async fn keep(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
) -> diesel::QueryResult<Kept> {
    if dimensions > MAX_DIMENSIONS {
        return Ok(Kept::None);
    }
    let name = format!("{PREFIX}{set_id}");
    let state = "SELECT to_regclass(?) IS NOT NULL AS exists, \
                 coalesce((SELECT i.indisvalid FROM pg_catalog.pg_index AS i WHERE i.indexrelid = to_regclass(?)), false) AS valid, \
                 EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_create_index AS p WHERE p.datname = current_database() AND p.relid = 'context.chunks'::regclass) \
                 OR EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() AND a.state = 'active' \
                 AND starts_with(a.query, ?)) AS in_the_making, pg_table_size('context.chunks') AS bytes, \
                 pg_size_bytes(current_setting('maintenance_work_mem')) >= pg_size_bytes(?) AS has_memory";
    let binds = vec![
        Bind::text(name.as_str()),
        Bind::text(name.as_str()),
        Bind::text(MAKE),
        Bind::text(MEMORY),
    ];
    let Some(State {
        exists,
        valid,
        in_the_making,
        bytes,
        has_memory,
    }) = sql::query(conn, Fragment::prepared(state, binds))
        .await?
        .pop()
    else {
        return Ok(Kept::None);
    };
    let spread = open::is_spread(conn, "context.chunks").await?;
    // A row has its vector and some numbers.
    let of_size = bytes / (i64::from(dimensions) * 4 + 100);
    let about = (!spread).then_some(of_size);
    if valid {
        return Ok(Kept::There(about));
    }
    let vectors = if spread && !in_the_making {
        up_to_enough(conn, set_id).await?
    } else {
        of_size
    };
    if in_the_making || vectors < INDEXED_FROM {
        return Ok(Kept::None);
    }
    if exists {
        // Somebody was interrupted while making it.
        conn.batch_execute(&format!("DROP INDEX CONCURRENTLY IF EXISTS {name}"))
            .await?;
    }
    tracing::info!(set = set_id, vectors, "Making the index of the vectors");
    let started = std::time::Instant::now();
    // It takes minutes where a statement of a request takes milliseconds. The connection is closed afterwards.
    conn.batch_execute("SET statement_timeout = 0").await?;
    if !has_memory {
        conn.batch_execute(&format!("SET maintenance_work_mem = '{MEMORY}'"))
            .await?;
    }
    // One process: the memory that several share is small in many containers.
    conn.batch_execute("SET max_parallel_maintenance_workers = 0")
        .await?;
    let made = conn
        .batch_execute(&format!(
            "{MAKE}{set_id} ON context.chunks \
             USING hnsw (({}) halfvec_l2_ops) WHERE set_id = {set_id}",
            expression(dimensions)
        ))
        .await;
    conn.batch_execute("RESET statement_timeout; RESET maintenance_work_mem; RESET max_parallel_maintenance_workers").await?;
    made?;
    tracing::info!(
        set = set_id,
        seconds = started.elapsed().as_secs(),
        "The index of the vectors is made"
    );
    Ok(Kept::Made(about))
}

/// Entries with vectors of this set, counted as far as an index needs them.
async fn up_to_enough(conn: &mut AsyncPgConnection, set_id: i64) -> diesel::QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Counted {
        #[diesel(sql_type = BigInt)]
        count: i64,
    }
    let count = "SELECT count(*) AS count FROM (SELECT 1 FROM context.chunks WHERE set_id = ? AND position = 0 LIMIT ?) AS counted";
    let rows: Vec<Counted> = sql::query(
        conn,
        Fragment::prepared(count, vec![Bind::Int(set_id), Bind::Int(INDEXED_FROM)]),
    )
    .await?;
    Ok(rows.first().map_or(0, |row| row.count))
}
