//! The request rate of a key or a token holder.

use std::time::{Duration, Instant};

use context_model::{Error, Reason, Result};

/// A rate limit, applied to each key and each token holder separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Sustained requests per minute; at least 1.
    pub per_minute: u32,
    /// Requests that are allowed at once after a pause.
    pub burst: u32,
}

/// The token bucket of one key or token holder.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Requests that the rate has not replenished yet.
    spent: f64,
    /// When `spent` was last computed.
    at: Option<Instant>,
}

impl Bucket {
    /// Takes one request.
    ///
    /// # Errors
    /// `RATE_LIMITED` with the time until the next request is allowed.
    pub fn take(&mut self, rate: &Rate, now: Instant) -> Result<()> {
        let per_second = f64::from(rate.per_minute.max(1)) / 60.0;
        let passed = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        self.spent = (self.spent - passed.as_secs_f64() * per_second).max(0.0);
        let over = self.spent + 1.0 - f64::from(rate.burst.max(1));
        if over <= 0.0 {
            self.spent += 1.0;
            return Ok(());
        }
        let wait = Duration::from_secs_f64(over / per_second);
        let seconds = wait.as_nanos().div_ceil(1_000_000_000).max(1);
        let sentence = format!(
            "these credentials may make {} requests a minute; retry in {seconds} seconds",
            rate.per_minute
        );
        Err(Error::new(Reason::RateLimited, sentence).with_retry_after(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_served_and_then_the_rate() {
        let rate = Rate {
            per_minute: 60,
            burst: 3,
        };
        #[expect(clippy::disallowed_methods, reason = "a start time")]
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        for _ in 0..3 {
            bucket.take(&rate, start).unwrap();
        }
        let refused = bucket.take(&rate, start).unwrap_err();
        assert_eq!(
            (refused.reason, refused.retry_after),
            (Reason::RateLimited, Some(Duration::from_secs(1)))
        );
        bucket.take(&rate, start + Duration::from_secs(1)).unwrap();
        assert!(bucket.take(&rate, start + Duration::from_secs(1)).is_err());
    }

    #[test]
    fn the_sentence_rounds_the_wait_up() {
        let rate = Rate {
            per_minute: 40,
            burst: 1,
        };
        #[expect(clippy::disallowed_methods, reason = "a start time")]
        let (mut bucket, start) = (Bucket::default(), Instant::now());
        bucket.take(&rate, start).unwrap();
        let refused = bucket.take(&rate, start).unwrap_err();
        assert_eq!(refused.retry_after, Some(Duration::from_millis(1500)));
        assert!(
            refused.message.ends_with("retry in 2 seconds"),
            "{}",
            refused.message
        );
    }
}
