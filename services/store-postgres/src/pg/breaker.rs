//! Refusing at once while the server cannot be reached.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// Counts failures to reach the server. After so many in a row operations are refused at once for a while, then one of
/// them tries again and decides for all. Only the server's health counts: nothing a client sends opens it.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures: u32,
    recovery: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    failed: u32,
    /// Operations are refused until then.
    closed_until: Option<Instant>,
}

impl Breaker {
    pub fn new(failures: u32, recovery: Duration) -> Self {
        Self {
            failures: failures.max(1),
            recovery,
            state: Mutex::new(State {
                failed: 0,
                closed_until: None,
            }),
        }
    }

    /// Whether an operation may try the server now. Whoever comes first after the wait is let through, and the others
    /// wait for what it finds.
    pub fn lets_through(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.closed_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                state.closed_until = Some(now + self.recovery);
                true
            }
        }
    }

    /// The server answered.
    pub fn reached(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.closed_until.is_some() {
            tracing::info!("PostgreSQL answers again");
        }
        *state = State {
            failed: 0,
            closed_until: None,
        };
    }

    /// The server could not be reached.
    pub fn failed(&self, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed = state.failed.saturating_add(1);
        if state.failed >= self.failures {
            if state.closed_until.is_none() {
                tracing::warn!(
                    failures = state.failed,
                    "PostgreSQL cannot be reached; refusing operations between attempts"
                );
            }
            state.closed_until = Some(now + self.recovery);
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
        let start = Instant::now();
        breaker.failed(start);
        breaker.failed(start);
        assert!(breaker.lets_through(start));
        breaker.failed(start);
        assert!(!breaker.lets_through(start));
        let later = start + RECOVERY;
        assert!(breaker.lets_through(later), "one tries");
        assert!(!breaker.lets_through(later), "the others wait for it");
        breaker.failed(later);
        assert!(!breaker.lets_through(later + RECOVERY / 2));
        assert!(breaker.lets_through(later + RECOVERY));
        breaker.reached();
        assert!(breaker.lets_through(later));
    }

    #[test]
    fn success_in_between_starts_the_count_again() {
        let breaker = Breaker::new(2, RECOVERY);
        let now = Instant::now();
        for _ in 0..10 {
            breaker.failed(now);
            breaker.reached();
        }
        assert!(breaker.lets_through(now));
    }
}
