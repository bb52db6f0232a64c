//! The pauses of background tasks after failures, and the entries that they skip because the provider fails on them.

use std::collections::VecDeque;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

/// The maximum pause, even if a provider requests a longer one.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How many entries in a row may be skipped because the provider fails on them. After one more, a scan pauses, because
/// the provider may be down. It continues after these entries.
pub(super) const FAILURES_IN_A_ROW: u32 = 8;

/// Maximum number of skipped entries that are remembered. The next scan finds the others.
const MAX_SKIPPED: usize = 1_000;

/// Remembers an entry that was skipped, so that it is tried again without a scan of all entries.
pub(super) fn remember<T: PartialEq>(skipped: &mut VecDeque<T>, entry: T) {
    if skipped.len() < MAX_SKIPPED && !skipped.contains(&entry) {
        skipped.push_back(entry);
    }
}

/// The pauses while the provider or the database is unavailable: 1 s, doubled after each failure up to a minute,
/// without end.
pub(super) fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_secs(1))
        .with_max_delay(MAX_PAUSE)
        .without_max_times()
        .build()
}
