//! The tables of vectors. They need pgvector, and are created at startup or when a model is selected.

use diesel::QueryableByName;
use diesel::sql_types::{Bool, Nullable, Text};
use diesel_async::SimpleAsyncConnection as _;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Fragment};

const CHUNKS: &str =
    include_str!("../../../../migrations/postgres/2026-11-21-000004_vectors/chunks.sql");
const CHUNK_TOKENS: &str =
    include_str!("../../../../migrations/postgres/2026-11-21-000007_chunk_tokens/chunk_tokens.sql");

/// The first version with `hnsw.iterative_scan`, with which a filtered search continues until it has enough results.
const MIN_PGVECTOR: (u32, u32) = (0, 8);

/// Creates the missing tables of vectors. The transaction must hold the lock of [`super::sets::lock`], so that two
/// services do not create them at the same time.
///
/// # Errors
/// Errors of the database. `Ok(Err(reason))` when pgvector is missing, too old, or in a schema outside the search_path.
pub(crate) async fn create(
    conn: &mut AsyncPgConnection,
) -> diesel::QueryResult<Result<(), String>> {
    #[derive(QueryableByName)]
    struct State {
        #[diesel(sql_type = Bool)]
        has_chunks: bool,
        #[diesel(sql_type = Bool)]
        has_tokens: bool,
        /// Whether the search_path has the schema of pgvector.
        #[diesel(sql_type = Bool)]
        visible: bool,
        #[diesel(sql_type = Nullable<Text>)]
        version: Option<String>,
    }
    let state = "SELECT to_regclass('context.chunks') IS NOT NULL AS has_chunks, to_regclass('context.chunk_tokens') IS NOT NULL AS has_tokens, \
                 to_regtype('vector') IS NOT NULL AS visible, \
                 (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector') AS version";
    let Some(state) = sql::query::<State>(conn, Fragment::prepared(state, Vec::new()))
        .await?
        .pop()
    else {
        return Err(diesel::result::Error::NotFound);
    };
    let State {
        has_chunks,
        has_tokens,
        visible,
        version,
    } = state;
    let Some(version) = version else {
        return Ok(Err(
            "the database has no pgvector; let a superuser run CREATE EXTENSION vector in it (Supabase: Database, Extensions, \
                       vector) and start the service again"
                .to_owned(),
        ));
    };
    if parts(&version) < MIN_PGVECTOR {
        return Ok(Err(format!(
            "the database has pgvector {version}, and 0.8 or newer is needed; update it and run ALTER EXTENSION vector UPDATE"
        )));
    }
    if !visible {
        return Ok(Err("pgvector is in a schema that this role does not search; add that schema to its search_path".to_owned()));
    }
    if !has_chunks {
        conn.batch_execute(CHUNKS).await?;
    }
    if !has_tokens {
        conn.batch_execute(CHUNK_TOKENS).await?;
    }
    Ok(Ok(()))
}

/// The first two numbers of a version.
fn parts(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(parts("0.7.4") < MIN_PGVECTOR);
        assert!(
            ["0.8.0", "0.10", "1.0"]
                .iter()
                .all(|version| parts(version) >= MIN_PGVECTOR)
        );
    }
}
