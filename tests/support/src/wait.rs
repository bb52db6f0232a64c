//! Waiting for a condition.

#![expect(clippy::disallowed_methods, reason = "the deadlines of waits")]

use std::time::Duration;

use tokio::time::Instant;

/// Maximum time for anything that should be immediate. A loaded machine may need several seconds, but a minute
/// indicates a defect.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Interval between checks of a condition.
const POLL: Duration = Duration::from_millis(5);

/// The end of a loop that waits: one minute after its creation.
#[derive(Debug)]
pub struct Deadline(Instant);

impl Default for Deadline {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadline {
    /// Starts the minute.
    #[must_use]
    pub fn new() -> Self {
        Self(Instant::now() + LIMIT)
    }

    /// Pauses before the next check.
    ///
    /// # Panics
    /// When the minute is over. The message says what was awaited.
    pub async fn pause(&self, what: impl FnOnce() -> String) {
        assert!(Instant::now() < self.0, "{}: not within a minute", what());
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until `ready` returns a value.
///
/// # Panics
/// When it returns none within a minute.
pub async fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::new();
    loop {
        if let Some(found) = ready() {
            return found;
        }
        deadline.pause(|| what.to_owned()).await;
    }
}

/// Waits until the condition holds.
///
/// # Panics
/// When it does not hold within a minute.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Deadline::new();
    while !holds().await {
        deadline.pause(|| what.to_owned()).await;
    }
}
