//! The system's time, for values that tests send to the real binaries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use context_model::Timestamp;

/// The current time.
///
/// # Panics
/// When the clock of this machine is before 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock of the tests")]
pub fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock after 1970");
    Timestamp(i64::try_from(since.as_micros()).expect("a time that fits into 64 bits"))
}

/// The current time plus this duration.
///
/// # Panics
/// When the time is out of range.
#[must_use]
pub fn from_now(duration: Duration) -> Timestamp {
    Timestamp(now().micros() + i64::try_from(duration.as_micros()).expect("a short duration"))
}
