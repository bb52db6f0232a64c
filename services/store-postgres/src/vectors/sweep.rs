//! Deletes expired claims, retired sets after an hour, and discarded sets.

use context_store::Once;
use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::SimpleAsyncConnection as _;

use super::{index, sets};
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

/// How long a retired set remains, so that services can be restarted one by one with the new model.
const RETIRED_MICROS: i64 = 3_600_000_000;
/// Maximum number of chunks deleted in one transaction.
const CHUNKS_AT_ONCE: i64 = 20_000;

/// Deletes expired claims, and takes one step in the deletion of one set. Returns false when no set is due. Otherwise
/// it must run again.
pub(super) struct Sweep;

impl Writing for Sweep {
    type Outcome = Once<bool>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        #[derive(QueryableByName)]
        struct Due {
            #[diesel(sql_type = BigInt)]
            set_id: i64,
        }
        let conn = &mut *transaction.conn;
        // now() is the time of the transaction. With Citus, a statement that runs on many servers may not call
        // clock_timestamp().
        let claims = "DELETE FROM context.embedding_claims WHERE until <= (extract(epoch FROM now()) * 1000000)::bigint";
        sql::execute(conn, Fragment::prepared(claims, Vec::new())).await?;
        // When two services select the same row, one locks it and the other skips it.
        let due = "SELECT set_id FROM context.embedding_sets WHERE state = 'discarded' OR (state = 'retired' AND \
                   since + ? <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ORDER BY set_id LIMIT 1 FOR UPDATE SKIP LOCKED";
        let due = Fragment::prepared(due, vec![Bind::Int(RETIRED_MICROS)]);
        let Some(Due { set_id }) = sql::query(conn, due).await?.pop() else {
            return Ok(Once(false));
        };
        if sets::discard_retired(conn, set_id).await? {
            // This transaction commits before any chunk is deleted. A search would otherwise find part of the set.
            return Ok(Once(true));
        }
        let chunks = "DELETE FROM context.chunks WHERE (owner_id, id, set_id, position) IN (SELECT c.owner_id, c.id, c.set_id, c.position \
                      FROM context.chunks AS c WHERE c.set_id = ? LIMIT ?)";
        let binds = vec![Bind::Int(set_id), Bind::Int(CHUNKS_AT_ONCE)];
        if sql::execute(conn, Fragment::prepared(chunks, binds)).await? == 0 {
            // DROP INDEX waits for every transaction that uses the table, such as a backup, and later searches and writes
            // wait behind it. After two seconds it fails, and the next maintenance tries again. An autovacuum gives way
            // after one second (`deadlock_timeout`).
            conn.batch_execute(&format!(
                "SET LOCAL lock_timeout = '2s'; DROP INDEX IF EXISTS {}{set_id}",
                index::PREFIX
            ))
            .await?;
            sets::delete(conn, set_id).await?;
        }
        Ok(Once(true))
    }
}
