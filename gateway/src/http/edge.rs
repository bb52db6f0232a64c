//! What happens to a request before and after the MCP transport sees it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_http::timeout::TimeoutBody;

use crate::scan::Scan;

/// Requests handled at the same time; one more is told to come back.
const MAX_REQUESTS: usize = 512;
const MIB: usize = 1024 * 1024;
/// What takes no more memory than this is not counted.
const SMALL: usize = 4 * MIB;
/// Bytes of memory for a byte of a message: as it is read, copied and sent on.
const BYTES_PER_BYTE: usize = 3;
/// Bytes of memory for a parsed value, measured.
const BYTES_PER_VALUE: usize = 260;
/// How long a client may pause while it sends a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);

/// Bounds the requests in work, and the memory that large ones take.
#[derive(Debug, Clone)]
pub struct Admission {
    requests: Arc<Semaphore>,
    /// A permit for each MiB that large messages take: two of the largest size fit.
    large_mib: Arc<Semaphore>,
    max_message_bytes: usize,
}

impl Admission {
    /// For messages up to `max_message_bytes`.
    #[must_use]
    pub fn new(max_message_bytes: usize) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(MAX_REQUESTS)),
            large_mib: Arc::new(Semaphore::new(2 * BYTES_PER_BYTE * max_message_bytes.div_ceil(MIB))),
            max_message_bytes,
        }
    }

    /// The share for a body of this length, or for one sent in chunks: it may be as large as is allowed, but hardly
    /// any is.
    fn for_body(&self, headers: &HeaderMap) -> Option<Share> {
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let length = length.map_or(self.max_message_bytes / 16, |length| length.min(self.max_message_bytes));
        self.share(length.saturating_mul(BYTES_PER_BYTE))
    }

    /// The share for this many parsed values.
    fn for_values(&self, values: usize) -> Option<Share> {
        self.share(values.saturating_mul(BYTES_PER_VALUE))
    }

    /// A share of memory; `None` when too much of it is taken. Little needs none.
    fn share(&self, bytes: usize) -> Option<Share> {
        if bytes <= SMALL {
            return Some(None);
        }
        let mib = u32::try_from(bytes.div_ceil(MIB)).ok()?;
        self.large_mib.clone().try_acquire_many_owned(mib).ok().map(Some)
    }
}

/// Memory that is given back when this is dropped; `None` for the little that is not counted.
type Share = Option<OwnedSemaphorePermit>;

/// Admits a request, makes its headers acceptable to the transport, keeps away what must not be parsed, and turns the
/// transport's plain-text complaints about a body into JSON-RPC errors.
pub async fn admit(State(admission): State<Admission>, mut request: Request, next: Next) -> Response {
    let Ok(_request_permit) = admission.requests.try_acquire() else { return overloaded() };
    accept_both(request.headers_mut());
    if request.method() != Method::POST || !sends_json(request.headers()) {
        return next.run(request).await;
    }
    let Some(_body_share) = admission.for_body(request.headers()) else { return overloaded() };
    let (parts, body) = request.into_parts();
    let mut scan = Scan::new(admission.max_message_bytes);
    let body = match read(body, &mut scan).await {
        Ok(body) => body,
        Err(cause) => {
            tracing::debug!(%cause, "A request body could not be read");
            let message = "Parse error: the body ended early, paused too long, or is not framed as its headers say";
            return json_rpc_error(StatusCode::BAD_REQUEST, &Value::Null, -32700, message);
        }
    };
    if let Some(why) = scan.refusal() {
        let status = if body.len() >= admission.max_message_bytes { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        return json_rpc_error(status, &scan.id().unwrap_or_default(), -32600, &why);
    }
    if let Some(refusal) = super::auth::refusal(&parts.extensions, &body) {
        return refusal;
    }
    let Some(_values_share) = admission.for_values(scan.values()) else { return overloaded() };
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    // The content type was JSON, so what could not be read was the body.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE { unreadable(response).await } else { response }
}

/// Reads a body until its end or until the scan refuses it.
async fn read(body: Body, scan: &mut Scan) -> Result<Bytes, axum::Error> {
    let mut stream = Body::new(TimeoutBody::new(BODY_PAUSE, body)).into_data_stream();
    let mut first = None;
    let mut rest = BytesMut::new();
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        scan.feed(&piece);
        // Nearly every body comes in one piece, which then needs no copy.
        match &first {
            None => first = Some(piece),
            Some(_) => rest.extend_from_slice(&piece),
        }
        if scan.refusal().is_some() {
            break;
        }
    }
    let first = first.unwrap_or_default();
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
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
    json_rpc_error(StatusCode::BAD_REQUEST, &Value::Null, code, message)
}

fn json_rpc_error(status: StatusCode, id: &Value, code: i32, message: &str) -> Response {
    let body = serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    (status, axum::Json(body)).into_response()
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
        let admission = Admission::new(64 * MIB);
        let with = |length: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_LENGTH, length.parse().unwrap());
            admission.for_body(&headers)
        };
        let first = with("67108864").unwrap();
        let _second = with("99999999999").unwrap();
        assert!(with("67108864").is_none());
        assert!(admission.for_values(1_000_000).is_none());
        assert!(with("1048576").is_some());
        assert!(admission.for_values(1000).is_some());
        drop(first);
        assert!(with("67108864").is_some());
    }
}
