//! Circuit breaker for a provider that does not respond. While the provider is down, every call would wait for the full
//! timeout and add to the load that keeps it down. After some consecutive failures, calls fail at once, and from time
//! to time one trial call is made.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long no calls are made to a provider"
)]

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::ProviderError;

/// Number of consecutive failed calls after which calls pause.
const FAILURES: u32 = 3;
/// First and maximum pause without calls. The pause doubles each time a trial fails.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Maximum pause that a provider can request.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Breaker {
    /// A call that its caller abandons after this time counts as a failure.
    slow_after: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of failed calls since the provider last responded.
    failed: u32,
    /// The error of the last failed call.
    what: String,
    /// Calls fail until this time. After it, one call may try.
    until: Option<Instant>,
    /// The current length of the pause.
    pause: Duration,
}

/// A call. If it is dropped before [`responded`](Self::responded) or [`failed`](Self::failed), its caller abandoned it.
#[derive(Debug)]
pub(super) struct Call<'b> {
    breaker: &'b Breaker,
    since: Instant,
    is_trial: bool,
    has_ended: bool,
}

impl Breaker {
    /// `timeout` is the timeout of a call's attempts. A call that is abandoned before half of it has passed does not
    /// count.
    pub fn new(timeout: Duration) -> Self {
        Self {
            slow_after: timeout / 2,
            state: Mutex::default(),
        }
    }

    /// Begins a call.
    ///
    /// # Errors
    /// `Unavailable` while calls pause.
    pub fn enter(&self) -> Result<Call<'_>, ProviderError> {
        let mut state = self.lock();
        let now = Instant::now();
        if let Some(until) = state.until {
            let left = until.saturating_duration_since(now);
            if !left.is_zero() {
                let what = format!(
                    "{}; the next attempt is in {} s",
                    state.what,
                    left.as_secs_f64().ceil()
                );
                return Err(ProviderError::Unavailable {
                    what,
                    retry_after: Some(left),
                });
            }
            // A trial usually ends soon. A long one must not block the other calls.
            state.until = Some(now + FIRST_PAUSE);
        }
        Ok(Call {
            breaker: self,
            since: now,
            is_trial: state.until.is_some(),
            has_ended: false,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'_> {
    /// Records that the provider responded, even if with an error.
    pub fn responded(mut self) {
        self.has_ended = true;
        let before = std::mem::take(&mut *self.breaker.lock());
        if before.until.is_some() {
            tracing::info!("The provider responds again");
        }
    }

    /// Records that the provider did not respond. `retry_after` is the pause that it requested.
    pub fn failed(mut self, what: &str, retry_after: Option<Duration>) {
        self.end(what, retry_after, 2);
    }

    /// `growth` is the factor by which the pause grows when a trial fails.
    fn end(&mut self, what: &str, retry_after: Option<Duration>, growth: u32) {
        self.has_ended = true;
        let mut state = self.breaker.lock();
        let retry_after = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        // If an earlier call received a response meanwhile, the pause is over and this call is no trial.
        let is_trial = self.is_trial && state.until.is_some();
        if !is_trial && state.until.is_some() {
            // Other calls failed meanwhile and have already started the pause.
            state.until = state.until.max(Some(Instant::now() + retry_after));
            return;
        }
        state.failed = state.failed.saturating_add(1);
        what.clone_into(&mut state.what);
        if !is_trial && state.failed < FAILURES && retry_after.is_zero() {
            return;
        }
        let longer = if is_trial {
            (state.pause * growth).min(MAX_PAUSE)
        } else {
            Duration::ZERO
        };
        state.pause = if state.failed < FAILURES {
            Duration::ZERO
        } else {
            longer.max(FIRST_PAUSE)
        };
        let pause = state.pause.max(retry_after);
        if !is_trial {
            tracing::warn!(
                what,
                failed = state.failed,
                seconds = pause.as_secs_f64(),
                "The provider does not respond; pausing calls"
            );
        }
        state.until = Some(Instant::now() + pause);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let waited = self.since.elapsed();
        if waited >= self.breaker.slow_after {
            self.end(
                &format!("no response within {:.1} s", waited.as_secs_f64()),
                None,
                1,
            );
        } else if self.is_trial {
            let mut state = self.breaker.lock();
            // The trial's result is unknown. The next call may try.
            state.until = state.until.map(|_| Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(breaker: &Breaker) -> bool {
        breaker
            .enter()
            .map(|call| call.failed("broken", None))
            .is_ok()
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn after_failures_in_a_row_one_call_tries_ever_more_seldom() {
        let breaker = Breaker::new(Duration::from_secs(2));
        assert_eq!([fail(&breaker), fail(&breaker)], [true, true]);
        breaker.enter().unwrap().responded();
        assert_eq!(
            [
                fail(&breaker),
                fail(&breaker),
                fail(&breaker),
                fail(&breaker)
            ],
            [true, true, true, false],
            "only consecutive failures count"
        );
        let error = breaker.enter().unwrap_err();
        let expected = ProviderError::Unavailable {
            what: "broken; the next attempt is in 2 s".to_owned(),
            retry_after: Some(Duration::from_secs(2)),
        };
        assert_eq!(error, expected);
        for pause in [2, 4, 8, 16, 32, 60, 60] {
            pass(pause - 1).await;
            assert!(!fail(&breaker), "{pause}");
            pass(1).await;
            let trial = breaker.enter().unwrap();
            assert!(breaker.enter().is_err(), "one at a time");
            trial.failed("broken", None);
        }
        pass(60).await;
        breaker.enter().unwrap().responded();
        assert_eq!(
            [
                fail(&breaker),
                fail(&breaker),
                fail(&breaker),
                fail(&breaker)
            ],
            [true, true, true, false]
        );
        pass(2).await;
        assert!(
            breaker.enter().is_ok(),
            "after a success the pause is the first one again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_provider_asks_for_is_kept_at_once() {
        let breaker = Breaker::new(Duration::from_secs(2));
        breaker
            .enter()
            .unwrap()
            .failed("busy", Some(Duration::from_secs(30)));
        pass(29).await;
        assert!(breaker.enter().is_err());
        pass(1).await;
        breaker.enter().unwrap().failed("busy", None);
        assert!(breaker.enter().is_ok(), "two failures are fewer than three");
        breaker.enter().unwrap().responded();
        breaker
            .enter()
            .unwrap()
            .failed("busy", Some(Duration::from_secs(86_400)));
        pass(600).await;
        assert!(breaker.enter().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_abandoned_early_does_not_count_and_one_that_waited_does() {
        let breaker = Breaker::new(Duration::from_secs(2));
        for _ in 0..10 {
            drop(breaker.enter().unwrap());
        }
        for _ in 0..3 {
            let call = breaker.enter().unwrap();
            pass(2).await;
            drop(call);
        }
        assert!(
            breaker
                .enter()
                .unwrap_err()
                .to_string()
                .contains("no response within 2.0 s")
        );
        pass(2).await;
        drop(breaker.enter().unwrap());
        let slow = breaker
            .enter()
            .expect("an abandoned trial lets another call try");
        assert!(breaker.enter().is_err());
        pass(2).await;
        breaker
            .enter()
            .expect("a long trial lets another call try")
            .responded();
        slow.failed("broken", None);
        assert!(breaker.enter().is_ok(), "the provider has responded");
    }
}
