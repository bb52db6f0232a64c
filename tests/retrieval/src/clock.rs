use std::sync::atomic::{AtomicI64, Ordering};

use context_engine::Clock;
use context_model::Timestamp;

/// A clock that advances only by the minutes in the set.
#[derive(Debug, Default)]
pub struct SetClock {
    micros: AtomicI64,
}

impl SetClock {
    /// Advances the clock by some minutes.
    pub fn pass(&self, minutes: u32) {
        self.micros
            .fetch_add(i64::from(minutes) * 60_000_000, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.micros.fetch_add(1, Ordering::Relaxed))
    }
}
