//! The source of time.

use std::time::{SystemTime, UNIX_EPOCH};

use context_model::Timestamp;

/// The source of time. Tests pass their own.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Timestamp {
        let elapsed = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
    }
}
