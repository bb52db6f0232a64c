//! A write that belongs to no owner, such as the deletion of old data or a change of the embedding model.

use context_store::StoreError;
use diesel::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::queue::Weight;
use crate::store::SqliteStore;
use crate::writer::{Job, Open};

struct OwnerlessWrite<T, W> {
    work: W,
    reply: oneshot::Sender<Result<T, StoreError>>,
    /// The result of the last run. `None` before the first one.
    outcome: Option<Result<T, StoreError>>,
}

impl<T, W> Weight for OwnerlessWrite<T, W> {
    fn bytes(&self) -> usize {
        0
    }
}

impl<T, W> Job for OwnerlessWrite<T, W>
where
    T: Send,
    W: FnMut(&mut SqliteConnection, &mut Open) -> Result<T, Failure> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, conn: &mut SqliteConnection, open: &mut Open) -> Result<(), Failure> {
        self.outcome = None;
        self.outcome = Some(Ok((self.work)(conn, open)?));
        Ok(())
    }

    fn reject(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn is_rejected(&self) -> bool {
        matches!(self.outcome, Some(Err(_)))
    }

    fn answer(self: Box<Self>) {
        let Self {
            work: _,
            reply,
            outcome,
        } = *self;
        let _ = reply.send(outcome.unwrap_or_else(|| {
            Err(StoreError::Internal(
                "a write ended without an outcome".into(),
            ))
        }));
    }
}

impl SqliteStore {
    /// Runs work that belongs to no owner in the writer's transaction, and returns its result after the commit. The
    /// work may run more than once.
    pub(crate) async fn write_without_owner<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut SqliteConnection, &mut Open) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.push(Box::new(OwnerlessWrite {
            work,
            reply,
            outcome: None,
        }))?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}
