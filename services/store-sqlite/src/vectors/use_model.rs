//! Choosing the model whose vectors are kept: a write of its own kind, because it belongs to no owner.

use std::sync::Arc;

use context_store::{EmbeddingModel, ModelUse, StoreError};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use super::set::{Set, Vectors};
use crate::failure::Failure;
use crate::queue::Weight;
use crate::schema::{chunks, embedding_sets};
use crate::writer::{Job, Open};

pub(super) struct UseModel {
    pub model: EmbeddingModel,
    pub shared: Arc<Vectors>,
    pub reply: oneshot::Sender<Result<ModelUse, StoreError>>,
    pub outcome: Option<Result<Outcome, StoreError>>,
}

pub(super) enum Outcome {
    Kept,
    Other(EmbeddingModel),
    /// To be used once it is committed.
    New(Arc<Set>),
}

impl Weight for UseModel {
    fn bytes(&self) -> usize {
        0
    }
}

impl Job for UseModel {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, conn: &mut SqliteConnection, _: &mut Open) -> Result<(), Failure> {
        self.outcome = None;
        let outcome = match self.shared.current() {
            Some(set) if set.model == self.model => Outcome::Kept,
            Some(set) if !chunks::table.select(chunks::chunk_id).limit(1).load::<i64>(conn)?.is_empty() => {
                Outcome::Other(set.model.clone())
            }
            _ => {
                // Sets without a vector are of no use to anybody.
                diesel::delete(embedding_sets::table).execute(conn)?;
                diesel::insert_into(embedding_sets::table)
                    .values((
                        embedding_sets::set_id.eq(1),
                        embedding_sets::model.eq(&self.model.identity),
                        embedding_sets::dimensions.eq(i64::from(self.model.dimensions)),
                        embedding_sets::current.eq(1),
                    ))
                    .execute(conn)?;
                Outcome::New(Arc::new(Set::new(1, self.model.clone())))
            }
        };
        self.outcome = Some(Ok(outcome));
        Ok(())
    }

    fn reject(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn answer(self: Box<Self>) {
        let Self { model: _, shared, reply, outcome } = *self;
        let outcome = outcome.unwrap_or_else(|| Err(StoreError::Internal("a write ended without an outcome".into())));
        let _ = reply.send(outcome.map(|outcome| match outcome {
            Outcome::Kept => ModelUse::Ready,
            Outcome::Other(model) => ModelUse::Other(model),
            Outcome::New(set) => {
                shared.set_current(set);
                ModelUse::Ready
            }
        }));
    }
}
