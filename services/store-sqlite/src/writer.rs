//! The one thread that writes. It takes everything that is queued and commits it as one transaction, so that many
//! requests share one wait for the disk.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use context_store::StoreError;
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel::sqlite::SqliteConnection;
use tokio::sync::watch;

use crate::connection::{self, WriterSettings};
use crate::failure::{Failure, store_error};
use crate::full_text::{self, FullText, FullTextChange};
use crate::lock::Lock;
use crate::owners::Owners;
use crate::queue::{Queue, Weight};
use crate::statement::{BeginImmediate, Commit, Release, Rollback, RollbackTo, Savepoint};
use crate::vectors::OpenVectors;

/// Requests in one transaction, at most.
const GROUP_REQUESTS: usize = 256;
/// Bytes of payload in one transaction, at most (one heavier request has a transaction of its own).
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The share of a commit's time that the writer waits for more requests after it, at most, and the most of all.
const PATIENCE_SHARE: u32 = 4;
const MAX_PATIENCE: Duration = Duration::from_millis(5);

/// A write request in the queue. It may run more than once, and answers once, after the commit.
pub(crate) trait Job: Weight + Send {
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;
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
    /// Ticks after every commit.
    pub commits: watch::Sender<u64>,
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
                ("PRAGMA optimize", "The statistics of the database were not brought up to date"),
                ("PRAGMA wal_checkpoint(TRUNCATE)", "The log was not moved into the database; the next start does it"),
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
        match self.attempt(&mut jobs) {
            Ok(()) => {
                if jobs.len() > 1 {
                    let patience = (started.elapsed() / PATIENCE_SHARE).min(MAX_PATIENCE);
                    self.company = Company { expected: jobs.len() + self.queue.len(), patience };
                }
                self.committed(jobs);
            }
            Err(error) if jobs.len() == 1 => {
                if let Some(mut job) = jobs.pop() {
                    job.reject(store_error(error));
                    job.answer();
                }
            }
            // One request spoilt the transaction of all. Each gets one of its own.
            Err(error) => {
                tracing::warn!(error = %error, requests = jobs.len(), "A shared transaction failed; its requests run singly");
                for job in jobs {
                    self.commit(vec![job]);
                }
            }
        }
    }

    fn committed(&mut self, jobs: Vec<BoxJob>) {
        self.open.owners.trim();
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.writes.fetch_add(i64::try_from(jobs.len()).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.commits.send_modify(|count| *count += 1);
        for job in jobs {
            job.answer();
        }
    }

    /// One transaction for all of them; nothing of it stays when it fails.
    fn attempt(&mut self, jobs: &mut [BoxJob]) -> QueryResult<()> {
        if jobs.is_empty() {
            return Ok(());
        }
        let mut conn = match self.conn.take() {
            Some(conn) => conn,
            None => connection::writer(&self.settings).map_err(|e| unusable(&e))?,
        };
        let outcome = transact(&mut conn, &mut self.open, jobs);
        if outcome.is_err() {
            self.open.owners.clear();
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

fn transact(conn: &mut SqliteConnection, open: &mut Open, jobs: &mut [BoxJob]) -> QueryResult<()> {
    open.pending.clear();
    open.vectors.clear();
    BeginImmediate.execute(conn)?;
    for job in jobs {
        let (pending, vectors) = (open.pending.len(), open.vectors.mark());
        Savepoint.execute(conn)?;
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| job.run(conn, open)))
            .unwrap_or_else(|_| Err(Failure::Rejected(StoreError::Internal("a write panicked".into()))));
        match outcome {
            Ok(()) => {}
            Err(Failure::Rejected(error)) => {
                open.pending.truncate(pending);
                open.vectors.back_to(vectors);
                RollbackTo.execute(conn)?;
                job.reject(error);
            }
            Err(Failure::Database(error)) => return Err(error),
        }
        Release.execute(conn)?;
    }
    full_text::apply(conn, &mut open.pending)?;
    open.owners.flush(conn)?;
    Commit.execute(conn)?;
    open.vectors.publish();
    Ok(())
}

fn unusable(error: &connection::ConnectError) -> DieselError {
    DieselError::DatabaseError(DatabaseErrorKind::UnableToSendCommand, Box::new(error.to_string()))
}
