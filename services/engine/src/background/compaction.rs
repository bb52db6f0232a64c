//! Removes old changes from the feed.

use std::time::Duration;

use context_model::Timestamp;
use context_store::Retention;

use super::Background;
use crate::clock::Clock;

/// Pause between batches, so that this uses a small part of the database's capacity.
const PAUSE: Duration = Duration::from_millis(20);
/// Pause when nothing is left to remove, and after a failure.
const INTERVAL: Duration = Duration::from_secs(60);
const MICROS_OF_A_DAY: i64 = 24 * 3600 * 1_000_000;

/// How long changes stay in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangesConfig {
    /// Changes that are older than this many days are removed.
    pub retention_days: i64,
    /// Maximum number of changes of each owner.
    pub max_rows: i64,
}

impl Default for ChangesConfig {
    fn default() -> Self {
        Self {
            retention_days: 30,
            max_rows: 10_000_000,
        }
    }
}

impl Background {
    /// Removes old changes from the feed, for as long as the future is polled. The audit log keeps them.
    pub async fn compact(&self, config: ChangesConfig, clock: &dyn Clock) {
        let mut removed = 0;
        loop {
            let age = config.retention_days.saturating_mul(MICROS_OF_A_DAY);
            let retention = Retention {
                before: Timestamp(clock.now().micros().saturating_sub(age)),
                max_rows: config.max_rows,
            };
            let pause = match self.store.changes().compact(retention).await {
                Ok(0) => INTERVAL,
                Ok(moved) => {
                    removed += moved;
                    PAUSE
                }
                Err(error) => {
                    tracing::debug!(error = %error, "Could not remove old changes from the feed; will retry");
                    INTERVAL
                }
            };
            if pause == INTERVAL && removed > 0 {
                tracing::info!(changes = removed, "Removed old changes from the feed");
                removed = 0;
            }
            tokio::time::sleep(pause).await;
        }
    }
}
