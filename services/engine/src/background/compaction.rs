//! Removes old changes from the feed, and old lines from the audit log.

use std::future::Future;
use std::time::Duration;

use context_model::Timestamp;
use context_store::{Result, Retention, StoreError};

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
    /// Removes old changes from the feed, for as long as the future is polled. The audit log has a limit of its own.
    pub async fn compact(&self, config: ChangesConfig, clock: &dyn Clock) {
        let retention = || Retention {
            before: days_ago(config.retention_days, clock),
            max_rows: config.max_rows,
        };
        let changes = self.store.changes();
        remove("changes from the feed", || changes.compact(retention())).await;
    }

    /// Removes lines that are older than this many days from the audit logs, except those of changes that are still in
    /// the feed, for as long as the future is polled. With `None` it removes nothing and returns.
    pub async fn shorten_audit_logs(&self, days: Option<i64>, clock: &dyn Clock) {
        let Some(days) = days else { return };
        let keys = self.store.keys();
        remove("lines from the audit log", || {
            keys.remove_audit_lines(days_ago(days, clock))
        })
        .await;
    }
}

fn days_ago(days: i64, clock: &dyn Clock) -> Timestamp {
    let age = days.saturating_mul(MICROS_OF_A_DAY);
    Timestamp(clock.now().micros().saturating_sub(age))
}

/// Removes batch after batch, and checks again every minute.
async fn remove<F: Future<Output = Result<u64>>>(what: &str, batch: impl Fn() -> F) {
    let mut removed = 0;
    loop {
        let pause = match batch().await {
            Ok(0) => INTERVAL,
            Ok(more) => {
                removed += more;
                PAUSE
            }
            // Expected every minute of a standby.
            Err(error @ StoreError::ReadOnly(_)) => {
                tracing::debug!(%error, "Could not remove old {what}; will retry");
                INTERVAL
            }
            Err(error) => {
                tracing::warn!(%error, "Could not remove old {what}; will retry");
                INTERVAL
            }
        };
        if pause == INTERVAL && removed > 0 {
            tracing::info!(removed, "Removed old {what}");
            removed = 0;
        }
        tokio::time::sleep(pause).await;
    }
}
