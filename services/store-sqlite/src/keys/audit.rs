//! The audit log: changes, actions on keys, and rejected requests.

use context_model::Timestamp;
use context_store::{AuditLine, Denial, KeyEvent};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

use crate::failure::Failure;
use crate::schema::{denials, key_events};
use crate::sql::{self, Bind, Fragment};

pub(crate) fn record(
    conn: &mut SqliteConnection,
    owner: i64,
    denial: &Denial,
) -> Result<(), Failure> {
    let Denial {
        at,
        key_id,
        operation,
        reason,
        attempts,
    } = denial;
    diesel::insert_into(denials::table)
        .values((
            denials::owner.eq(owner),
            denials::at.eq(at.micros()),
            denials::key_id.eq(key_id),
            denials::operation.eq(operation),
            denials::reason.eq(reason),
            denials::attempts.eq(attempts),
        ))
        .execute(conn)?;
    Ok(())
}

pub(crate) fn record_event(
    conn: &mut SqliteConnection,
    owner: i64,
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
            key_events::owner.eq(owner),
            key_events::event_id.eq(id),
            key_events::at.eq(at.micros()),
            key_events::actor.eq(actor),
            key_events::operation.eq(operation),
            key_events::key_id.eq(key_id),
        ))
        .execute(conn)?;
    Ok(())
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

/// Lines from a given time on, oldest first, without the first `skip`. The order is total but for equal lines.
pub(crate) fn lines(
    conn: &mut SqliteConnection,
    owner: i64,
    from: Timestamp,
    skip: u32,
    limit: u32,
) -> QueryResult<Vec<AuditLine>> {
    let mut select = Fragment::new(
        "SELECT * FROM (\
         SELECT at, key_id, operation, entity, entity_id, revision, 'OK' AS outcome, 1 AS attempts \
         FROM changes WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(
        " UNION ALL \
         SELECT at, key_id, operation, entity, entity_id, revision, 'OK', 1 \
         FROM audited_changes WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(
        " UNION ALL \
         SELECT at, key_id, operation, NULL, NULL, NULL, reason, attempts \
         FROM denials WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(
        " UNION ALL \
         SELECT at, actor, operation, 'api_key', key_id, NULL, 'OK', 1 \
         FROM key_events WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select
        .push(") ORDER BY at, revision, entity_id, operation, key_id, outcome, attempts LIMIT ")
        .bind(Bind::Int(limit.into()))
        .push(" OFFSET ")
        .bind(Bind::Int(skip.into()));
    let rows: Vec<Row> = sql::query(conn, &select)?;
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
    Ok(rows.into_iter().map(line).collect())
}

/// Removes at most 1000 lines of each kind from before this time. Changes that are still in the feed stay.
pub(crate) fn remove(conn: &mut SqliteConnection, before: Timestamp) -> Result<u64, Failure> {
    // Raw SQL for LIMIT in a subquery and a join that begins with the owners. Changes have no index by time: if an
    // owner's oldest change is due, the 1000 revisions from it on are checked.
    let kinds = [
        "DELETE FROM audited_changes WHERE (owner, revision) IN (\
         SELECT a.owner, a.revision FROM owners o \
         CROSS JOIN audited_changes f ON f.owner = o.owner AND f.revision = \
             (SELECT min(m.revision) FROM audited_changes m WHERE m.owner = o.owner) \
         CROSS JOIN audited_changes a ON a.owner = o.owner AND a.revision < f.revision + 1000 \
         WHERE f.at < ?1 AND a.at < ?1 LIMIT 1000)",
        "DELETE FROM denials WHERE rowid IN (\
         SELECT d.rowid FROM owners o \
         CROSS JOIN denials d ON d.owner = o.owner \
         WHERE d.at < ? LIMIT 1000)",
        "DELETE FROM key_events WHERE (owner, event_id) IN (\
         SELECT e.owner, e.event_id FROM owners o \
         CROSS JOIN key_events e ON e.owner = o.owner \
         WHERE e.at < ? LIMIT 1000)",
    ];
    let mut removed = 0;
    for statement in kinds {
        removed += diesel::sql_query(statement)
            .bind::<BigInt, _>(before.micros())
            .execute(conn)?;
    }
    Ok(removed as u64)
}
