//! A write request: its work, its idempotency key and its reply.

use context_store::{
    ChangeNotifier, OwnerId, Recorded, StoreError, Touched, WriteOptions, Written,
};
use diesel::QueryResult;
use diesel::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use crate::collection::Collection;
use crate::failure::Failure;
use crate::idempotency;
use crate::owners::Owners;
use crate::queue::Weight;
use crate::transaction::Transaction;
use crate::writer::{Job, Open};

/// A request whose work returns a `T`.
pub(crate) struct Request<T, W> {
    pub owner: OwnerId,
    pub options: WriteOptions,
    pub bytes: usize,
    /// Whether its work may be rejected after it has written something.
    pub may_need_undo: bool,
    /// The outcome if the owner does not exist. `None` for a request that creates it.
    pub if_absent: Option<fn() -> T>,
    pub work: W,
    pub reply: oneshot::Sender<Result<Written<T>, StoreError>>,
    pub outcome: Option<Result<Written<T>, StoreError>>,
    /// Whether it deleted the owner.
    pub erased: bool,
    /// The subscriptions that its changes concern.
    pub touched: Touched,
}

impl<T, W> Weight for Request<T, W> {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T, W> Job for Request<T, W>
where
    T: Recorded + Send,
    W: FnMut(&mut Transaction<'_>) -> Result<T, Failure> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn may_need_undo(&self, conn: &mut SqliteConnection, open: &mut Open) -> QueryResult<bool> {
        // The row and the full-text table of a new owner are written before the work can reject the request.
        let creates_owner =
            self.if_absent.is_none() && open.owners.find(conn, &self.owner)?.is_none();
        Ok(self.may_need_undo || creates_owner)
    }

    fn run(&mut self, conn: &mut SqliteConnection, open: &mut Open) -> Result<(), Failure> {
        self.outcome = None;
        let owner = match (open.owners.find(conn, &self.owner)?, self.if_absent) {
            (Some(owner), _) => owner,
            (None, Some(outcome)) => {
                self.outcome = Some(Ok(Written {
                    outcome: outcome(),
                    revision: 0,
                }));
                return Ok(());
            }
            // The row is not cached before the request has succeeded, because a rejection undoes it.
            (None, None) => {
                let owner = Owners::create(conn, &self.owner)?;
                open.full_text
                    .create(conn, Collection::entries(owner.owner))?;
                owner
            }
        };
        if let Some(key) = &self.options.idempotency
            && let Some(first) = idempotency::find(conn, owner.owner, key, self.options.now)?
        {
            self.outcome = Some(Ok(first));
            return Ok(());
        }
        let mut transaction = Transaction::new(
            conn,
            owner,
            &self.options,
            open.full_text,
            &mut open.pending,
            &mut open.context_windows,
            &mut open.vectors,
        );
        let outcome = (self.work)(&mut transaction)?;
        transaction.end_commit()?;
        let erased = transaction.erased;
        self.erased = erased;
        self.touched = std::mem::replace(&mut transaction.touched, Touched::NOTHING);
        let owner = transaction.owner;
        let written = Written {
            outcome,
            revision: owner.revision,
        };
        if let Some(key) = &self.options.idempotency {
            idempotency::record(conn, owner.owner, key, self.options.now, &written)?;
        }
        if erased {
            open.owners.forget(&owner.owner_id);
        } else {
            open.owners.put(owner);
        }
        self.outcome = Some(Ok(written));
        Ok(())
    }

    fn reject(&mut self, error: StoreError) {
        self.outcome = Some(Err(error));
    }

    fn is_rejected(&self) -> bool {
        matches!(self.outcome, Some(Err(_)))
    }

    fn announce(&self, notifier: &ChangeNotifier) {
        if let Some(Ok(written)) = &self.outcome {
            if self.erased {
                notifier.announce(&self.owner, 0, &Touched::Anything);
            } else {
                notifier.announce(&self.owner, written.revision, &self.touched);
            }
        }
    }

    fn answer(self: Box<Self>) {
        let Self { reply, outcome, .. } = *self;
        let _ = reply.send(outcome.unwrap_or_else(|| {
            Err(StoreError::Internal(
                "a write ended without an outcome".into(),
            ))
        }));
    }
}
