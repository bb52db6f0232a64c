//! The audit log: changes, operations on keys, and denials.

use context_model::Timestamp;
use context_store::{AuditLine, Denial, KeyEvent, Once, OwnerId};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::RunQueryDsl;

use super::erase;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
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
        // An erase that has already deleted the denials would not see this one.
        erase::lock_owner(transaction.conn, transaction.owner).await?;
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

/// Maximum number of lines that one statement removes.
const BATCH: i64 = 1000;

/// Maximum number of owners that one statement finds.
const OWNERS: i64 = 100;

#[derive(QueryableByName)]
struct Found {
    #[diesel(sql_type = Text)]
    owner_id: String,
}

/// Removes a batch of lines from before this time. Returns their number, which is 0 when no owner has such a line.
/// Several services may do so at the same time: a service no longer finds a row that another one has removed.
pub(crate) async fn remove(
    conn: &mut AsyncPgConnection,
    before: Timestamp,
) -> Result<u64, Failure> {
    let mut removed = 0;
    for (table, order) in [
        // Without an index by time. Later revisions have later times, as far as the clocks of the services agree.
        ("audited_changes", "revision"),
        ("denials", "at"),
        ("key_events", "at"),
    ] {
        removed += remove_from(conn, table, order, before).await?;
    }
    Ok(removed)
}

/// Removes a batch of lines of this table. `order` is the column that sorts the lines of an owner, oldest first.
async fn remove_from(
    conn: &mut AsyncPgConnection,
    table: &'static str,
    order: &'static str,
    before: Timestamp,
) -> Result<u64, Failure> {
    // Raw SQL for LATERAL and the table's name: the oldest line of each owner.
    let find = fragment!(
        "SELECT o.owner_id FROM context.owners AS o CROSS JOIN LATERAL \
         (SELECT l.at FROM context.{table} AS l WHERE l.owner_id = o.owner_id ORDER BY l.{order} LIMIT 1) AS l \
         WHERE l.at < ? LIMIT ?",
        Fragment::new(table),
        Fragment::new(order),
        Bind::Int(before.micros()),
        Bind::Int(OWNERS),
    );
    let owners: Vec<Found> = sql::query(conn, find).await?;
    let mut removed = 0;
    for Found { owner_id } in owners {
        if removed >= BATCH as usize {
            break;
        }
        // Raw SQL for ctid, because denials have no key.
        let delete = fragment!(
            "DELETE FROM context.{table} WHERE owner_id = ? AND at < ? AND ctid = ANY (ARRAY(SELECT l.ctid \
             FROM context.{table} AS l WHERE l.owner_id = ? ORDER BY l.{order} LIMIT ?))",
            Fragment::new(table),
            Bind::text(&owner_id),
            Bind::Int(before.micros()),
            Fragment::new(table),
            Bind::text(&owner_id),
            Fragment::new(order),
            Bind::Int(BATCH),
        );
        removed += sql::execute(conn, delete).await?;
    }
    Ok(removed as u64)
}
