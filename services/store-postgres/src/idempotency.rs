//! What became of requests with an idempotency key, for 24 hours.

use context_model::{Error, Reason, Timestamp, Violation};
use context_store::{ErrorByMessage, Idempotency, ItemOutcome, OwnerId, StoreError, StoredBatch, Written};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Text};
use diesel_async::AsyncPgConnection;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, unreadable};
use crate::sql::{self, Bind, Fragment};

/// How long an outcome is kept.
const KEPT_MICROS: i64 = 24 * 60 * 60 * 1_000_000;
/// Old outcomes forgotten by one request, so that none pays for all.
const FORGOTTEN_AT_ONCE: i64 = 100;

/// The outcome of a write as it is kept.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Record {
    Batch(Vec<RecordedItem>),
    Deleted(u64),
    /// Without any content, so that none survives the artifact.
    Artifact {
        id: String,
        version: i64,
    },
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

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Binary)]
    request_hash: Vec<u8>,
    #[diesel(sql_type = Text)]
    outcome: String,
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

/// Claims the key for this transaction, or gives what the first request with it gave. A request with the same key that
/// runs at the same moment waits here for the first one to commit.
///
/// # Errors
/// `IDEMPOTENCY_KEY_REUSED` when that request was another one.
pub(crate) async fn claim<T: Recorded>(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    key: &Idempotency,
    now: Timestamp,
) -> Result<Option<Written<T>>, Failure> {
    let claim = "INSERT INTO context.idempotency AS i (owner_id, key, request_hash, outcome, revision, at) VALUES (?, ?, ?, '', 0, ?) \
                 ON CONFLICT (owner_id, key) DO UPDATE SET request_hash = excluded.request_hash, outcome = '', revision = 0, \
                 at = excluded.at WHERE i.at <= ?";
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::text(&key.key),
        Bind::Bytes(&key.request_hash),
        Bind::Int(now.micros()),
        Bind::Int(oldest_kept(now)),
    ];
    if sql::execute(conn, Fragment::prepared(claim, binds)).await? > 0 {
        forget(conn, owner, now).await?;
        return Ok(None);
    }
    let read = "SELECT request_hash, outcome, revision FROM context.idempotency WHERE owner_id = ? AND key = ?";
    let rows: Vec<Row> = sql::query(conn, Fragment::prepared(read, vec![Bind::text(owner.as_str()), Bind::text(&key.key)])).await?;
    // Forgotten by another request just now: this one comes too late by a day and a moment.
    let Some(Row { request_hash, outcome, revision }) = rows.into_iter().next() else {
        return Err(Failure::Rejected(StoreError::Overloaded));
    };
    let reused = || {
        Error::new(
            Reason::IdempotencyKeyReused,
            "this idempotency key was used for another request within 24 hours; take a new key for a new request",
        )
    };
    if request_hash != key.request_hash {
        return Err(reused().into());
    }
    let record = serde_json::from_str(&outcome).map_err(|e| Failure::Rejected(unreadable("idempotency record", Some(e))))?;
    let outcome = T::from_record(record).ok_or_else(reused)?;
    Ok(Some(Written { outcome, revision }))
}

/// Forgets some of the owner's old outcomes, and waits for nobody who does the same.
async fn forget(conn: &mut AsyncPgConnection, owner: &OwnerId, now: Timestamp) -> Result<(), Failure> {
    let forget = "DELETE FROM context.idempotency WHERE owner_id = ? AND key IN (SELECT key FROM context.idempotency \
                  WHERE owner_id = ? AND at <= ? ORDER BY at LIMIT ? FOR UPDATE SKIP LOCKED)";
    let binds = vec![Bind::text(owner.as_str()), Bind::text(owner.as_str()), Bind::Int(oldest_kept(now)), Bind::Int(FORGOTTEN_AT_ONCE)];
    sql::execute(conn, Fragment::prepared(forget, binds)).await?;
    Ok(())
}

/// Keeps the outcome under the key that was claimed.
pub(crate) async fn record<T: Recorded>(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    key: &Idempotency,
    written: &Written<T>,
) -> Result<(), Failure> {
    let outcome = serde_json::to_string(&written.outcome.to_record()).map_err(|e| Failure::Rejected(StoreError::Internal(e.into())))?;
    let keep = "UPDATE context.idempotency SET outcome = ?, revision = ? WHERE owner_id = ? AND key = ?";
    let binds = vec![Bind::text(outcome), Bind::Int(written.revision), Bind::text(owner.as_str()), Bind::text(&key.key)];
    sql::execute(conn, Fragment::prepared(keep, binds)).await?;
    Ok(())
}
