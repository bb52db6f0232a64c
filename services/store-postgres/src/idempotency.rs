//! Outcomes of requests with an idempotency key. They are stored for 24 hours.

use context_model::Timestamp;
use context_store::{Idempotency, OwnerId, Recorded, StoreError, Written, unreadable};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::Reading;
use crate::schema::idempotency;

/// Maximum number of old outcomes that one request deletes, so that no request pays for all.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// Reads whether an outcome is stored under a key.
pub(crate) struct IsRecorded {
    pub key: String,
    pub now: Timestamp,
}

impl Reading for IsRecorded {
    type Outcome = bool;

    fn empty(&self) -> bool {
        false
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, bool)>, Failure> {
        let found: i64 = idempotency::table
            .find((owner.as_str(), &self.key))
            .filter(idempotency::at.gt(Idempotency::forgotten_up_to(self.now)))
            .count()
            .get_result(conn)
            .await?;
        Ok(Some((0, found > 0)))
    }
}

/// Reads the bytes of the owner's outcomes, for statistics.
pub(crate) struct CountBytes {
    pub now: Timestamp,
}

impl Reading for CountBytes {
    type Outcome = u64;

    fn empty(&self) -> u64 {
        0
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, u64)>, Failure> {
        // Raw SQL: diesel types a sum of integers as numeric, so it needs a cast.
        let read = "SELECT coalesce(sum(octet_length(key) + octet_length(outcome) + ?), 0)::bigint \
                    FROM context.idempotency WHERE owner_id = ? AND at > ?";
        let forgotten = Bind::Int(Idempotency::forgotten_up_to(self.now));
        let binds = vec![
            Bind::Int(Idempotency::OVERHEAD_BYTES),
            Bind::text(owner.as_str()),
            forgotten,
        ];
        let bytes = sql::number(conn, Fragment::prepared(read, binds)).await?;
        Ok(Some((0, u64::try_from(bytes).unwrap_or(0))))
    }
}

/// Claims the key for this transaction and returns `None`, or returns the outcome of the first request with this key. A
/// concurrent request with the same key waits here until the transaction of the first one ends.
///
/// # Errors
/// `IDEMPOTENCY_KEY_REUSED` when the first request was a different one. `OVERLOADED` when its outcome has expired and
/// another request has just deleted it.
pub(crate) async fn claim<T: Recorded>(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    key: &Idempotency,
    now: Timestamp,
) -> Result<Option<Written<T>>, Failure> {
    let without_outcome = (
        idempotency::request_hash.eq(&key.request_hash[..]),
        idempotency::outcome.eq(""),
        idempotency::revision.eq(0),
        idempotency::at.eq(now.micros()),
    );
    let claim = diesel::insert_into(idempotency::table)
        .values((
            idempotency::owner_id.eq(owner.as_str()),
            idempotency::key.eq(&key.key),
            without_outcome,
        ))
        .on_conflict((idempotency::owner_id, idempotency::key))
        .do_update()
        .set(without_outcome);
    let claim = diesel::query_dsl::methods::FilterDsl::filter(
        claim,
        idempotency::at.le(Idempotency::forgotten_up_to(now)),
    );
    if fixed!(claim).execute(conn).await? > 0 {
        forget(conn, owner, now).await?;
        return Ok(None);
    }
    let found: Option<(Vec<u8>, String, i64)> = idempotency::table
        .find((owner.as_str(), &key.key))
        .select((
            idempotency::request_hash,
            idempotency::outcome,
            idempotency::revision,
        ))
        .get_result(conn)
        .await
        .optional()?;
    // Another request has just deleted the outcome, because it is older than 24 hours.
    let Some((request_hash, outcome, revision)) = found else {
        return Err(Failure::Rejected(StoreError::Overloaded));
    };
    key.check(&request_hash)?;
    let record = serde_json::from_str(&outcome)
        .map_err(|e| Failure::Rejected(unreadable("idempotency record", Some(e))))?;
    let outcome = T::from_record(record).ok_or_else(Idempotency::reused)?;
    Ok(Some(Written { outcome, revision }))
}

/// Deletes some of the owner's old outcomes, and skips those that another request is deleting.
async fn forget(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    now: Timestamp,
) -> Result<(), Failure> {
    // Raw SQL: diesel has no SKIP LOCKED in a subquery.
    let forget = "DELETE FROM context.idempotency WHERE owner_id = ? AND key IN (SELECT key FROM context.idempotency \
                  WHERE owner_id = ? AND at <= ? ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED)";
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::text(owner.as_str()),
        Bind::Int(Idempotency::forgotten_up_to(now)),
        Bind::Int(FORGOTTEN_AT_ONCE),
    ];
    sql::execute(conn, Fragment::prepared(forget, binds)).await?;
    Ok(())
}

/// Stores the outcome under the claimed key.
pub(crate) async fn record<T: Recorded>(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    key: &Idempotency,
    written: &Written<T>,
) -> Result<(), Failure> {
    let outcome = serde_json::to_string(&key.record(&written.outcome))
        .map_err(|e| Failure::Rejected(StoreError::Internal(e.into())))?;
    let record = diesel::update(idempotency::table.find((owner.as_str(), &key.key))).set((
        idempotency::outcome.eq(outcome),
        idempotency::revision.eq(written.revision),
    ));
    fixed!(record).execute(conn).await?;
    Ok(())
}
