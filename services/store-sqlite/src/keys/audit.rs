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

/// Lines from a given time on, oldest first.
pub(crate) fn lines(
    conn: &mut SqliteConnection,
    owner: i64,
    from: Timestamp,
    limit: u32,
) -> QueryResult<Vec<AuditLine>> {
    let mut select = Fragment::new(
        "SELECT * FROM (SELECT at, key_id, operation, entity, entity_id, revision, 'OK' AS outcome, 1 AS attempts FROM changes \
         WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(" UNION ALL SELECT at, key_id, operation, entity, entity_id, revision, 'OK', 1 FROM audited_changes WHERE owner = ");
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(" UNION ALL SELECT at, key_id, operation, NULL, NULL, NULL, reason, attempts FROM denials WHERE owner = ");
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select.push(" UNION ALL SELECT at, actor, operation, 'api_key', key_id, NULL, 'OK', 1 FROM key_events WHERE owner = ");
    select
        .bind(Bind::Int(owner))
        .push(" AND at >= ")
        .bind(Bind::Int(from.micros()));
    select
        .push(") ORDER BY at, revision, entity_id LIMIT ")
        .bind(Bind::Int(limit.into()));
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
