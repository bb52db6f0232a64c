//! Circuit breaker: rejects operations at once while the server cannot be reached.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Counts consecutive failures to reach the server. After a set number the breaker opens: operations are rejected at
/// once for a while. Then one operation tries again. If it reaches the server, the breaker closes; otherwise it stays
/// open. Only the server's health counts: no client request can open the breaker.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// The breaker opens after this many consecutive failures.
    failures: u32,
    /// How long an open breaker rejects operations before it lets one through.
    recovery: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Consecutive failures so far.
    failed: u32,
    /// Operations are rejected until then. `None` while the breaker is closed.
    open_until: Option<Instant>,
}

impl Breaker {
    pub fn new(failures: u32, recovery: Duration) -> Self {
        Self {
            failures: failures.max(1),
            recovery,
            state: Mutex::new(State {
                failed: 0,
                open_until: None,
            }),
        }
    }

    /// Whether an operation may try the server now. After the wait, the first caller may. The others are rejected until
    /// its result is known, or for another `recovery`.
    pub fn lets_through(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.open_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                state.open_until = Some(now + self.recovery);
                true
            }
        }
    }

    /// Records that the server responded.
    pub fn reached(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open_until.is_some() {
            tracing::info!("PostgreSQL responds again");
        }
        *state = State {
            failed: 0,
            open_until: None,
        };
    }

    /// Records that the server could not be reached.
    pub fn failed(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed = state.failed.saturating_add(1);
        if state.failed >= self.failures {
            if state.open_until.is_none() {
                tracing::warn!(
                    failures = state.failed,
                    "PostgreSQL cannot be reached; operations are rejected between attempts to reach it"
                );
            }
            state.open_until = Some(now + self.recovery);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECOVERY: Duration = Duration::from_millis(500);

    #[test]
    fn it_opens_after_failures_in_a_row_and_lets_one_try_again() {
        let breaker = Breaker::new(3, RECOVERY);
        #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
        let start = Instant::now();
        breaker.failed(start);
        breaker.failed(start);
        assert!(breaker.lets_through(start));
        breaker.failed(start);
        assert!(!breaker.lets_through(start));
        let later = start + RECOVERY;
        assert!(breaker.lets_through(later), "one tries");
        assert!(!breaker.lets_through(later), "the others are rejected");
        breaker.failed(later);
        assert!(!breaker.lets_through(later + RECOVERY / 2));
        assert!(breaker.lets_through(later + RECOVERY));
        breaker.reached();
        assert!(breaker.lets_through(later));
    }

    #[test]
    fn success_in_between_starts_the_count_again() {
        let breaker = Breaker::new(2, RECOVERY);
        #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
        let now = Instant::now();
        for _ in 0..10 {
            breaker.failed(now);
            breaker.reached();
        }
        assert!(breaker.lets_through(now));
    }
}
