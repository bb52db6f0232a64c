//! Lookups on the calling thread, without a round trip to a reader thread.
//!
//! A lookup reads a few pages that are nearly always in memory, in a tenth of the time needed to wake a reader thread
//! and be woken by it. But a thread that serves requests must not wait for a disk. After a slow lookup, all lookups use
//! the reader threads for a while. A slow disk therefore delays at most one request per connection and pause.

#![expect(clippy::disallowed_methods, reason = "how long lookups take")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_store::StoreError;
use diesel::sqlite::SqliteConnection;

use crate::connection;
use crate::readers::in_transaction;

/// A lookup that takes longer than this has waited for something. From memory it takes about 20 to 50 µs.
const SLOW: Duration = Duration::from_millis(1);

/// How long lookups use the reader threads after a slow one.
const PAUSE: Duration = Duration::from_millis(100);

/// Connections for lookups. Each is used by one thread at a time.
pub(crate) struct Inline {
    /// `None` after [`Self::close`].
    connections: Mutex<Option<Vec<SqliteConnection>>>,
    epoch: Instant,
    /// Time, in microseconds after `epoch`, until which no lookup runs here.
    paused_until: AtomicU64,
}

impl Inline {
    /// Runs lookups on these connections, which must not wait for locks.
    pub fn new(connections: Vec<SqliteConnection>) -> Self {
        Self {
            connections: Mutex::new(Some(connections)),
            epoch: Instant::now(),
            paused_until: AtomicU64::new(0),
        }
    }

    /// Runs `work` in a transaction of its own. `None` means that the caller must use a reader thread: lookups are
    /// paused, no connection is free, `work` returned `None`, or it failed, perhaps only because it did not wait for a
    /// lock.
    pub fn try_read<T>(
        &self,
        work: impl FnOnce(&mut SqliteConnection) -> Result<Option<T>, StoreError>,
    ) -> Option<T> {
        let started = Instant::now();
        if self.since_epoch(started) < self.paused_until.load(Ordering::Relaxed) {
            return None;
        }
        let mut conn = self.lock().as_mut()?.pop()?;
        let outcome = in_transaction(&mut conn, work);
        if let Some(connections) = self.lock().as_mut() {
            connections.push(conn);
        }
        let ended = Instant::now();
        if ended.duration_since(started) > SLOW {
            self.paused_until
                .store(self.since_epoch(ended + PAUSE), Ordering::Relaxed);
        }
        outcome.ok().flatten()
    }

    /// Frees the page caches of the connections.
    pub fn release_memory(&self) {
        self.lock()
            .iter_mut()
            .flatten()
            .for_each(connection::release_memory);
    }

    /// Closes the connections. One that a lookup uses is closed after it. Later lookups use the reader threads.
    pub fn close(&self) {
        let connections = self.lock().take();
        drop(connections);
    }

    fn since_epoch(&self, instant: Instant) -> u64 {
        u64::try_from(instant.duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<SqliteConnection>>> {
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
            "a slow lookup still returns its result"
        );
        assert_eq!(inline.try_read(|_| Ok(Some(3))), None);
        inline.paused_until.store(0, Ordering::Relaxed);
        assert_eq!(
            inline.try_read(|_| Ok(Some(4))),
            Some(4),
            "lookups resume after the pause"
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

    #[test]
    fn a_connection_in_use_is_not_used_again_after_a_close() {
        let inline = inline();
        let closing = inline.try_read(|_| {
            inline.close();
            Ok(Some(1))
        });
        assert_eq!(closing, Some(1));
        assert_eq!(inline.try_read(|_| Ok(Some(2))), None);
    }
}
