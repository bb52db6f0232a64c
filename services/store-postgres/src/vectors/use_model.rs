//! Selecting the model whose vectors the database stores.

use context_store::{EmbeddingModel, ModelUse, Once};

use super::sets::{self, SetState};
use super::tables;
use crate::pg::failure::Failure;
use crate::transaction::{Transaction, Writing};

/// Makes this model's set the current one, unless the current set has vectors of another model.
pub(super) struct UseModel(pub EmbeddingModel);

impl Writing for UseModel {
    type Outcome = Once<ModelUse>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Self(model) = self;
        let conn = &mut *transaction.conn;
        sets::lock(conn).await?;
        if let Err(reason) = tables::create(conn).await? {
            return Ok(Once(ModelUse::Impossible(reason)));
        }
        match sets::current(conn).await? {
            Some((_, current)) if current == *model => return Ok(Once(ModelUse::Ready)),
            Some((set_id, current)) => {
                if sets::has_vectors(conn, set_id).await? {
                    return Ok(Once(ModelUse::Other(current)));
                }
                sets::delete(conn, set_id).await?;
            }
            None => {}
        }
        match sets::find(conn, SetState::Building).await? {
            // A change to this model has begun, and the current set was missing or empty. The building set becomes
            // current before it is full. Entries without vectors get theirs later.
            Some((set_id, building)) if building == *model => {
                sets::replace_current(conn, set_id).await?;
            }
            _ => sets::create(conn, model, SetState::Current).await?,
        }
        Ok(Once(ModelUse::Ready))
    }
}
