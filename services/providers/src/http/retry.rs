//! When a request is worth another attempt, and after which pause.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

/// Attempts in all.
pub(super) const ATTEMPTS: u32 = 3;
/// A pause that a server asks for is kept up to this; a longer one is handed to the caller.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Whether a later attempt may succeed: overload, timeouts and failures of the server. Never a request that is wrong.
pub(super) fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(status.as_u16(), 408 | 429)
}

/// The pause the server asks for. Only seconds are understood, not dates: no model provider sends those.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    // No longer than a day, whatever somebody writes there.
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(86_400.0)))
}

/// The pause after this many failed attempts: doubled each time, and half of it by chance, so that callers that failed
/// together do not come back together.
pub(super) fn pause(failed: u32) -> Duration {
    let whole = FIRST_PAUSE * 2u32.saturating_pow(failed.saturating_sub(1).min(8));
    let chance = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish() as f64
        / u64::MAX as f64;
    whole.mul_f64(0.5 + 0.5 * chance).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overload_and_failures_of_the_server_may_pass_and_wrong_requests_do_not() {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            assert!(may_pass(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        for status in [400, 401, 403, 404, 413, 422, 501] {
            assert!(!may_pass(StatusCode::from_u16(status).unwrap()), "{status}");
        }
    }

    #[test]
    fn the_server_says_how_long_to_wait() {
        let after = |value: &'static str| {
            retry_after(&HeaderMap::from_iter([(
                header::RETRY_AFTER,
                http::HeaderValue::from_static(value),
            )]))
        };
        assert_eq!(after("2"), Some(Duration::from_secs(2)));
        assert_eq!(after("1e300"), Some(Duration::from_secs(86_400)));
        assert_eq!(
            (
                after("-1"),
                after("NaN"),
                after("Wed, 21 Oct 2026 07:28:00 GMT")
            ),
            (None, None, None)
        );
    }

    #[test]
    fn pauses_grow_and_differ_by_chance() {
        for failed in 1..10 {
            let pause = pause(failed);
            assert!(pause >= Duration::from_millis(125) && pause <= LONGEST_PAUSE);
        }
        assert!(pause(4) > pause(1));
    }
}
