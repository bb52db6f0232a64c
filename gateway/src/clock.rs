//! The clock of this machine.

#![expect(
    clippy::disallowed_methods,
    reason = "hooks and commands are processes of their own, outside the engine and its clock; the time orders files and shows ages"
)]

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
#[must_use]
pub fn now_micros() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
