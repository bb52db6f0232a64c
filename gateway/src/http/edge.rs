//! What happens to a request before and after the MCP transport sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::timeout::TimeoutBody;

/// Requests handled at the same time; one more is told to come back.
const MAX_REQUESTS: usize = 512;
/// Bodies up to this size need no share of the memory for large ones.
const SMALL_BODY: u64 = 1024 * 1024;
/// How long a client may pause while it sends a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);

/// Bounds the requests in work, and the bytes of large bodies in memory.
#[derive(Debug, Clone)]
pub struct Admission {
    requests: Arc<Semaphore>,
    /// A permit for each MiB of large bodies: two of the largest size fit.
    large_mib: Arc<Semaphore>,
    max_mib: u32,
}

impl Admission {
    /// For bodies up to `max_message_bytes`.
    #[must_use]
    pub fn new(max_message_bytes: usize) -> Self {
        let max_mib = u32::try_from(max_message_bytes.div_ceil(1024 * 1024)).unwrap_or(u32::MAX / 2).max(1);
        Self { requests: Arc::new(Semaphore::new(MAX_REQUESTS)), large_mib: Arc::new(Semaphore::new(2 * max_mib as usize)), max_mib }
    }

    /// The share of memory a body needs; `None` when all of it is taken.
    fn share(&self, headers: &HeaderMap) -> Option<Option<OwnedSemaphorePermit>> {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let mib = match length {
            Some(length) if length <= SMALL_BODY => return Some(None),
            Some(length) => u32::try_from(length.div_ceil(1024 * 1024)).unwrap_or(u32::MAX).min(self.max_mib),
            // Sent in chunks: it may be as large as is allowed, but hardly any is.
            None => self.max_mib.div_ceil(16),
        };
        self.large_mib.clone().try_acquire_many_owned(mib).ok().map(Some)
    }
}

/// Admits a request, makes its headers acceptable to the transport, and turns the transport's plain-text complaints
/// about a body into JSON-RPC errors.
pub async fn admit(State(admission): State<Admission>, mut request: Request, next: Next) -> Response {
    let Ok(_request_permit) = admission.requests.try_acquire() else { return overloaded() };
    let Some(_share) = admission.share(request.headers()) else { return overloaded() };
    accept_both(request.headers_mut());
    let posted_json = request.method() == Method::POST && sends_json(request.headers());
    let broken = Arc::new(AtomicBool::new(false));
    let seen_broken = broken.clone();
    let request = request.map(|body| {
        Body::new(TimeoutBody::new(BODY_PAUSE, body).map_err(move |cause| {
            broken.store(true, Ordering::Relaxed);
            cause
        }))
    });
    let response = next.run(request).await;
    // The transport calls a body that it could not read an error of its own.
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR && seen_broken.load(Ordering::Relaxed) {
        return refusal(-32700, "Parse error: the body ended early, paused too long, or is not framed as its headers say");
    }
    // The content type was JSON, so what could not be read was the body.
    if posted_json && response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        return unreadable(response).await;
    }
    response
}

/// A client that takes JSON, or anything, is served: replies are plain JSON. The transport wants to see the event
/// stream accepted too, even where it will never send one.
fn accept_both(headers: &mut HeaderMap) {
    let takes_json = match headers.get(header::ACCEPT) {
        None => true,
        Some(_) => headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).any(|value| {
            let value = value.to_ascii_lowercase();
            ["application/json", "application/*", "*/*"].iter().any(|range| value.contains(range))
        }),
    };
    if takes_json {
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    }
}

fn sends_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json"))
}

fn overloaded() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], "too many requests at once; try again in a moment\n").into_response()
}

async fn unreadable(response: Response) -> Response {
    let complaint = to_bytes(response.into_body(), 64 * 1024).await.unwrap_or_default();
    // serde's complaints about well-formed JSON of another shape begin with these words.
    let complaint = String::from_utf8_lossy(&complaint);
    let about = complaint.strip_prefix("fail to deserialize request body ").unwrap_or_default();
    let well_formed = ["unrecognized ", "data did not match", "invalid ", "missing field", "unknown ", "duplicate field"]
        .iter()
        .any(|words| about.starts_with(words));
    let (code, message) = if well_formed {
        (-32600, "Invalid Request: the body is not a JSON-RPC message of MCP")
    } else {
        (-32700, "Parse error: the body is not valid JSON")
    };
    refusal(code, message)
}

fn refusal(code: i32, message: &str) -> Response {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}});
    (StatusCode::BAD_REQUEST, axum::Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: Option<&'static str>) -> String {
        let mut headers = HeaderMap::new();
        if let Some(value) = value {
            headers.insert(header::ACCEPT, HeaderValue::from_static(value));
        }
        accept_both(&mut headers);
        headers.get(header::ACCEPT).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn whoever_takes_json_takes_what_we_send() {
        for value in [None, Some("application/json"), Some("*/*"), Some("application/json;q=0.9, text/html")] {
            assert_eq!(accept(value), "application/json, text/event-stream");
        }
        assert_eq!(accept(Some("text/html")), "text/html");
    }

    #[test]
    fn two_of_the_largest_bodies_fit_and_small_ones_always_do() {
        let admission = Admission::new(64 * 1024 * 1024);
        let with = |length: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_LENGTH, length.parse().unwrap());
            admission.share(&headers)
        };
        let first = with("67108864").unwrap();
        let _second = with("99999999999").unwrap();
        assert!(with("67108864").is_none());
        assert!(with("1048576").is_some());
        drop(first);
        assert!(with("67108864").is_some());
    }
}
