//! Choosing the model whose vectors are kept.

use context_store::{EmbeddingModel, ModelUse, Once};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};

use super::tables;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

/// Services that choose at once take turns. Any number that nobody else locks in this database.
const LOCK: i64 = 0x6374_785f_6d6f_6465;

/// A model to keep vectors of.
pub(super) struct UseModel(pub EmbeddingModel);

impl Writing for UseModel {
    type Outcome = Once<ModelUse>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Self(model) = self;
        let conn = &mut *transaction.conn;
        lock(conn).await?;
        if let Err(reason) = tables::make(conn).await? {
            return Ok(Once(ModelUse::Impossible(reason)));
        }
        match current(conn).await? {
            Some((_, kept)) if kept == *model => return Ok(Once(ModelUse::Ready)),
            Some((set_id, kept)) => {
                if holds_any(conn, set_id).await? {
                    return Ok(Once(ModelUse::Other(kept)));
                }
                // A set without a vector is of no use to anybody.
                let delete = "DELETE FROM context.embedding_sets WHERE set_id = ?";
                sql::execute(conn, Fragment::prepared(delete, vec![Bind::Int(set_id)])).await?;
            }
            None => {}
        }
        make(conn, model, "current").await?;
        Ok(Once(ModelUse::Ready))
    }
}

/// Keeps other services from choosing until the transaction ends.
pub(super) async fn lock(conn: &mut AsyncPgConnection) -> Result<(), Failure> {
    sql::execute(
        conn,
        Fragment::prepared("SELECT pg_advisory_xact_lock(?)", vec![Bind::Int(LOCK)]),
    )
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct SetRow {
    #[diesel(sql_type = BigInt)]
    set_id: i64,
    #[diesel(sql_type = Text)]
    model: String,
    #[diesel(sql_type = BigInt)]
    dimensions: i64,
}

/// The set in use, if there is one.
pub(crate) async fn current(
    conn: &mut AsyncPgConnection,
) -> Result<Option<(i64, EmbeddingModel)>, Failure> {
    of_state(conn, "current").await
}

/// The set in this state; there is at most one.
pub(super) async fn of_state(
    conn: &mut AsyncPgConnection,
    state: &'static str,
) -> Result<Option<(i64, EmbeddingModel)>, Failure> {
    let select = "SELECT set_id, model, dimensions FROM context.embedding_sets WHERE state = ?";
    let row = sql::query::<SetRow>(conn, Fragment::prepared(select, vec![Bind::text(state)]))
        .await?
        .pop();
    Ok(row.map(
        |SetRow {
             set_id,
             model,
             dimensions,
         }| {
            (
                set_id,
                EmbeddingModel {
                    identity: model,
                    dimensions: u32::try_from(dimensions).unwrap_or(0),
                },
            )
        },
    ))
}

/// Whether a set has vectors.
pub(super) async fn holds_any(conn: &mut AsyncPgConnection, set_id: i64) -> Result<bool, Failure> {
    #[derive(QueryableByName)]
    struct One {
        #[diesel(sql_type = BigInt)]
        #[expect(dead_code, reason = "it is only counted")]
        id: i64,
    }
    let select = "SELECT id FROM context.chunks WHERE set_id = ? LIMIT 1";
    Ok(
        !sql::query::<One>(conn, Fragment::prepared(select, vec![Bind::Int(set_id)]))
            .await?
            .is_empty(),
    )
}

/// Makes a set.
pub(crate) async fn make(
    conn: &mut AsyncPgConnection,
    model: &EmbeddingModel,
    state: &'static str,
) -> Result<(), Failure> {
    // One that was made before, gathered in vain or retired, is not taken up again: entries changed since.
    let discard = "UPDATE context.embedding_sets SET state = 'discarded', model = model || ' discarded ' || set_id \
                   WHERE model = ? AND dimensions = ?";
    let binds = vec![
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
    ];
    sql::execute(conn, Fragment::prepared(discard, binds)).await?;
    // Chunks of a set that is gone may still be there: its number is not used again.
    let insert = "WITH counted AS (INSERT INTO context.settings AS s (key, value) VALUES ('embedding_sets', '1') \
                  ON CONFLICT (key) DO UPDATE SET value = (s.value::bigint + 1)::text RETURNING value) \
                  INSERT INTO context.embedding_sets (set_id, model, dimensions, state, since) \
                  SELECT value::bigint, ?, ?, ?, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM counted";
    let binds = vec![
        Bind::text(&model.identity),
        Bind::Int(i64::from(model.dimensions)),
        Bind::text(state),
    ];
    sql::execute(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}
