//! Threads that read, each with a connection of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use context_store::StoreError;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use crate::connection;
use crate::failure::store_error;
use crate::queue::{Queue, Refused, Weight};
use crate::statement::{Begin, Commit, Rollback};

/// Reads that may wait in each lane.
const QUEUED_READS: usize = 4096;

/// Threads that share a queue of reads. There are two lanes, so that a lookup never waits behind a search.
pub(crate) struct Lane {
    queue: Arc<Queue<ReadJob>>,
    stopped: Vec<oneshot::Receiver<()>>,
}

struct ReadJob(Box<dyn FnOnce(&mut SqliteConnection) + Send>);

impl Weight for ReadJob {
    fn bytes(&self) -> usize {
        0
    }
}

impl Lane {
    /// A thread for each connection. A thread that had nothing to do for a while calls `idle`.
    pub fn start(name: &str, connections: Vec<SqliteConnection>, idle: impl Fn() + Send + Clone + 'static) -> std::io::Result<Self> {
        let queue = Arc::new(Queue::<ReadJob>::new(QUEUED_READS, usize::MAX));
        let mut stopped = Vec::new();
        for mut conn in connections {
            let (stop, on_stop) = oneshot::channel();
            let (jobs, idle) = (Arc::clone(&queue), idle.clone());
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                loop {
                    let job = jobs.pop(|| {
                        connection::release_memory(&mut conn);
                        idle();
                    });
                    let Some(job) = job else { break };
                    (job.0)(&mut conn);
                }
                drop(conn);
                let _ = stop.send(());
            })?;
            stopped.push(on_stop);
        }
        Ok(Self { queue, stopped })
    }

    pub fn handle(&self) -> LaneHandle {
        LaneHandle { queue: Arc::clone(&self.queue) }
    }

    /// Lets queued reads finish and closes the connections.
    pub async fn stop(self) {
        self.queue.close();
        for stopped in self.stopped {
            let _ = stopped.await;
        }
    }
}

/// Where reads are handed in.
#[derive(Clone)]
pub(crate) struct LaneHandle {
    queue: Arc<Queue<ReadJob>>,
}

impl LaneHandle {
    /// Runs `work` in a transaction of its own, so that all it reads belongs to one state of the database.
    pub async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&mut SqliteConnection) -> Result<T, StoreError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = ReadJob(Box::new(move |conn| {
            if !reply.is_closed() {
                let _ = reply.send(in_transaction(conn, work));
            }
        }));
        self.queue.push(job).map_err(|refused| match refused {
            Refused::Full => StoreError::Overloaded,
            Refused::Closed => StoreError::Closed,
        })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    pub fn close(&self) {
        self.queue.close();
    }
}

/// Runs `work` in a transaction; its panic becomes an error.
pub(crate) fn in_transaction<T>(
    conn: &mut SqliteConnection,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if Begin.execute(conn).is_err() {
        // The read before may have failed in a way that left its transaction open.
        let _ = Rollback.execute(conn);
        Begin.execute(conn).map_err(store_error)?;
    }
    let outcome =
        std::panic::catch_unwind(AssertUnwindSafe(|| work(conn))).unwrap_or_else(|_| Err(StoreError::Internal("a read panicked".into())));
    // Nothing was written, so that either end of the transaction will do. SQLite ends it itself on some errors.
    if let Err(error) = Commit.execute(conn)
        && Rollback.execute(conn).is_err()
        && outcome.is_ok()
    {
        return Err(store_error(error));
    }
    outcome
}
