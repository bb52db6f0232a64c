//! How fast waiting entries get their vectors.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock;

/// How much an older measurement counts, relative to the one after it.
const FADING: f64 = 0.9;

/// The entries that were embedded in the background recently, and the time that they took.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    entries: f64,
    seconds: f64,
}

impl Progress {
    /// Records how long it took until this many entries had their vectors.
    pub fn record(&self, entries: u64, took: Duration) {
        let mut recent = lock::locked(&self.0);
        recent.entries = recent.entries * FADING + entries as f64;
        recent.seconds = recent.seconds * FADING + took.as_secs_f64();
    }

    /// Forgets the measurements, because the provider or the database is unavailable, or the provider fails on entries.
    pub fn stop(&self) {
        *lock::locked(&self.0) = Recent::default();
    }

    /// In how many seconds this many waiting entries will have their vectors. `None` if no entry got any recently.
    pub fn seconds(&self, waiting: i64) -> Option<i64> {
        if waiting == 0 {
            return Some(0);
        }
        let recent = lock::locked(&self.0);
        (recent.entries > 0.0)
            .then(|| (waiting as f64 * recent.seconds / recent.entries).ceil() as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_recent_speed_and_is_unknown_while_nothing_is_embedded() {
        let progress = Progress::default();
        assert_eq!((progress.seconds(0), progress.seconds(5)), (Some(0), None));
        progress.record(16, Duration::from_secs(8));
        assert_eq!(progress.seconds(5), Some(3), "rounded up");
        for _ in 0..80 {
            progress.record(16, Duration::from_secs(32));
        }
        assert_eq!(progress.seconds(100), Some(200));
        progress.stop();
        assert_eq!(progress.seconds(100), None);
    }
}
