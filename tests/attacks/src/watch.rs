//! Observes a value during an attack.

use std::time::{Duration, Instant};

/// Samples a value until `done` returns true. Returns the maximum.
pub async fn highest(mut value: impl FnMut() -> u64, mut done: impl FnMut() -> bool) -> u64 {
    let mut highest = value();
    while !done() {
        tokio::time::sleep(Duration::from_millis(10)).await;
        highest = highest.max(value());
    }
    highest.max(value())
}

/// Returns a function that reports whether this time has passed since the call.
#[expect(clippy::disallowed_methods, reason = "the duration of an attack")]
pub fn passed(time: Duration) -> impl FnMut() -> bool {
    let started = Instant::now();
    move || started.elapsed() > time
}
