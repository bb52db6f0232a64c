//! When to retry a request, and after which pause.

use std::time::Duration;

use backon::ExponentialBuilder;
use reqwest::StatusCode;
use reqwest::header::{self, HeaderMap};

/// The pauses between three attempts: 125 ms and 250 ms. Jitter lengthens each pause to at most twice that, so that
/// callers that failed together do not retry together.
pub(super) const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(125))
    .with_jitter()
    .with_max_times(2);
/// Maximum pause after which a request is retried. If the server asks for a longer pause, the call fails and its error
/// has the pause.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Whether a later attempt may succeed: after overload, timeouts and server failures, but not after an invalid request.
pub(super) fn is_retryable(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        || matches!(status.as_u16(), 408 | 429)
}

/// The pause that the server asks for. Only seconds are supported, not dates: no model provider sends those.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: f64 = headers
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    // At most a day, even if the header asks for more.
    (seconds >= 0.0).then(|| Duration::from_secs_f64(seconds.min(86_400.0)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use backon::BackoffBuilder as _;

    use super::*;

    #[test]
    fn overload_and_failures_of_the_server_may_pass_and_wrong_requests_do_not() {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            assert!(
                is_retryable(StatusCode::from_u16(status).unwrap()),
                "{status}"
            );
        }
        for status in [400, 401, 403, 404, 413, 422, 501] {
            assert!(
                !is_retryable(StatusCode::from_u16(status).unwrap()),
                "{status}"
            );
        }
    }

    #[test]
    fn the_server_says_how_long_to_wait() {
        let after = |value: &'static str| {
            retry_after(&HeaderMap::from_iter([(
                header::RETRY_AFTER,
                header::HeaderValue::from_static(value),
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
        let (mut first, mut second) = (HashSet::new(), HashSet::new());
        for _ in 0..100 {
            let pauses: Vec<Duration> = PAUSES.build().collect();
            assert!(pauses.len() == 2, "three attempts: {pauses:?}");
            first.insert(pauses[0]);
            second.insert(pauses[1]);
        }
        let within = |pauses: &HashSet<Duration>, from, to| {
            let range = Duration::from_millis(from)..=Duration::from_millis(to);
            pauses.len() > 90 && pauses.iter().all(|pause| range.contains(pause))
        };
        assert!(within(&first, 125, 250), "{first:?}");
        assert!(within(&second, 250, 500), "{second:?}");
    }
}
