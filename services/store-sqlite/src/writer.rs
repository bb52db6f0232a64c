//! The writer thread. It takes up to [`GROUP_REQUESTS`] queued requests and commits them as one transaction, so that
//! they share one disk flush.

#![expect(clippy::disallowed_methods, reason = "how long a commit takes")]

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use context_store::{ChangeNotifier, Soundness, StoreError};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sqlite::SqliteConnection;

use crate::connection::{self, WriterSettings};
use crate::context_window::ContextWindows;
use crate::failure::{Failure, examined, has_no_transaction, note_damage, store_error};
use crate::full_text::{self, FullText, FullTextChange};
use crate::lock::Lock;
use crate::owners::Owners;
use crate::queue::{Queue, Weight};
use crate::statement::{BeginImmediate, Commit, Release, Rollback, RollbackTo, Savepoint};
use crate::vectors::OpenVectors;

/// Maximum number of requests in one transaction.
const GROUP_REQUESTS: usize = 256;
/// Maximum number of payload bytes in one transaction. A heavier request gets its own transaction.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The writer waits for more requests for the duration of the previous transaction divided by this number, at most
/// `MAX_GROUP_WAIT`.
const GROUP_WAIT_DIVISOR: u32 = 2;
const MAX_GROUP_WAIT: Duration = Duration::from_millis(5);

/// A write request in the queue. It may run more than once, but replies only once, after the commit.
pub(crate) trait Job: Weight + Send {
    /// Whether no caller waits for the reply any more.
    fn is_abandoned(&self) -> bool;
    /// Whether it may be rejected after it has written something.
    fn may_need_undo(&self, _conn: &mut SqliteConnection, _open: &mut Open) -> QueryResult<bool> {
        Ok(true)
    }
    /// Does the work inside the open transaction.
    fn run(&mut self, conn: &mut SqliteConnection, open: &mut Open) -> Result<(), Failure>;
    /// Stores the error of a request that was undone, until the others are committed.
    fn reject(&mut self, error: StoreError);
    /// Whether the request was rejected, so that nothing of it is committed.
    fn is_rejected(&self) -> bool;
    /// Announces the committed changes to subscriptions.
    fn announce(&self, _notifier: &ChangeNotifier) {}
    /// Sends the reply.
    fn answer(self: Box<Self>);
}

/// A boxed request.
pub(crate) type BoxJob = Box<dyn Job>;

impl Weight for BoxJob {
    fn bytes(&self) -> usize {
        (**self).bytes()
    }
}

/// The writer's state of the open transaction.
pub(crate) struct Open {
    pub owners: Owners,
    pub full_text: FullText,
    /// Pending changes of the full-text index. They are applied together before the commit, because FTS5 flushes its
    /// pending words to disk at every SAVEPOINT (`fts5SavepointMethod`), which would cost each request as much as its
    /// own transaction.
    pub pending: Vec<FullTextChange>,
    pub context_windows: ContextWindows,
    pub vectors: OpenVectors,
}

/// Counters for statistics.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub commits: AtomicI64,
    pub writes: AtomicI64,
}

pub(crate) struct Writer {
    /// `None` after a failure that left the connection in an unknown state.
    pub conn: Option<SqliteConnection>,
    pub settings: WriterSettings,
    pub queue: Arc<Queue<BoxJob>>,
    pub open: Open,
    pub counters: Arc<Counters>,
    pub notifier: Arc<ChangeNotifier>,
    /// Records damage reported by the database.
    pub soundness: Arc<Soundness>,
    /// Released when the writer ends.
    pub lock: Lock,
    /// The expected size of the next transaction, and how long to wait for it.
    pub group_window: GroupWindow,
}

/// The group-commit window. Callers that write one request after the other send the next one as soon as they receive
/// the reply. A writer that immediately took what is queued would split them into two alternating halves, each with its
/// own commit. It therefore waits briefly for the callers it has just served. A caller that writes alone does not wait,
/// except for its first write after a shared transaction.
#[derive(Debug, Default)]
pub(crate) struct GroupWindow {
    expected: usize,
    wait: Duration,
}

/// Closes and clears the queue when dropped.
struct Closes(Arc<Queue<BoxJob>>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
        self.0.clear();
    }
}

impl Writer {
    /// Runs until the queue is closed and empty, then checkpoints the log.
    pub fn run(mut self) {
        // If this thread panics, waiting callers are informed.
        let _closes = Closes(Arc::clone(&self.queue));
        while let Some(jobs) = self.next() {
            self.commit(jobs);
        }
        if let Some(conn) = &mut self.conn {
            // Separate, because the first statement needs disk space and the second can succeed without.
            for (statement, message) in [
                (
                    "PRAGMA optimize",
                    "Could not update the statistics of the query planner",
                ),
                (
                    "PRAGMA wal_checkpoint(TRUNCATE)",
                    "Could not checkpoint the log; the next start will do it",
                ),
            ] {
                if let Err(error) = conn.batch_execute(statement) {
                    tracing::warn!(error = %error, "{message}");
                }
            }
        }
        drop(self.conn.take());
        drop(self.lock);
    }

    /// Checkpoints the log while nothing is written, so that the next start and the next burst of writes are fast.
    fn idle(&mut self) {
        let Some(conn) = &mut self.conn else { return };
        if let Err(error) = conn.batch_execute("PRAGMA wal_checkpoint(PASSIVE)") {
            tracing::warn!(error = %error, "Could not checkpoint the log; a later commit will do it");
        }
        connection::release_memory(conn);
    }

    /// The requests of the next transaction. `None` when the queue is closed and empty.
    fn next(&mut self) -> Option<Vec<BoxJob>> {
        let GroupWindow { expected, wait } = std::mem::take(&mut self.group_window);
        if expected > 1 {
            self.queue.gather(expected.min(GROUP_REQUESTS), wait);
        }
        let queue = Arc::clone(&self.queue);
        queue.take(GROUP_REQUESTS, GROUP_BYTES, || self.idle())
    }

    fn commit(&mut self, mut jobs: Vec<BoxJob>) {
        jobs.retain(|job| !job.is_abandoned());
        if jobs.is_empty() {
            return;
        }
        let started = Instant::now();
        match self.attempt(&mut jobs, Savepoints::WhereExpected) {
            Ok(()) => {
                if jobs.len() > 1 {
                    let wait = (started.elapsed() / GROUP_WAIT_DIVISOR).min(MAX_GROUP_WAIT);
                    self.group_window = GroupWindow {
                        expected: jobs.len() + self.queue.len(),
                        wait,
                    };
                }
                self.committed(jobs);
            }
            // One request made the shared transaction fail. Each request gets its own.
            Err(error) => {
                if jobs.len() > 1 {
                    tracing::warn!(
                        error = %error,
                        requests = jobs.len(),
                        "A shared transaction failed; its requests run one by one"
                    );
                }
                jobs.into_iter().for_each(|job| self.commit_alone(job));
            }
        }
    }

    fn commit_alone(&mut self, mut job: BoxJob) {
        match self.attempt(std::slice::from_mut(&mut job), Savepoints::Always) {
            Ok(()) => self.committed(vec![job]),
            Err(error) => {
                let error = match &mut self.conn {
                    Some(conn) => examined(conn, store_error(error)),
                    None => store_error(error),
                };
                note_damage(&self.soundness, &error);
                job.reject(error);
                job.answer();
            }
        }
    }

    fn committed(&mut self, jobs: Vec<BoxJob>) {
        self.open.owners.trim();
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        let written = jobs.iter().filter(|job| !job.is_rejected()).count();
        self.counters.writes.fetch_add(
            i64::try_from(written).unwrap_or(i64::MAX),
            Ordering::Relaxed,
        );
        for job in jobs {
            job.announce(&self.notifier);
            job.answer();
        }
    }

    /// Runs all jobs in one transaction. If it fails, it is rolled back.
    fn attempt(&mut self, jobs: &mut [BoxJob], savepoints: Savepoints) -> QueryResult<()> {
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => connection::writer(&self.settings).map_err(|e| unusable(&e))?,
        };
        let outcome = transact(&mut conn, &mut self.open, jobs, savepoints);
        if outcome.is_err() {
            self.open.owners.clear();
            self.open.context_windows.forget();
            // SQLite ends the transaction itself on some errors. Then there is nothing to roll back.
            let undone = Rollback.execute(&mut conn);
            if undone.is_err_and(|error| !has_no_transaction(&error)) {
                return outcome;
            }
        }
        self.open.pending.clear();
        self.open.vectors.clear();
        self.conn = Some(conn);
        outcome
    }
}

/// Which requests of a transaction get a savepoint. With a savepoint SQLite keeps a copy of every changed page, which
/// takes a tenth of the time to store an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Savepoints {
    /// Requests for which [`Job::may_need_undo`] is true. If another request is rejected after it has written
    /// something, the transaction fails.
    WhereExpected,
    /// All requests.
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
        let (pending, vectors) = (open.pending.len(), open.vectors.mark());
        let undoable = savepoints == Savepoints::Always || job.may_need_undo(conn, open)?;
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
                open.context_windows.forget();
                open.vectors.roll_back_to(vectors);
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
    full_text::apply(conn, &mut open.pending, &open.context_windows)?;
    open.owners.flush(conn)?;
    Commit.execute(conn)?;
    open.vectors.publish();
    Ok(())
}

/// Number of rows that were inserted, updated or deleted on this connection since it was opened.
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
    use context_model::{Error, Source, Timestamp};
    use context_store::{ChangeKind, OwnerId, Read, Store as _, WriteOptions};

    use super::*;
    use crate::config::Config;
    use crate::schema::changes;
    use crate::store::SqliteStore;
    use crate::transaction::Transaction;

    fn options() -> WriteOptions {
        WriteOptions {
            now: Timestamp(1),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        }
    }

    fn change(transaction: &mut Transaction<'_>, id: i64) -> Result<u64, Failure> {
        transaction.changed_entry(ChangeKind::Create, id, "thread", Source::User, 1)?;
        Ok(1)
    }

    fn refuse(transaction: &mut Transaction<'_>, id: i64) -> Result<u64, Failure> {
        change(transaction, id)?;
        Err(Error::invalid("id", "refused").into())
    }

    #[tokio::test]
    async fn an_owner_appears_with_its_first_write_and_not_with_one_that_is_rejected() {
        for expected in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("store.db");
            let store = SqliteStore::open(Config::new(&path)).unwrap();
            let owner = OwnerId::new("owner");
            let refused = store
                .write_items(&owner, options(), 0, expected, |transaction| {
                    refuse(transaction, 1)
                })
                .await;
            assert!(
                matches!(refused, Err(StoreError::Rejected(_))),
                "{refused:?}"
            );
            let absent = store
                .write_existing(&owner, options(), 0, |transaction| change(transaction, 1))
                .await
                .unwrap();
            assert_eq!((absent.outcome, absent.revision), (0, 0));
            let mut conn = connection::reader(&path, Duration::ZERO).unwrap();
            let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'fts\\_%' ESCAPE '\\'";
            assert_eq!(connection::pragma_int(&mut conn, tables).unwrap(), 0);
            assert_eq!(crate::owners::find(&mut conn, &owner).unwrap(), None);
            let written = store
                .write_items(&owner, options(), 0, expected, |transaction| {
                    change(transaction, 1)
                })
                .await
                .unwrap();
            assert_eq!(written.revision, 1);
            let existing = store
                .write_existing(&owner, options(), 0, |transaction| change(transaction, 2))
                .await
                .unwrap();
            assert_eq!((existing.outcome, existing.revision), (1, 2));
            store.close().await;
        }
    }

    #[tokio::test]
    async fn a_request_that_is_refused_after_it_wrote_leaves_nothing_and_spoils_no_other() {
        for expected in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("store.db");
            let store = SqliteStore::open(Config::new(&path)).unwrap();
            let owner = OwnerId::new("owner");
            let (go, wait) = std::sync::mpsc::channel::<()>();
            // While the first request waits in its transaction, the others are queued for the next.
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
            let statistics = store.statistics(&owner, None, Read::default());
            assert_eq!(statistics.await.unwrap().connections.writes, 3);
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
