//! Limits how many requests callers can cause to the issuer: a token bucket.

use std::time::{Duration, Instant};

/// The requests that are still allowed.
#[derive(Debug)]
pub(crate) struct Allowance {
    burst: u32,
    every: Duration,
    left: u32,
    /// The time up to which `left` was refilled.
    since: Option<Instant>,
}

impl Allowance {
    /// Allows `burst` requests at once, and refills one in each `every`.
    pub const fn new(burst: u32, every: Duration) -> Self {
        Self {
            burst,
            every,
            left: burst,
            since: None,
        }
    }

    /// Takes one request; `false` if none is left.
    pub fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let earned =
            u32::try_from(now.saturating_duration_since(since).as_secs() / self.every.as_secs())
                .unwrap_or(self.burst)
                .min(self.burst);
        if earned > 0 {
            self.left = (self.left + earned).min(self.burst);
            self.since = Some(now);
        }
        let taken = self.left > 0;
        self.left -= u32::from(taken);
        taken
    }

    /// Gives one request back.
    pub fn give_back(&mut self) {
        self.left = (self.left + 1).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_questions_at_once_and_then_one_in_ten_seconds() {
        #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
        let (mut allowance, start) = (Allowance::new(4, Duration::from_secs(10)), Instant::now());
        assert_eq!((0..10).filter(|_| allowance.take(start)).count(), 4);
        assert!(!allowance.take(start + Duration::from_secs(9)));
        assert!(allowance.take(start + Duration::from_secs(10)));
        assert!(!allowance.take(start + Duration::from_secs(11)));
        assert_eq!(
            (0..10)
                .filter(|_| allowance.take(start + Duration::from_secs(1000)))
                .count(),
            4
        );
    }
}
