//! How fast a provider encodes texts.

use std::sync::Mutex;
use std::time::Duration;

use crate::lock;

/// How much an older measurement counts, relative to the one after it. Small, because the load of the machine changes
/// from one search to the next.
const FADING: f64 = 0.7;

/// The tokens that were encoded recently and the time that they took. More recent ones count more.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    tokens: f64,
    seconds: f64,
}

impl Pace {
    /// Records how long this many tokens took, waiting included.
    pub fn record(&self, tokens: usize, took: Duration) {
        let mut recent = lock::locked(&self.0);
        recent.tokens = recent.tokens * FADING + tokens as f64;
        recent.seconds = recent.seconds * FADING + took.as_secs_f64();
    }

    /// How many tokens can be encoded in this time. `None` before the first measurement.
    pub fn tokens_in(&self, time: Duration) -> Option<usize> {
        let recent = lock::locked(&self.0);
        (recent.seconds > 0.0)
            .then(|| (recent.tokens / recent.seconds * time.as_secs_f64()) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_pace_is_that_of_recent_texts() {
        let pace = Pace::default();
        assert_eq!(pace.tokens_in(SECOND), None);
        pace.record(500, SECOND / 2);
        assert_eq!(pace.tokens_in(SECOND), Some(1_000));
        assert_eq!(pace.tokens_in(SECOND / 10), Some(100));
        for _ in 0..20 {
            pace.record(100, SECOND);
        }
        let tokens = pace.tokens_in(SECOND).expect("it was measured");
        assert!((100..=110).contains(&tokens), "{tokens}");
    }
}
