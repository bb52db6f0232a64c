//! The HNSW index of a set of vectors. It is built when the set is large. Before that, comparing all vectors is equally
//! fast, and a write takes a fifth of the time that it takes with the index.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long an index build takes"
)]

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Bool};
use diesel_async::SimpleAsyncConnection as _;

use crate::open;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Bind, Fragment};

/// Number of vectors from which a set gets an index. It is compared with an approximation: the size of the table
/// divided by the size of a row or, with Citus, the number of entries with vectors.
const INDEXED_FROM: i64 = 10_000;
/// pgvector's limit for an HNSW index over halfvec.
pub(super) const MAX_INDEXED_DIMENSIONS: u32 = 4_000;
/// `maintenance_work_mem` of a build if the server's setting is lower. Building a graph that does not fit into it takes
/// many times longer.
const BUILD_MEMORY: &str = "512MB";

/// The prefix of an index's name. The set's number follows.
pub(super) const PREFIX: &str = "context.chunks_near_";

/// The start of the statement that builds an index. If Citus distributes the vectors over servers, the coordinator does
/// not report the progress of a build, so a running build is recognised by the start of its statement.
const CREATE: &str = "CREATE INDEX CONCURRENTLY IF NOT EXISTS chunks_near_";

/// The indexed expression, as searches must write it.
pub(super) fn expression(dimensions: u32) -> String {
    format!("embedding::halfvec({dimensions})")
}

/// The state that decides whether an index must be built.
#[derive(QueryableByName)]
struct State {
    /// Whether the index exists, even if its build was interrupted.
    #[diesel(sql_type = Bool)]
    exists: bool,
    /// Whether searches can use it.
    #[diesel(sql_type = Bool)]
    valid: bool,
    /// Whether any index of `chunks` is being built.
    #[diesel(sql_type = Bool)]
    is_being_built: bool,
    /// The size of `chunks`.
    #[diesel(sql_type = BigInt)]
    bytes: i64,
    /// Whether `maintenance_work_mem` is at least [`BUILD_MEMORY`].
    #[diesel(sql_type = Bool)]
    has_memory: bool,
}

/// What happened to the settings of a connection's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    Unchanged,
    /// The connection must be closed, because its session has lost its parameters.
    Changed,
}

/// Builds the index of a set that is large enough and has none, concurrently with writes and searches. This may take
/// minutes, during which it holds the connection. Does nothing while any index of `chunks` is being built.
pub(super) async fn build_if_due(
    conn: &mut AsyncPgConnection,
    set_id: i64,
    dimensions: u32,
) -> diesel::QueryResult<Session> {
    if dimensions > MAX_INDEXED_DIMENSIONS {
        return Ok(Session::Unchanged);
    }
    let name = format!("{PREFIX}{set_id}");
    let Some(State {
        exists,
        valid,
        is_being_built,
        bytes,
        has_memory,
    }) = state(conn, &name).await?
    else {
        return Ok(Session::Unchanged);
    };
    if valid || is_being_built {
        return Ok(Session::Unchanged);
    }
    let approximate = if open::is_distributed(conn, "context.chunks").await? {
        count_up_to_due(conn, set_id).await?
    } else {
        // The table has the vectors of all sets, so during a change of the model this counts both models. A row takes
        // about 4 bytes for each dimension and 100 bytes for the rest.
        bytes / (i64::from(dimensions) * 4 + 100)
    };
    if approximate < INDEXED_FROM {
        return Ok(Session::Unchanged);
    }
    tracing::info!(
        set = set_id,
        vectors = approximate,
        "Building the HNSW index"
    );
    let started = std::time::Instant::now();
    // The timeout is for requests, whose statements take milliseconds. A build takes minutes, and DROP INDEX
    // CONCURRENTLY waits for all transactions that use the table. Neither can run in a transaction, so the settings are
    // those of the session. The statements are pipelined, because a pooler in transaction mode runs them on one server
    // connection until the last one has its response. That one leaves none of these settings to other clients.
    let memory = match has_memory {
        true => String::new(),
        false => format!("; SET maintenance_work_mem = '{BUILD_MEMORY}'"),
    };
    // One process, because many containers have too little shared memory for several.
    conn.send_batch(format!(
        "SET statement_timeout = 0; SET max_parallel_maintenance_workers = 0{memory}"
    ))
    .await;
    if exists {
        // An interrupted build leaves an invalid index.
        conn.send_batch(format!("DROP INDEX CONCURRENTLY IF EXISTS {name}"))
            .await;
    }
    conn.send_batch(format!(
        "{CREATE}{set_id} ON context.chunks USING hnsw (({}) halfvec_l2_ops) WHERE set_id = {set_id}",
        expression(dimensions)
    ))
    .await;
    conn.batch_execute(
        "RESET statement_timeout; RESET max_parallel_maintenance_workers; RESET maintenance_work_mem",
    )
    .await?;
    tracing::info!(
        set = set_id,
        seconds = started.elapsed().as_secs(),
        "Built the HNSW index"
    );
    Ok(Session::Changed)
}

async fn state(conn: &mut AsyncPgConnection, name: &str) -> diesel::QueryResult<Option<State>> {
    let state = "SELECT to_regclass(?) IS NOT NULL AS exists, \
                 coalesce((SELECT i.indisvalid FROM pg_catalog.pg_index AS i WHERE i.indexrelid = to_regclass(?)), false) AS valid, \
                 EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_create_index AS p WHERE p.datname = current_database() \
                 AND p.relid = 'context.chunks'::regclass) \
                 OR EXISTS (SELECT 1 FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database() AND a.state = 'active' \
                 AND starts_with(a.query, ?)) AS is_being_built, pg_table_size('context.chunks') AS bytes, \
                 pg_size_bytes(current_setting('maintenance_work_mem')) >= pg_size_bytes(?) AS has_memory";
    let binds = vec![
        Bind::text(name),
        Bind::text(name),
        Bind::text(CREATE),
        Bind::text(BUILD_MEMORY),
    ];
    Ok(sql::query(conn, Fragment::prepared(state, binds))
        .await?
        .pop())
}

/// Counts the entries with vectors of this set, up to the number that an index requires. An entry may have several
/// vectors, so the count is too low. The size of the coordinator's own table does not reflect the size of the
/// distributed table.
async fn count_up_to_due(conn: &mut AsyncPgConnection, set_id: i64) -> diesel::QueryResult<i64> {
    let count = "SELECT count(*) FROM (SELECT 1 FROM context.chunks WHERE set_id = ? AND position = 0 LIMIT ?) AS counted";
    let binds = vec![Bind::Int(set_id), Bind::Int(INDEXED_FROM)];
    sql::number(conn, Fragment::prepared(count, binds)).await
}
