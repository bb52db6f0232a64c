//! What became of requests with an idempotency key, for 24 hours.

use context_model::Timestamp;
use context_store::{Idempotency, OwnerId, Recorded, StoreError, Written};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Text};

use crate::connection::AsyncPgConnection;
use crate::failure::{Failure, unreadable};
use crate::read::Reading;
use crate::sql::{self, Bind, Fragment};

/// Old outcomes forgotten by one request, so that none pays for all.
const FORGOTTEN_AT_ONCE: i64 = 100;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Binary)]
    request_hash: Vec<u8>,
    #[diesel(sql_type = Text)]
    outcome: String,
    #[diesel(sql_type = BigInt)]
    revision: i64,
}

/// A key under which there may be an outcome.
pub(crate) struct IsRecorded {
    pub key: String,
    pub now: Timestamp,
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

async fn number(conn: &mut AsyncPgConnection, read: Fragment<'_>) -> Result<i64, Failure> {
    let rows: Vec<Number> = sql::query(conn, read).await?;
    Ok(rows.first().map_or(0, |row| row.number))
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
        let read = "SELECT count(*) AS number FROM context.idempotency WHERE owner_id = ? AND key = ? AND at > ?";
        let binds = vec![
            Bind::text(owner.as_str()),
            Bind::text(&self.key),
            Bind::Int(Idempotency::forgotten_up_to(self.now)),
        ];
        Ok(Some((
            0,
            number(conn, Fragment::prepared(read, binds)).await? > 0,
        )))
    }
}

/// The bytes of the owner's outcomes, to count.
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
        let read = "SELECT coalesce(sum(octet_length(key) + octet_length(outcome) + ?), 0)::bigint AS number \
                    FROM context.idempotency WHERE owner_id = ? AND at > ?";
        let forgotten = Bind::Int(Idempotency::forgotten_up_to(self.now));
        let binds = vec![
            Bind::Int(Idempotency::OVERHEAD_BYTES),
            Bind::text(owner.as_str()),
            forgotten,
        ];
        let bytes = number(conn, Fragment::prepared(read, binds)).await?;
        Ok(Some((0, u64::try_from(bytes).unwrap_or(0))))
    }
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
        Bind::Int(Idempotency::forgotten_up_to(now)),
    ];
    if sql::execute(conn, Fragment::prepared(claim, binds)).await? > 0 {
        forget(conn, owner, now).await?;
        return Ok(None);
    }
    let read = "SELECT request_hash, outcome, revision FROM context.idempotency WHERE owner_id = ? AND key = ?";
    let rows: Vec<Row> = sql::query(
        conn,
        Fragment::prepared(read, vec![Bind::text(owner.as_str()), Bind::text(&key.key)]),
    )
    .await?;
    // Forgotten by another request just now: this one comes too late by a day and a moment.
    let Some(Row {
        request_hash,
        outcome,
        revision,
    }) = rows.into_iter().next()
    else {
        return Err(Failure::Rejected(StoreError::Overloaded));
    };
    key.check(&request_hash)?;
    let record = serde_json::from_str(&outcome)
        .map_err(|e| Failure::Rejected(unreadable("idempotency record", Some(e))))?;
    let outcome = T::from_record(record).ok_or_else(Idempotency::reused)?;
    Ok(Some(Written { outcome, revision }))
}

/// Forgets some of the owner's old outcomes, and waits for nobody who does the same.
async fn forget(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    now: Timestamp,
) -> Result<(), Failure> {
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

/// Keeps the outcome under the key that was claimed.
pub(crate) async fn record<T: Recorded>(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    key: &Idempotency,
    written: &Written<T>,
) -> Result<(), Failure> {
    let outcome = serde_json::to_string(&written.outcome.to_record())
        .map_err(|e| Failure::Rejected(StoreError::Internal(e.into())))?;
    let keep =
        "UPDATE context.idempotency SET outcome = ?, revision = ? WHERE owner_id = ? AND key = ?";
    let binds = vec![
        Bind::text(outcome),
        Bind::Int(written.revision),
        Bind::text(owner.as_str()),
        Bind::text(&key.key),
    ];
    sql::execute(conn, Fragment::prepared(keep, binds)).await?;
    Ok(())
}
