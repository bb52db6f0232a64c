//! Moving to another model: its vectors are gathered in a set of their own, beside the set in use, which changes in one
//! transaction when they are all there. The set before stays for a while, for services that still embed with its model.

use context_store::{EmbeddingModel, MoveState, Moved, Once};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel_async::SimpleAsyncConnection as _;

use super::use_model::{current, holds_any, lock, make, of_state};
use super::{index, tables};
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

/// The beginning of a move, or its going on.
pub(super) struct Begin(pub EmbeddingModel);

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

async fn count(transaction: &mut Transaction<'_>, select: Fragment<'_>) -> Result<i64, Failure> {
    Ok(sql::query::<Count>(transaction.conn, select)
        .await?
        .first()
        .map_or(0, |row| row.count))
}

impl Writing for Begin {
    type Outcome = Once<MoveState>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Self(model) = self;
        lock(transaction.conn).await?;
        if let Err(reason) = tables::make(transaction.conn).await? {
            return Ok(Once(MoveState::Impossible(reason)));
        }
        match current(transaction.conn).await? {
            Some((_, kept)) if kept == *model => return Ok(Once(MoveState::Done)),
            Some((set_id, _)) if holds_any(transaction.conn, set_id).await? => {}
            Some((set_id, _)) => {
                // Nothing answers from a set without vectors.
                let delete = "DELETE FROM context.embedding_sets WHERE set_id = ?";
                sql::execute(
                    transaction.conn,
                    Fragment::prepared(delete, vec![Bind::Int(set_id)]),
                )
                .await?;
            }
            None => {}
        }
        let set_id = match of_state(transaction.conn, "building").await? {
            Some((set_id, begun)) if begun == *model => set_id,
            _ => {
                let discard = "UPDATE context.embedding_sets SET state = 'discarded', model = model || ' discarded ' || set_id \
                               WHERE state = 'building'";
                sql::execute(transaction.conn, Fragment::prepared(discard, Vec::new())).await?;
                make(transaction.conn, model, "building").await?;
                match of_state(transaction.conn, "building").await? {
                    Some((set_id, _)) => set_id,
                    None => return Err(diesel::result::Error::NotFound.into()),
                }
            }
        };
        let embedded =
            "SELECT count(*) AS count FROM context.chunks WHERE set_id = ? AND position = 0";
        let embedded = count(
            transaction,
            Fragment::prepared(embedded, vec![Bind::Int(set_id)]),
        )
        .await?;
        let entries = Fragment::prepared(
            "SELECT coalesce(sum(entry_count), 0)::bigint AS count FROM context.owners",
            Vec::new(),
        );
        Ok(Once(MoveState::Begun {
            embedded,
            entries: count(transaction, entries).await?,
        }))
    }
}

/// The end of a move.
pub(super) struct Finish {
    pub model: EmbeddingModel,
    /// Entries that may be left without vectors.
    pub at_most: u64,
}

impl Writing for Finish {
    type Outcome = Once<Moved>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Self { model, at_most } = self;
        lock(transaction.conn).await?;
        let set_id = match of_state(transaction.conn, "building").await? {
            Some((set_id, begun)) if begun == *model => set_id,
            _ => {
                let is_current = current(transaction.conn)
                    .await?
                    .is_some_and(|(_, kept)| kept == *model);
                return Ok(Once(if is_current {
                    Moved::Done
                } else {
                    Moved::NotBegun
                }));
            }
        };
        let at_most = i64::try_from(*at_most).unwrap_or(i64::MAX);
        let waiting = "SELECT count(*) AS count FROM (SELECT 1 FROM context.entries AS e WHERE NOT EXISTS (SELECT 1 FROM context.chunks AS c \
                       WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.set_id = ?) LIMIT ?) AS waiting";
        let binds = vec![Bind::Int(set_id), Bind::Int(at_most.saturating_add(1))];
        if count(transaction, Fragment::prepared(waiting, binds)).await? > at_most {
            return Ok(Once(Moved::Waiting));
        }
        let change = "UPDATE context.embedding_sets SET state = CASE WHEN set_id = ? THEN 'current' ELSE 'retired' END, \
                      since = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint WHERE state IN ('current', 'building')";
        sql::execute(
            transaction.conn,
            Fragment::prepared(change, vec![Bind::Int(set_id)]),
        )
        .await?;
        Ok(Once(Moved::Done))
    }
}

/// How long a set stays after it was in use, so that services can be started again with the other model one by one.
const RETIRED_MICROS: i64 = 3_600_000_000;
/// Chunks deleted in one transaction.
const SWEPT: i64 = 20_000;

/// Deletes some of what is left of moves and of claims; says whether more is left.
pub(super) struct Sweep;

#[derive(QueryableByName)]
struct SetId {
    #[diesel(sql_type = BigInt)]
    set_id: i64,
}

impl Writing for Sweep {
    type Outcome = Once<bool>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let conn = &mut *transaction.conn;
        // The time of the transaction: where owners are spread over servers, no statement on many of them may ask a clock.
        let claims = "DELETE FROM context.embedding_claims WHERE until <= (extract(epoch FROM now()) * 1000000)::bigint";
        sql::execute(conn, Fragment::prepared(claims, Vec::new())).await?;
        // Whoever comes second passes over it.
        let due = "SELECT set_id FROM context.embedding_sets WHERE state = 'discarded' OR (state = 'retired' AND \
                   since + ? <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ORDER BY set_id LIMIT 1 FOR UPDATE SKIP LOCKED";
        let due = sql::query::<SetId>(
            conn,
            Fragment::prepared(due, vec![Bind::Int(RETIRED_MICROS)]),
        )
        .await?
        .pop();
        let Some(SetId { set_id }) = due else {
            return Ok(Once(false));
        };
        let chunks = "DELETE FROM context.chunks WHERE (owner_id, id, set_id, position) IN (SELECT c.owner_id, c.id, c.set_id, c.position \
                      FROM context.chunks AS c WHERE c.set_id = ? LIMIT ?)";
        let binds = vec![Bind::Int(set_id), Bind::Int(SWEPT)];
        if sql::execute(conn, Fragment::prepared(chunks, binds)).await? == 0 {
            conn.batch_execute(&format!("DROP INDEX IF EXISTS {}{set_id}", index::PREFIX))
                .await?;
            let set = "DELETE FROM context.embedding_sets WHERE set_id = ?";
            sql::execute(conn, Fragment::prepared(set, vec![Bind::Int(set_id)])).await?;
        }
        Ok(Once(true))
    }
}
