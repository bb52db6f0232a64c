//! The change to another model. The new vectors are written to a second set. It replaces the current set in one
//! transaction when at most [`Finish::may_be_missing`] entries lack vectors. The former set is retired: services that
//! still embed with its model can search it.

use context_store::{EmbeddingModel, MoveState, Moved, Once};

use super::sets::{self, SetState};
use super::{pending, tables};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

/// Begins the change to a model, or resumes it.
pub(super) struct Begin(pub EmbeddingModel);

impl Writing for Begin {
    type Outcome = Once<MoveState>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Self(model) = self;
        let conn = &mut *transaction.conn;
        sets::lock(conn).await?;
        if let Err(reason) = tables::create(conn).await? {
            return Ok(Once(MoveState::Impossible(reason)));
        }
        match sets::current(conn).await? {
            Some((_, current)) if current == *model => return Ok(Once(MoveState::Done)),
            Some((set_id, _)) if !sets::has_vectors(conn, set_id).await? => {
                sets::delete(conn, set_id).await?;
            }
            _ => {}
        }
        let set_id = building(conn, model).await?;
        Ok(Once(MoveState::Begun {
            embedded: pending::embedded(conn, set_id).await?,
            entries: pending::entries(conn).await?,
        }))
    }
}

/// The id of the building set of this model. Creates the set if there is none, and discards a building set of another
/// model.
async fn building(conn: &mut AsyncPgConnection, model: &EmbeddingModel) -> Result<i64, Failure> {
    if let Some((set_id, building)) = sets::find(conn, SetState::Building).await?
        && building == *model
    {
        return Ok(set_id);
    }
    sets::discard_building(conn).await?;
    sets::create(conn, model, SetState::Building).await?;
    match sets::find(conn, SetState::Building).await? {
        Some((set_id, _)) => Ok(set_id),
        None => Err(diesel::result::Error::NotFound.into()),
    }
}

/// Completes the change to a model.
pub(super) struct Finish {
    pub model: EmbeddingModel,
    /// The number of entries that may lack vectors. They are embedded later.
    pub may_be_missing: u64,
}

impl Writing for Finish {
    type Outcome = Once<Moved>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Self {
            model,
            may_be_missing,
        } = self;
        let conn = &mut *transaction.conn;
        sets::lock(conn).await?;
        let set_id = match sets::find(conn, SetState::Building).await? {
            Some((set_id, building)) if building == *model => set_id,
            _ => {
                let is_current = sets::current(conn)
                    .await?
                    .is_some_and(|(_, current)| current == *model);
                return Ok(Once(if is_current {
                    Moved::Done
                } else {
                    Moved::NotBegun
                }));
            }
        };
        let may_be_missing = i64::try_from(*may_be_missing).unwrap_or(i64::MAX);
        let missing = "SELECT count(*) FROM (SELECT 1 FROM (SELECT owner_id, id FROM context.entries \
                       UNION ALL SELECT owner_id, id FROM context.artifact_documents) AS e WHERE NOT EXISTS (SELECT 1 FROM context.chunks AS c \
                       WHERE c.owner_id = e.owner_id AND c.id = e.id AND c.set_id = ?) LIMIT ?) AS waiting";
        let binds = vec![
            Bind::Int(set_id),
            Bind::Int(may_be_missing.saturating_add(1)),
        ];
        if sql::number(conn, Fragment::prepared(missing, binds)).await? > may_be_missing {
            return Ok(Once(Moved::Waiting));
        }
        sets::replace_current(conn, set_id).await?;
        Ok(Once(Moved::Done))
    }
}
