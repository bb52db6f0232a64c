//! Lookups on the thread that asks, without the way to a reader thread and back.
//!
//! A lookup reads a few pages that are in memory nearly always, in a tenth of the time that it takes to wake a reader
//! thread and be woken by it. But a thread that serves requests must not wait for a disk: after a lookup that was slow,
//! all of them go through the reader threads for a while. So a disk holds up one request in that while, at most.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_store::StoreError;
use diesel::sqlite::SqliteConnection;

use crate::connection;
use crate::readers::in_transaction;

/// A lookup that takes longer has waited for something: from memory it takes some 20 to 50 µs.
const SLOW: Duration = Duration::from_millis(1);

/// How long lookups go through the reader threads after a slow one.
const REST: Duration = Duration::from_millis(100);

/// Connections for lookups, each used by one thread at a time.
pub(crate) struct Inline {
    connections: Mutex<Vec<SqliteConnection>>,
    epoch: Instant,
    /// Microseconds after `epoch` until which nothing runs here.
    resting_until: AtomicU64,
}

impl Inline {
    /// Lookups through these connections, which must not wait for locks.
    pub fn new(connections: Vec<SqliteConnection>) -> Self {
        Self {
            connections: Mutex::new(connections),
            epoch: Instant::now(),
            resting_until: AtomicU64::new(0),
        }
    }

    /// Runs `work` in a transaction of its own. `None` when it has to go through a reader thread: lookups rest, no
    /// connection is free, `work` itself says so, or it failed, perhaps only because it did not wait for a lock.
    pub fn try_read<T>(
        &self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<Option<T>, StoreError>,
    ) -> Option<T> {
        let started = Instant::now();
        if self.since_epoch(started) < self.resting_until.load(Ordering::Relaxed) {
            return None;
        }
        let mut conn = self.lock().pop()?;
        let outcome = in_transaction(&mut conn, work);
        self.lock().push(conn);
        let ended = Instant::now();
        if ended.duration_since(started) > SLOW {
            self.resting_until
                .store(self.since_epoch(ended + REST), Ordering::Relaxed);
        }
        outcome.ok().flatten()
    }

    /// Gives back the pages that the connections keep.
    pub fn release_memory(&self) {
        self.lock().iter_mut().for_each(connection::release_memory);
    }

    /// Closes the connections; later lookups go through the reader threads.
    pub fn close(&self) {
        let connections = std::mem::take(&mut *self.lock());
        drop(connections);
    }

    fn since_epoch(&self, instant: Instant) -> u64 {
        u64::try_from(instant.duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SqliteConnection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use diesel::Connection as _;

    use super::*;

    fn inline() -> Inline {
        Inline::new(vec![SqliteConnection::establish(":memory:").unwrap()])
    }

    #[test]
    fn a_lookup_that_fails_is_left_to_the_reader_threads_and_the_next_one_runs_here() {
        let inline = inline();
        assert_eq!(
            inline.try_read(|_| Err::<Option<()>, _>(StoreError::Closed)),
            None
        );
        assert_eq!(inline.try_read(|_| Ok(Some(1))), Some(1));
    }

    #[test]
    fn lookups_rest_after_a_slow_one() {
        let inline = inline();
        assert_eq!(inline.try_read(|_| Ok(Some(1))), Some(1));
        let slow = || {
            let started = Instant::now();
            while started.elapsed() <= SLOW {
                std::hint::spin_loop();
            }
            Ok(Some(2))
        };
        assert_eq!(
            inline.try_read(|_| slow()),
            Some(2),
            "its own answer counts"
        );
        assert_eq!(inline.try_read(|_| Ok(Some(3))), None);
        inline.resting_until.store(0, Ordering::Relaxed);
        assert_eq!(
            inline.try_read(|_| Ok(Some(4))),
            Some(4),
            "they go on when the rest is over"
        );
    }

    #[test]
    fn a_lookup_within_a_lookup_finds_no_connection_and_a_closed_one_neither() {
        let inline = inline();
        assert_eq!(
            inline.try_read(|_| Ok(Some(inline.try_read(|_| Ok(Some(1)))))),
            Some(None)
        );
        inline.close();
        assert_eq!(inline.try_read(|_| Ok(Some(1))), None);
    }
}
