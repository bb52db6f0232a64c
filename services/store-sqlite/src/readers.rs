//! Reader threads, each with its own connection.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use context_store::{OwnerId, Sharer, Shares, Soundness, StoreError, call};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use crate::cancel::{Waiter, Waiting};
use crate::connection;
use crate::failure::{examined, note_damage, store_error};
use crate::queue::IDLE;
use crate::statement::{Begin, Commit, Rollback};

/// Maximum number of queued reads per lane.
const QUEUED_READS: usize = 4096;

/// A group of reader threads with a common queue. There are two lanes, so that a lookup never waits behind a search.
pub(crate) struct Lane {
    handle: LaneHandle,
    stopped: Vec<oneshot::Receiver<()>>,
}

struct ReadJob {
    waiter: Waiter,
    run: Box<dyn FnOnce(&mut SqliteConnection) + Send>,
}

struct State {
    reads: Shares<ReadJob>,
    closed: bool,
}

struct Reads {
    state: Mutex<State>,
    ready: Condvar,
}

impl Reads {
    fn push(&self, sharer: Sharer, job: ReadJob) -> Result<(), StoreError> {
        let mut state = self.lock();
        if state.closed {
            return Err(StoreError::Closed);
        }
        state
            .reads
            .push(sharer, job, |job| !job.waiter.is_gone())
            .map_err(|_| StoreError::Overloaded)?;
        drop(state);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for a read. `None` when the lane is closed and its queue is empty. `idle` is called once when no read came
    /// for a while.
    fn next(&self, mut idle: impl FnMut()) -> Option<(Sharer, ReadJob)> {
        let mut state = self.lock();
        let mut was_idle = false;
        loop {
            if let Some(next) = state.reads.grant_next() {
                return Some(next);
            }
            if state.closed {
                return None;
            }
            if was_idle {
                state = self
                    .ready
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (waited, timeout) = self
                .ready
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if timeout.timed_out() && state.reads.queued() == 0 && !state.closed {
                drop(state);
                idle();
                was_idle = true;
                state = self.lock();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    /// Starts one thread per connection. A thread that was idle for a while calls `idle`.
    pub fn start(
        name: &str,
        connections: Vec<SqliteConnection>,
        soundness: &Arc<Soundness>,
        idle: impl Fn() + Send + Clone + 'static,
    ) -> std::io::Result<Self> {
        let state = State {
            reads: Shares::new(connections.len(), QUEUED_READS),
            closed: false,
        };
        let queue = Arc::new(Reads {
            state: Mutex::new(state),
            ready: Condvar::new(),
        });
        let mut stopped = Vec::new();
        for mut conn in connections {
            let (stop, on_stop) = oneshot::channel();
            let (jobs, idle) = (Arc::clone(&queue), idle.clone());
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || {
                    loop {
                        let job = jobs.next(|| {
                            connection::release_memory(&mut conn);
                            idle();
                        });
                        let Some((sharer, job)) = job else { break };
                        (job.run)(&mut conn);
                        jobs.lock().reads.give_back(&sharer);
                    }
                    drop(conn);
                    let _ = stop.send(());
                })?;
            stopped.push(on_stop);
        }
        Ok(Self {
            handle: LaneHandle {
                queue,
                soundness: Arc::clone(soundness),
            },
            stopped,
        })
    }

    pub fn handle(&self) -> LaneHandle {
        self.handle.clone()
    }

    /// Lets queued reads finish and closes the connections.
    pub async fn stop(self) {
        self.handle.close();
        for stopped in self.stopped {
            let _ = stopped.await;
        }
    }
}

/// Submits reads to a lane.
#[derive(Clone)]
pub(crate) struct LaneHandle {
    queue: Arc<Reads>,
    soundness: Arc<Soundness>,
}

impl LaneHandle {
    /// Runs `work` in a transaction of its own, so that all its reads see the same state of the database. Owners take
    /// turns. `None` is the service itself. The read is cancelled when the future is dropped, and at the deadline of
    /// the call.
    pub async fn read<T, W>(&self, owner: Option<&OwnerId>, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&mut SqliteConnection) -> Result<T, StoreError> + Send + 'static,
    {
        let waiting = Waiting::default();
        let waiter = waiting.waiter(call::deadline());
        let (reply, answer) = oneshot::channel();
        let run = {
            let waiter = waiter.clone();
            move |conn: &mut SqliteConnection| {
                let outcome = match waiter.waits() {
                    true => in_transaction(conn, |conn| waiter.run(|| work(conn))),
                    false => Err(StoreError::TooSlow { unindexed: None }),
                };
                let _ = reply.send(outcome);
            }
        };
        self.queue.push(
            owner.cloned(),
            ReadJob {
                waiter,
                run: Box::new(run),
            },
        )?;
        let answer = answer.await.unwrap_or(Err(StoreError::Closed));
        drop(waiting);
        answer.inspect_err(|error| note_damage(&self.soundness, error))
    }

    pub fn close(&self) {
        self.queue.lock().closed = true;
        self.queue.ready.notify_all();
    }
}

/// Runs `work` in a transaction. A panic becomes an error.
pub(crate) fn in_transaction<T>(
    conn: &mut SqliteConnection,
    work: impl FnOnce(&mut SqliteConnection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    if Begin.execute(conn).is_err() {
        // The previous read may have failed and left its transaction open.
        let _ = Rollback.execute(conn);
        Begin.execute(conn).map_err(store_error)?;
    }
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| work(conn)))
        .unwrap_or_else(|_| Err(StoreError::Internal("a read panicked".into())))
        .map_err(|error| examined(conn, error));
    // Nothing was written, so commit and rollback are equivalent. SQLite ends the transaction itself on some errors.
    if let Err(error) = Commit.execute(conn)
        && Rollback.execute(conn).is_err()
        && outcome.is_ok()
    {
        return Err(store_error(error));
    }
    outcome
}
