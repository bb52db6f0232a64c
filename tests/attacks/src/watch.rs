//! Watching a value while an attack goes on.

use std::time::{Duration, Instant};

/// Watches a value until `done` is true, and gives the largest that was seen.
pub async fn highest(mut value: impl FnMut() -> u64, mut done: impl FnMut() -> bool) -> u64 {
    let mut highest = value();
    while !done() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        highest = highest.max(value());
    }
    highest.max(value())
}

/// Whether this time has passed since the call.
#[expect(clippy::disallowed_methods, reason = "an attack goes on for a while")]
pub fn passed(time: Duration) -> impl FnMut() -> bool {
    let started = Instant::now();
    move || started.elapsed() > time
}
