//! Limits how often keys are fetched from the issuer, whatever tokens callers send.

use std::time::{Duration, Instant};

/// Fetches that are allowed at once after a pause: enough for a key rotation and a failed response.
const BURST: u32 = 4;
/// After the burst, one fetch per this time.
const EVERY: Duration = Duration::from_secs(10);

/// The remaining fetches.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: u32,
    since: Option<Instant>,
}

impl Allowance {
    pub const fn new() -> Self {
        Self {
            left: BURST,
            since: None,
        }
    }

    /// Takes one fetch; `false` if none is left.
    pub fn take(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let earned =
            u32::try_from(now.saturating_duration_since(since).as_secs() / EVERY.as_secs())
                .unwrap_or(BURST)
                .min(BURST);
        if earned > 0 {
            self.left = (self.left + earned).min(BURST);
            self.since = Some(now);
        }
        let taken = self.left > 0;
        self.left -= u32::from(taken);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_questions_at_once_and_then_one_in_ten_seconds() {
        #[expect(clippy::disallowed_methods, reason = "a moment to count from")]
        let (mut allowance, start) = (Allowance::new(), Instant::now());
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
