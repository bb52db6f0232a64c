//! The outcomes of requests with an idempotency key, stored for 24 hours.

use context_model::Timestamp;
use context_store::{Idempotency, Recorded, Written, unreadable};
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use crate::failure::Failure;
use crate::schema::idempotency;
use crate::sql::{self, Bind, Fragment};

/// The outcome of the first request with this key.
///
/// # Errors
/// `IDEMPOTENCY_KEY_REUSED` when that was a different request.
pub(crate) fn find<T: Recorded>(
    conn: &mut SqliteConnection,
    owner: i64,
    key: &Idempotency,
    now: Timestamp,
) -> Result<Option<Written<T>>, Failure> {
    let found: Option<(Vec<u8>, String, i64)> = idempotency::table
        .find((owner, &key.key))
        .filter(idempotency::at.gt(Idempotency::forgotten_up_to(now)))
        .select((
            idempotency::request_hash,
            idempotency::outcome,
            idempotency::revision,
        ))
        .get_result(conn)
        .optional()?;
    let Some((hash, outcome, revision)) = found else {
        return Ok(None);
    };
    key.check(&hash)?;
    let record = serde_json::from_str(&outcome)
        .map_err(|e| Failure::Rejected(unreadable("idempotency record", Some(e))))?;
    let outcome = T::from_record(record).ok_or_else(Idempotency::reused)?;
    Ok(Some(Written { outcome, revision }))
}

/// Whether an outcome is stored under this key.
pub(crate) fn is_recorded(
    conn: &mut SqliteConnection,
    owner: i64,
    key: &str,
    now: Timestamp,
) -> QueryResult<bool> {
    let found = idempotency::table
        .find((owner, key))
        .filter(idempotency::at.gt(Idempotency::forgotten_up_to(now)));
    diesel::select(diesel::dsl::exists(found)).get_result(conn)
}

/// Size of the owner's stored outcomes in bytes.
pub(crate) fn bytes(conn: &mut SqliteConnection, owner: i64, now: Timestamp) -> QueryResult<i64> {
    #[derive(QueryableByName)]
    struct Sum {
        #[diesel(sql_type = BigInt)]
        bytes: i64,
    }
    let mut sum = Fragment::new("SELECT coalesce(sum(octet_length(key) + octet_length(outcome) + ");
    sum.bind(Bind::Int(Idempotency::OVERHEAD_BYTES))
        .push("), 0) AS bytes FROM idempotency WHERE owner = ")
        .bind(Bind::Int(owner));
    sum.push(" AND at > ")
        .bind(Bind::Int(Idempotency::forgotten_up_to(now)));
    Ok(sql::query::<Sum>(conn, &sum)?
        .pop()
        .map_or(0, |sum| sum.bytes))
}

/// Stores the outcome and deletes the owner's expired ones.
pub(crate) fn record<T: Recorded>(
    conn: &mut SqliteConnection,
    owner: i64,
    key: &Idempotency,
    now: Timestamp,
    written: &Written<T>,
) -> Result<(), Failure> {
    let old = idempotency::table
        .filter(idempotency::owner.eq(owner))
        .filter(idempotency::at.le(Idempotency::forgotten_up_to(now)));
    diesel::delete(old).execute(conn)?;
    let outcome = serde_json::to_string(&key.record(&written.outcome))
        .map_err(|e| Failure::Rejected(context_store::StoreError::Internal(e.into())))?;
    diesel::insert_into(idempotency::table)
        .values((
            idempotency::owner.eq(owner),
            idempotency::key.eq(&key.key),
            idempotency::request_hash.eq(&key.request_hash[..]),
            idempotency::outcome.eq(outcome),
            idempotency::revision.eq(written.revision),
            idempotency::at.eq(now.micros()),
        ))
        .execute(conn)?;
    Ok(())
}
