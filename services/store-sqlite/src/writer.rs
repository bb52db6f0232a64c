//! The one thread that writes. It takes everything that is queued and commits it as one transaction, so that many
//! requests share one wait for the disk.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use context_store::{Soundness, StoreError};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sqlite::SqliteConnection;

use crate::connection::{self, WriterSettings};
use crate::failure::{Failure, note_damage, store_error};
use crate::full_text::{self, FullText, FullTextChange};
use crate::lock::Lock;
use crate::neighbours::Neighbours;
use crate::owners::Owners;
use crate::queue::{Queue, Weight};
use crate::statement::{BeginImmediate, Commit, Release, Rollback, RollbackTo, Savepoint};
use crate::vectors::OpenVectors;

/// Requests in one transaction, at most.
const GROUP_REQUESTS: usize = 256;
/// Bytes of payload in one transaction, at most (one heavier request has a transaction of its own).
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The share of a commit's time that the writer waits for more requests after it, at most, and the most of all.
const PATIENCE_SHARE: u32 = 2;
const MAX_PATIENCE: Duration = Duration::from_millis(5);

/// A write request in the queue. It may run more than once, and answers once, after the commit.
pub(crate) trait Job: Weight + Send {
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;
    /// Whether it may be refused after it has written something.
    fn may_need_undo(&self) -> bool {
        true
    }
    /// Makes sure that the owner exists. That stays, also when the request is refused.
    fn prepare(&mut self, _conn: &mut SqliteConnection, _open: &mut Open) -> QueryResult<()> {
        Ok(())
    }
    /// Does the work inside the open transaction.
    fn run(&mut self, conn: &mut SqliteConnection, open: &mut Open) -> Result<(), Failure>;
    /// Keeps the answer of a request that was undone, until the others are committed.
    fn reject(&mut self, error: StoreError);
    /// Sends the answer.
    fn answer(self: Box<Self>);
}

/// A boxed request.
pub(crate) type BoxJob = Box<dyn Job>;

impl Weight for BoxJob {
    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

/// What the writer carries through a transaction.
pub(crate) struct Open {
    pub owners: Owners,
    pub full_text: FullText,
    /// Changes of the full-text index, made together before the commit: FTS5 writes its pending words to disk at every
    /// SAVEPOINT (`fts5SavepointMethod`), which would cost each request as much as a transaction of its own.
    pub pending: Vec<FullTextChange>,
    pub neighbours: Neighbours,
    pub vectors: OpenVectors,
}

/// Counters for statistics.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub commits: AtomicI64,
    pub writes: AtomicI64,
}

pub(crate) struct Writer {
    /// `None` after a failure that left the connection in doubt.
    pub conn: Option<SqliteConnection>,
    pub settings: WriterSettings,
    pub queue: Arc<Queue<BoxJob>>,
    pub open: Open,
    pub counters: Arc<Counters>,
    /// Lost when the database reports damage.
    pub soundness: Arc<Soundness>,
    /// Given back when the writer ends.
    pub lock: Lock,
    /// How many requests the next transaction could have, and how long to wait for them.
    pub company: Company,
}

/// Callers that write one request after the other come back when they are answered. The writer that took what is there
/// at once would have them in two halves that take turns, each paying for a commit of its own; it waits a little for
/// those it has just answered. A caller that writes alone never waits.
#[derive(Debug, Default)]
pub(crate) struct Company {
    expected: usize,
    patience: Duration,
}

/// Closes the queue and lets go of what waits in it.
struct Closes(Arc<Queue<BoxJob>>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
        self.0.clear();
    }
}

impl Writer {
    /// Works until the queue is closed and empty, then moves the log into the database.
    pub fn run(mut self) {
        // Whoever waits hears of it, should this thread ever panic.
        let _closes = Closes(Arc::clone(&self.queue));
        while let Some(jobs) = self.next() {
            self.commit(jobs);
        }
        if let Some(conn) = &mut self.conn {
            // Apart, because the first needs room on the disk and the second can do without.
            for (statement, left_undone) in [
                (
                    "PRAGMA optimize",
                    "The statistics of the database were not brought up to date",
                ),
                (
                    "PRAGMA wal_checkpoint(TRUNCATE)",
                    "The log was not moved into the database; the next start does it",
                ),
            ] {
                if let Err(error) = conn.batch_execute(statement) {
                    tracing::warn!(error = %error, "{left_undone}");
                }
            }
        }
        drop(self.conn.take());
        drop(self.lock);
    }

    /// Moves the log into the database while nobody writes, so that the next start and the next burst are short.
    fn idle(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        if let Err(error) = conn.batch_execute("PRAGMA wal_checkpoint(PASSIVE)") {
            tracing::warn!(error = %error, "The log was not moved into the database; a later commit does it");
        }
        connection::release_memory(conn);
    }

    /// The requests of the next transaction; `None` when the queue is closed and empty.
    fn next(&mut self) -> Option<Vec<BoxJob>> {
        let Company { expected, patience } = std::mem::take(&mut self.company);
        if expected > 1 {
            self.queue.gather(expected.min(GROUP_REQUESTS), patience);
        }
        let queue = Arc::clone(&self.queue);
        queue.take(GROUP_REQUESTS, GROUP_BYTES, || self.idle())
    }

    fn commit(&mut self, mut jobs: Vec<BoxJob>) {
        jobs.retain(|job| !job.is_abandoned());
        let started = Instant::now();
        match self.attempt(&mut jobs, Savepoints::WhereExpected) {
            Ok(()) => {
                if jobs.len() > 1 {
                    let patience = (started.elapsed() / PATIENCE_SHARE).min(MAX_PATIENCE);
                    self.company = Company {
                        expected: jobs.len() + self.queue.len(),
                        patience,
                    };
                }
                self.committed(jobs);
            }
            // One request spoilt the transaction of all. Each gets one of its own.
            Err(error) => {
                if jobs.len() > 1 {
                    tracing::warn!(error = %error, requests = jobs.len(), "A shared transaction failed; its requests run singly");
                }
                jobs.into_iter().for_each(|job| self.commit_alone(job));
            }
        }
    }

    fn commit_alone(&mut self, mut job: BoxJob) {
        match self.attempt(std::slice::from_mut(&mut job), Savepoints::Always) {
            Ok(()) => self.committed(vec![job]),
            Err(error) => {
                let error = store_error(error);
                note_damage(&self.soundness, &error);
                job.reject(error);
                job.answer();
            }
        }
    }

    fn committed(&mut self, jobs: Vec<BoxJob>) {
        self.open.owners.trim();
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.writes.fetch_add(
            i64::try_from(jobs.len()).unwrap_or(i64::MAX),
            Ordering::Relaxed,
        );
        for job in jobs {
            job.answer();
        }
    }

    /// One transaction for all of them; nothing of it stays when it fails.
    fn attempt(&mut self, jobs: &mut [BoxJob], savepoints: Savepoints) -> QueryResult<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => connection::writer(&self.settings).map_err(|e| unusable(&e))?,
        };
        let outcome = transact(&mut conn, &mut self.open, jobs, savepoints);
        if outcome.is_err() {
            self.open.owners.clear();
            self.open.neighbours.forget();
            // SQLite ends the transaction itself on some errors, and then there is nothing to undo.
            let undone = Rollback.execute(&mut conn);
            if undone.is_err_and(|error| !error.to_string().contains("no transaction is active")) {
                return outcome;
            }
        }
        self.open.pending.clear();
        self.open.vectors.clear();
        self.conn = Some(conn);
        outcome
    }
}

/// Which requests of a transaction can be undone alone. Behind a savepoint SQLite keeps a copy of every page as it was,
/// which is a tenth of the cost of storing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    /// Those that say so. If another one is refused after it has written something, the transaction fails.
    WhereExpected,
    /// All.
    Always,
}

fn transact(
    conn: &mut SqliteConnection,
    open: &mut Open,
    jobs: &mut [BoxJob],
    savepoints: Savepoints,
) -> QueryResult<()> {
    open.pending.clear();
    open.vectors.clear();
    BeginImmediate.execute(conn)?;
    for job in jobs {
        job.prepare(conn, open)?;
        let (pending, vectors) = (open.pending.len(), open.vectors.mark());
        let undoable = savepoints == Savepoints::Always || job.may_need_undo();
        let changes = if undoable {
            Savepoint.execute(conn)?;
            None
        } else {
            Some(total_changes(conn)?)
        };
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| job.run(conn, open)))
            .unwrap_or_else(|_| {
                Err(Failure::Rejected(StoreError::Internal(
                    "a write panicked".into(),
                )))
            });
        match outcome {
            Ok(()) => {}
            Err(Failure::Rejected(error)) => {
                open.pending.truncate(pending);
                open.neighbours.forget();
                open.vectors.back_to(vectors);
                match changes {
                    None => _ = RollbackTo.execute(conn)?,
                    Some(before) if total_changes(conn)? != before => {
                        return Err(DieselError::RollbackTransaction);
                    }
                    Some(_) => {}
                }
                job.reject(error);
            }
            Err(Failure::Database(error)) => return Err(error),
        }
        if undoable {
            Release.execute(conn)?;
        }
    }
    full_text::apply(conn, &mut open.pending, &open.neighbours)?;
    open.owners.flush(conn)?;
    Commit.execute(conn)?;
    open.vectors.publish();
    Ok(())
}

/// Rows that were inserted, updated or deleted on this connection, ever.
fn total_changes(conn: &mut SqliteConnection) -> QueryResult<i64> {
    diesel::select(total_changes_function()).get_result(conn)
}

diesel::define_sql_function! {
    /// SQLite's `total_changes()`.
    #[sql_name = "total_changes"]
    fn total_changes_function() -> diesel::sql_types::BigInt;
}

fn unusable(error: &connection::ConnectError) -> DieselError {
    DieselError::DatabaseError(
        DatabaseErrorKind::UnableToSendCommand,
        Box::new(error.to_string()),
    )
}

#[cfg(test)]
mod tests {
    use context_model::{Error, Timestamp};
    use context_store::{OwnerId, Store as _, WriteOptions};

    use super::*;
    use crate::config::Config;
    use crate::schema::changes;
    use crate::store::SqliteStore;
    use crate::transaction::{ChangeKind, Transaction};

    fn options() -> WriteOptions {
        WriteOptions {
            now: Timestamp(1),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        }
    }

    fn change(transaction: &mut Transaction<'_>, id: i64) -> Result<u64, Failure> {
        transaction.changed(ChangeKind::Create, id, "thread", 1)?;
        Ok(1)
    }

    fn refuse(transaction: &mut Transaction<'_>, id: i64) -> Result<u64, Failure> {
        change(transaction, id)?;
        Err(Error::invalid("id", "refused").into())
    }

    #[tokio::test]
    async fn a_request_that_is_refused_after_it_wrote_leaves_nothing_and_spoils_no_other() {
        for expected in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("store.db");
            let store = SqliteStore::open(Config::new(&path)).unwrap();
            let owner = OwnerId::new("somebody");
            let (go, wait) = std::sync::mpsc::channel::<()>();
            // While the first waits in its transaction, the others gather for the next.
            let first = store.write_items(&owner, options(), 0, false, move |transaction| {
                let _ = wait.recv();
                change(transaction, 1)
            });
            let others = async {
                let second = store.write_items(&owner, options(), 0, false, |transaction| {
                    change(transaction, 2)
                });
                let refused = store.write_items(&owner, options(), 0, expected, |transaction| {
                    refuse(transaction, 3)
                });
                let fourth = store.write_items(&owner, options(), 0, false, |transaction| {
                    change(transaction, 4)
                });
                let release = async move { drop(go) };
                tokio::join!(biased; second, refused, fourth, release)
            };
            let (first, (second, refused, fourth, ())) = tokio::join!(biased; first, others);
            assert_eq!(
                [first, second, fourth].map(|written| written.unwrap().revision),
                [1, 2, 3]
            );
            assert!(
                matches!(refused, Err(StoreError::Rejected(_))),
                "{refused:?}"
            );
            store.close().await;
            let mut conn = connection::reader(&path, Duration::ZERO).unwrap();
            let ids: Vec<String> = changes::table
                .select(changes::entity_id)
                .order(changes::revision)
                .load(&mut conn)
                .unwrap();
            assert_eq!(ids, ["1", "2", "4"]);
        }
    }
}
