//! What became of requests with an idempotency key, for 24 hours.

use context_model::{Error, Reason, Timestamp, Violation};
use context_store::{ErrorByMessage, Idempotency, ItemOutcome, StoredBatch, Written};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, unreadable};
use crate::schema::idempotency;

/// How long an outcome is kept.
const KEPT_MICROS: i64 = 24 * 60 * 60 * 1_000_000;

/// The outcome of a write as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    Batch(Vec<RecordedItem>),
    Deleted(u64),
    Artifact { id: String, version: i64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum RecordedItem {
    Applied(ItemOutcome),
    Failed { reason: Reason, message: String, violations: Vec<Violation> },
}

/// An outcome that can be kept and given again.
pub(crate) trait Recorded: Sized {
    fn to_record(&self) -> Record;
    /// `None` when the record is of another operation's outcome.
    fn from_record(record: Record) -> Option<Self>;
}

impl Recorded for StoredBatch {
    fn to_record(&self) -> Record {
        Record::Batch(
            self.items
                .iter()
                .map(|item| match item {
                    Ok(outcome) => RecordedItem::Applied(outcome.clone()),
                    Err(error) => {
                        let Error { reason, message, violations, .. } = error.0.clone();
                        RecordedItem::Failed { reason, message, violations }
                    }
                })
                .collect(),
        )
    }

    fn from_record(record: Record) -> Option<Self> {
        let Record::Batch(items) = record else { return None };
        let items = items.into_iter().map(|item| match item {
            RecordedItem::Applied(outcome) => Ok(outcome),
            RecordedItem::Failed { reason, message, violations } => {
                let mut error = Error::new(reason, message);
                error.violations = violations;
                Err(Box::new(ErrorByMessage(error)))
            }
        });
        Some(Self { items: items.collect() })
    }
}

impl Recorded for u64 {
    fn to_record(&self) -> Record {
        Record::Deleted(*self)
    }

    fn from_record(record: Record) -> Option<Self> {
        match record {
            Record::Deleted(count) => Some(count),
            Record::Batch(_) | Record::Artifact { .. } => None,
        }
    }
}

fn oldest_kept(now: Timestamp) -> i64 {
    now.micros().saturating_sub(KEPT_MICROS)
}

/// What the first request with this key gave.
///
/// # Errors
/// `IDEMPOTENCY_KEY_REUSED` when that request was another one.
pub(crate) fn find<T: Recorded>(
    conn: &mut SqliteConnection,
    owner: i64,
    key: &Idempotency,
    now: Timestamp,
) -> Result<Option<Written<T>>, Failure> {
    let found: Option<(Vec<u8>, String, i64)> = idempotency::table
        .find((owner, &key.key))
        .filter(idempotency::at.gt(oldest_kept(now)))
        .select((idempotency::request_hash, idempotency::outcome, idempotency::revision))
        .get_result(conn)
        .optional()?;
    let Some((hash, outcome, revision)) = found else { return Ok(None) };
    let reused = || {
        Error::new(
            Reason::IdempotencyKeyReused,
            "this idempotency key was used for another request within 24 hours; take a new key for a new request",
        )
    };
    if hash != key.request_hash {
        return Err(reused().into());
    }
    let record = serde_json::from_str(&outcome).map_err(|e| Failure::Rejected(unreadable("idempotency record", Some(e))))?;
    let outcome = T::from_record(record).ok_or_else(reused)?;
    Ok(Some(Written { outcome, revision }))
}

/// Keeps the outcome, and forgets the owner's old ones.
pub(crate) fn record<T: Recorded>(
    conn: &mut SqliteConnection,
    owner: i64,
    key: &Idempotency,
    now: Timestamp,
    written: &Written<T>,
) -> Result<(), Failure> {
    let old = idempotency::table.filter(idempotency::owner.eq(owner)).filter(idempotency::at.le(oldest_kept(now)));
    diesel::delete(old).execute(conn)?;
    let outcome = serde_json::to_string(&written.outcome.to_record())
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
