//! What happens to a request before and after the MCP transport sees it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use context_model::{Error, Reason};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::envelope::{self, Envelope};
use crate::http::held;
use crate::memory::{BYTES_PER_BYTE, BYTES_PER_VALUE, Budget, Caller, Lease};
use crate::scan::Scan;

/// Streams of announcements at once; one more is told to come back.
const MAX_STREAMS: usize = 256;
/// How long a client may pause while it sends a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// A body has this long to come, and more for what came of it.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Bytes a second that a long body comes at, at least.
const BODY_RATE: usize = 64 * 1024;
/// How long what is left of a refused body is read.
const LINGER: Duration = Duration::from_secs(5);
/// Bytes of the transport's complaint about a body that are read.
const MAX_COMPLAINT: usize = 64 * 1024;

/// Bounds the requests in work, and the memory that they and their replies take.
#[derive(Debug, Clone)]
pub struct Admission {
    budget: Arc<Budget>,
    streams: Arc<Semaphore>,
    max_message_bytes: usize,
}

impl Admission {
    /// For messages up to `max_message_bytes`.
    #[must_use]
    pub fn new(budget: Arc<Budget>, max_message_bytes: usize) -> Self {
        Self {
            budget,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            max_message_bytes,
        }
    }
}

/// Admits a request, makes its headers acceptable to the transport, keeps away what must not be parsed, and turns the
/// transport's plain-text complaints about a body into JSON-RPC errors. The request's memory is given back when its
/// reply is sent.
pub async fn admit(
    State(admission): State<Admission>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = request
        .extensions()
        .get::<Caller>()
        .copied()
        .unwrap_or(Caller::Anyone);
    let lease = match admission.budget.enter(caller) {
        Ok(lease) => Arc::new(lease),
        Err(error) => return refused(&error),
    };
    accept_both(request.headers_mut());
    let response = if request.method() == Method::POST && sends_json(request.headers()) {
        message(&admission, &lease, request, next).await
    } else {
        next.run(request).await
    };
    let Some(length) = response.body().size_hint().exact() else {
        // A stream takes no memory to speak of, and no request's place.
        drop(lease);
        let Ok(place) = admission.streams.clone().try_acquire_owned() else {
            return refused(&overloaded());
        };
        return response.map(|body| held::until_sent(body, Arc::new(place)));
    };
    lease.settle(usize::try_from(length).unwrap_or(usize::MAX));
    response.map(|body| held::until_sent(body, lease))
}

/// Reads a message, has it handled, and sees to it that a request gets an answer with its id.
async fn message(
    admission: &Admission,
    lease: &Arc<Lease>,
    request: Request,
    next: Next,
) -> Response {
    let announced = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let mut scan = Scan::new(admission.max_message_bytes);
    let (mut parts, body) = request.into_parts();
    let mut body = body.into_data_stream();
    if announced.is_some_and(|length| length > admission.max_message_bytes) {
        discard(body);
        return json_rpc_error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &Value::Null,
            -32600,
            &scan.too_large(),
        );
    }
    let read = read(&mut body, &mut scan, lease).await;
    if scan.refusal().is_some() || matches!(read, Err(Unread::Refused(_))) {
        discard(body);
    }
    let body = match read {
        Ok(body) => body,
        Err(Unread::Refused(error)) => return refused(&error),
        Err(Unread::Broken(cause)) => {
            tracing::debug!(%cause, "A request body could not be read");
            let message = "Parse error: the body ended early, came too slowly, or is not framed as its headers say";
            return json_rpc_error(StatusCode::BAD_REQUEST, &Value::Null, -32700, message);
        }
    };
    if let Some(why) = scan.refusal() {
        if scan.is_too_large() {
            return json_rpc_error(
                StatusCode::PAYLOAD_TOO_LARGE,
                &scan.id().unwrap_or_default(),
                -32600,
                &why,
            );
        }
        let envelope = Envelope::read(&body);
        // Of a message with too many values only a part was read.
        let id = envelope
            .as_ref()
            .and_then(|envelope| envelope.id.clone())
            .or_else(|| scan.id());
        return json_rpc_error(status(id.is_some()), &id.unwrap_or_default(), -32600, &why);
    }
    if let Some(refusal) = super::auth::refusal(&parts.extensions, &body) {
        return refusal;
    }
    // What was read, and all that is made of it.
    let wanted = body
        .len()
        .saturating_mul(BYTES_PER_BYTE - 1)
        .saturating_add(scan.values().saturating_mul(BYTES_PER_VALUE));
    if let Err(error) = lease.grow(wanted) {
        return refused(&error);
    }
    parts.extensions.insert(lease.clone());
    let outside = Outside::of(&body);
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    // The content type was JSON, so what could not be read was the body.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        unreadable(response, outside).await
    } else {
        response
    }
}

/// What a body is, seen from outside.
enum Outside {
    Message(Envelope),
    OtherJson,
    NoJson,
}

impl Outside {
    fn of(body: &[u8]) -> Self {
        match Envelope::read(body) {
            Some(envelope) => Self::Message(envelope),
            None if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() => {
                Self::OtherJson
            }
            None => Self::NoJson,
        }
    }
}

/// Why there is no body.
enum Unread {
    Refused(Error),
    Broken(axum::BoxError),
}

/// Reads a body until its end or until the scan refuses it. Each piece counts as soon as it is there.
async fn read(body: &mut BodyDataStream, scan: &mut Scan, lease: &Lease) -> Result<Bytes, Unread> {
    let began = Instant::now();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0;
    loop {
        let pace = Duration::from_secs((length / BODY_RATE) as u64);
        let latest = (Instant::now() + BODY_PAUSE).min(began + BODY_TIME + pace);
        let piece = match tokio::time::timeout_at(latest, body.next()).await {
            Ok(Some(Ok(piece))) => piece,
            Ok(Some(Err(cause))) => return Err(Unread::Broken(cause.into())),
            Ok(None) => break,
            Err(_) => return Err(Unread::Broken("it came too slowly".into())),
        };
        length += piece.len();
        lease.grow(piece.len()).map_err(Unread::Refused)?;
        scan.feed(&piece);
        if scan.is_too_large() {
            break;
        }
        // Nearly every body comes in one piece, which then needs no copy.
        if first.is_empty() {
            first = piece;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&piece);
        }
        if scan.refusal().is_some() {
            break;
        }
    }
    Ok(if rest.is_empty() {
        first
    } else {
        rest.freeze()
    })
}

/// Reads what is left of a refused body, and drops it, while the answer is sent. A connection that is closed with unread data is
/// reset, and the client loses the answer.
fn discard(mut body: BodyDataStream) {
    tokio::spawn(async move {
        let rest = async { while let Some(Ok(_)) = body.next().await {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    });
}

/// A client that takes JSON, or anything, is served: replies are plain JSON. The transport wants to see the event
/// stream accepted too, even where it will never send one.
fn accept_both(headers: &mut HeaderMap) {
    let takes_json = match headers.get(header::ACCEPT) {
        None => true,
        Some(_) => headers
            .get_all(header::ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .any(|value| {
                let value = value.to_ascii_lowercase();
                ["application/json", "application/*", "*/*"]
                    .iter()
                    .any(|range| value.contains(range))
            }),
    };
    if takes_json {
        headers.insert(
            header::ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
    }
}

fn sends_json(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| {
            value
                .split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .eq_ignore_ascii_case("application/json")
        })
}

/// The status of an answer: a request that has an id reads it in the body, as with any other answer; some clients
/// read no body of another status, and would wait for ever.
const fn status(has_id: bool) -> StatusCode {
    if has_id {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    }
}

fn overloaded() -> Error {
    Error::new(
        Reason::Overloaded,
        "too many streams at once; retry in a second",
    )
    .with_retry_after(Duration::from_secs(1))
}

/// The answer to a request for which there is no room.
fn refused(error: &Error) -> Response {
    let text = format!("{}\n", error.message);
    match error.retry_after {
        Some(after) => {
            let after = HeaderValue::from(after.as_secs().max(1));
            (
                StatusCode::SERVICE_UNAVAILABLE,
                [(header::RETRY_AFTER, after)],
                text,
            )
                .into_response()
        }
        None => (StatusCode::PAYLOAD_TOO_LARGE, text).into_response(),
    }
}

/// The answer to a body that the transport could not read.
async fn unreadable(response: Response, outside: Outside) -> Response {
    const NO_MESSAGE: &str = "Invalid Request: the body is not a JSON-RPC message of MCP";
    let complaint = to_bytes(response.into_body(), MAX_COMPLAINT)
        .await
        .unwrap_or_default();
    // serde's complaint, after the transport's own words.
    let complaint = String::from_utf8_lossy(&complaint);
    let complaint = complaint
        .strip_prefix("fail to deserialize request body ")
        .unwrap_or_default();
    match outside {
        Outside::Message(envelope) if envelope.is_request() => {
            (StatusCode::OK, axum::Json(envelope.unreadable(complaint))).into_response()
        }
        Outside::Message(envelope) => json_rpc_error(
            StatusCode::BAD_REQUEST,
            &envelope.id.unwrap_or_default(),
            -32600,
            NO_MESSAGE,
        ),
        Outside::OtherJson => {
            json_rpc_error(StatusCode::BAD_REQUEST, &Value::Null, -32600, NO_MESSAGE)
        }
        Outside::NoJson => json_rpc_error(
            StatusCode::BAD_REQUEST,
            &Value::Null,
            -32700,
            "Parse error: the body is not valid JSON",
        ),
    }
}

fn json_rpc_error(status: StatusCode, id: &Value, code: i32, message: &str) -> Response {
    (status, axum::Json(envelope::error(id, code, message))).into_response()
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
        headers
            .get(header::ACCEPT)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn whoever_takes_json_takes_what_we_send() {
        for value in [
            None,
            Some("application/json"),
            Some("*/*"),
            Some("application/json;q=0.9, text/html"),
        ] {
            assert_eq!(accept(value), "application/json, text/event-stream");
        }
        assert_eq!(accept(Some("text/html")), "text/html");
    }
}
