//! The audit log: changes, operations on keys, and denials.

use context_model::Timestamp;
use context_store::{AuditLine, Denial, KeyEvent, Once, OwnerId};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::read::Reading;
use crate::schema::key_events;
use crate::transaction::{Transaction, Writing};

/// Records a denial.
pub(crate) struct Record(pub Denial);

impl Writing for Record {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        let Denial {
            at,
            key_id,
            operation,
            reason,
            attempts,
        } = &self.0;
        // Raw SQL for INSERT from SELECT: nothing is recorded for an owner that does not exist.
        let insert = "INSERT INTO context.denials (owner_id, at, key_id, operation, reason, attempts) \
                      SELECT o.owner_id, ?, ?, ?, ?, ? FROM context.owners AS o WHERE o.owner_id = ?";
        let binds = vec![
            Bind::Int(at.micros()),
            Bind::text(key_id),
            Bind::text(operation),
            Bind::text(reason),
            Bind::Int(*attempts),
            Bind::text(transaction.owner.as_str()),
        ];
        sql::execute(transaction.conn, Fragment::prepared(insert, binds)).await?;
        Ok(Once(()))
    }
}

pub(crate) async fn record_event(
    transaction: &mut Transaction<'_>,
    event: &KeyEvent,
) -> Result<(), Failure> {
    let KeyEvent {
        id,
        at,
        actor,
        operation,
        key_id,
    } = event;
    diesel::insert_into(key_events::table)
        .values((
            key_events::owner_id.eq(transaction.owner.as_str()),
            key_events::event_id.eq(id),
            key_events::at.eq(at.micros()),
            key_events::actor.eq(actor),
            key_events::operation.eq(operation),
            key_events::key_id.eq(key_id),
        ))
        .execute(transaction.conn)
        .await?;
    Ok(())
}

/// Reads audit lines from a time on, oldest first, without the first `skip`. The order is total but for equal lines.
pub(crate) struct Lines {
    pub from: Timestamp,
    pub skip: u32,
    pub limit: u32,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    at: i64,
    #[diesel(sql_type = Nullable<Text>)]
    key_id: Option<String>,
    #[diesel(sql_type = Text)]
    operation: String,
    #[diesel(sql_type = Nullable<Text>)]
    entity: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    entity_id: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    revision: Option<i64>,
    #[diesel(sql_type = Text)]
    outcome: String,
    #[diesel(sql_type = BigInt)]
    attempts: i64,
}

impl Reading for Lines {
    type Outcome = Vec<AuditLine>;

    fn empty(&self) -> Self::Outcome {
        Vec::new()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Self::Outcome)>, Failure> {
        // Raw SQL: diesel has no UNION in FROM.
        let select = "SELECT * FROM (SELECT at, key_id, operation, entity, entity_id, revision, 'OK' AS outcome, 1::bigint AS attempts \
                      FROM context.changes WHERE owner_id = ? AND at >= ? UNION ALL \
                      SELECT at, key_id, operation, entity, entity_id, revision, 'OK', 1 FROM context.audited_changes \
                      WHERE owner_id = ? AND at >= ? UNION ALL \
                      SELECT at, key_id, operation, NULL, NULL, NULL, reason, attempts FROM context.denials WHERE owner_id = ? AND at >= ? \
                      UNION ALL SELECT at, actor, operation, 'api_key', key_id, NULL, 'OK', 1 FROM context.key_events \
                      WHERE owner_id = ? AND at >= ?) AS lines ORDER BY at, revision NULLS FIRST, entity_id NULLS FIRST, \
                      operation, key_id NULLS FIRST, outcome, attempts LIMIT ? OFFSET ?";
        let (name, from) = (owner.as_str(), self.from.micros());
        let mut binds: Vec<Bind<'_>> = (0..4)
            .flat_map(|_| [Bind::text(name), Bind::Int(from)])
            .collect();
        binds.extend([Bind::Int(self.limit.into()), Bind::Int(self.skip.into())]);
        let rows: Vec<Row> = sql::query(conn, Fragment::prepared(select, binds)).await?;
        let line = |Row {
                        at,
                        key_id,
                        operation,
                        entity,
                        entity_id,
                        revision,
                        outcome,
                        attempts,
                    }| AuditLine {
            at: Timestamp(at),
            key_id,
            operation,
            entity,
            entity_id,
            revision,
            outcome,
            attempts,
        };
        Ok(Some((0, rows.into_iter().map(line).collect())))
    }
}

/// Removes at most 1000 lines of each kind from before this time, and returns their number. Several services may do so
/// at the same time: a service no longer finds a row that another one has removed.
pub(crate) async fn remove(
    conn: &mut AsyncPgConnection,
    before: Timestamp,
) -> Result<u64, Failure> {
    // Raw SQL for LATERAL and ctid. Changes have no index by time. If an owner's oldest change is from before the time,
    // the changes of the 1000 revisions from there on are tried. Unlike other tables, `audited_changes` has the
    // database's own collation. Its index serves only comparisons with that collation.
    let changes = "DELETE FROM context.audited_changes WHERE ctid = ANY (ARRAY(SELECT a.ctid FROM context.owners AS o CROSS JOIN LATERAL \
                   (SELECT f.revision, f.at FROM context.audited_changes AS f WHERE f.owner_id = o.owner_id COLLATE \"default\" \
                   ORDER BY f.revision LIMIT 1) AS c CROSS JOIN LATERAL \
                   (SELECT f.ctid, f.at FROM context.audited_changes AS f WHERE f.owner_id = o.owner_id COLLATE \"default\" \
                   AND f.revision < c.revision + 1000 LIMIT 1000) AS a WHERE c.at < ? AND a.at < ? LIMIT 1000))";
    let denials = "DELETE FROM context.denials WHERE ctid = ANY (ARRAY(SELECT d.ctid FROM context.owners AS o CROSS JOIN LATERAL \
                   (SELECT d.ctid FROM context.denials AS d WHERE d.owner_id = o.owner_id AND d.at < ? ORDER BY d.at LIMIT 1000) AS d \
                   LIMIT 1000))";
    let events = "DELETE FROM context.key_events WHERE ctid = ANY (ARRAY(SELECT e.ctid FROM context.owners AS o CROSS JOIN LATERAL \
                  (SELECT e.ctid FROM context.key_events AS e WHERE e.owner_id = o.owner_id AND e.at < ? ORDER BY e.at LIMIT 1000) AS e \
                  LIMIT 1000))";
    let time = || Bind::Int(before.micros());
    let mut removed = 0;
    for (statement, binds) in [
        (changes, vec![time(), time()]),
        (denials, vec![time()]),
        (events, vec![time()]),
    ] {
        removed += sql::execute(conn, Fragment::prepared(statement, binds)).await?;
    }
    Ok(removed as u64)
}
