//! The pauses of background tasks after failures, and how many failures they skip.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// The maximum pause, even if a provider requests a longer one.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How many entries in a row may be skipped because the provider fails on them. More end the scan, and the next one
/// continues after them.
pub(super) const FAILURES_IN_A_ROW: u32 = 8;

/// The pauses while the provider or the database is unavailable: 1 s, doubled after each failure up to a minute,
/// without end.
pub(super) fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(MAX_PAUSE)
        .without_max_times()
        .build()
}
