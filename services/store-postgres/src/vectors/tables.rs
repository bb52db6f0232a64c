//! Whether this database keeps vectors.

use std::sync::atomic::{AtomicBool, Ordering};

use diesel::QueryableByName;
use diesel::sql_types::{Bool, Nullable, Text};
use diesel_async::SimpleAsyncConnection as _;

use super::asked::Asked;
use super::estimates::Estimates;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Fragment};

const CHUNKS: &str =
    include_str!("../../../../migrations/postgres/2026-11-21-000004_vectors/chunks.sql");
const CHUNK_TOKENS: &str =
    include_str!("../../../../migrations/postgres/2026-11-21-000007_chunk_tokens/chunk_tokens.sql");

/// Since this version a filtered search goes on until it has enough.
const LEAST_PGVECTOR: (u32, u32) = (0, 8);

/// What a service knows of its database's vectors.
#[derive(Debug)]
pub(crate) struct Vectors {
    there: AtomicBool,
    /// What was asked of them last.
    pub asked: Asked,
    /// What filters were expected to leave.
    pub estimates: Estimates,
    /// Who this service is among those that embed what waits.
    pub holder: String,
}

impl Vectors {
    pub fn new(there: bool) -> Self {
        Self {
            there: AtomicBool::new(there),
            asked: Asked::default(),
            estimates: Estimates::default(),
            holder: holder(),
        }
    }

    /// Whether there is a table to write them to.
    pub fn are_there(&self) -> bool {
        self.there.load(Ordering::Relaxed)
    }

    /// Notes that there is one now.
    pub fn found(&self) {
        self.there.store(true, Ordering::Relaxed);
    }
}

/// A name that no other service has: where this process runs, and when it opened the database.
fn holder() -> String {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let place: u64 =
        std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), since);
    format!("{}-{since:x}-{place:x}", std::process::id())
}

/// Makes the tables of vectors, unless they are there or cannot be. To be called inside a transaction that keeps others from
/// doing the same.
///
/// # Errors
/// The database's; `Ok(Err(reason))` when pgvector is missing or too old.
pub(crate) async fn make(conn: &mut AsyncPgConnection) -> diesel::QueryResult<Result<(), String>> {
    #[derive(QueryableByName)]
    struct State {
        #[diesel(sql_type = Bool)]
        made: bool,
        #[diesel(sql_type = Bool)]
        with_tokens: bool,
        #[diesel(sql_type = Bool)]
        visible: bool,
        #[diesel(sql_type = Nullable<Text>)]
        version: Option<String>,
    }
    let state = "SELECT to_regclass('context.chunks') IS NOT NULL AS made, to_regclass('context.chunk_tokens') IS NOT NULL AS with_tokens, \
                 to_regtype('vector') IS NOT NULL AS visible, \
                 (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'vector') AS version";
    let Some(state) = sql::query::<State>(conn, Fragment::prepared(state, Vec::new()))
        .await?
        .pop()
    else {
        return Err(diesel::result::Error::NotFound);
    };
    let State {
        made,
        with_tokens,
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
    if parts(&version) < LEAST_PGVECTOR {
        return Ok(Err(format!(
            "the database has pgvector {version}, and 0.8 or newer is needed; update it and run ALTER EXTENSION vector UPDATE"
        )));
    }
    if !visible {
        return Ok(Err("pgvector is in a schema that this role does not search; add that schema to its search_path".to_owned()));
    }
    if !made {
        conn.batch_execute(CHUNKS).await?;
    }
    if !with_tokens {
        conn.batch_execute(CHUNK_TOKENS).await?;
    }
    Ok(Ok(()))
}

fn parts(version: &str) -> (u32, u32) {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(parts("0.7.4") < LEAST_PGVECTOR);
        assert!(
            ["0.8.0", "0.10", "1.0"]
                .iter()
                .all(|version| parts(version) >= LEAST_PGVECTOR)
        );
    }

    #[test]
    fn two_stores_of_a_process_are_two_holders() {
        assert_ne!(holder(), holder());
    }
}
