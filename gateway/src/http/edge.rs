//! The layer around the MCP transport. It admits requests, reads and checks their bodies, runs the messages of a batch,
//! and turns the transport's errors about a body into JSON-RPC errors.

#![expect(clippy::disallowed_methods, reason = "measures how long a body takes")]

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use context_model::Error;
use futures::StreamExt as _;
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

use crate::batch;
use crate::envelope::{self, Envelope};
use crate::http::held;
use crate::http::streams::Streams;
use crate::memory::{BYTES_PER_BYTE, BYTES_PER_VALUE, Budget, Caller, Lease};
use crate::scan::Scan;

/// How long a client may pause while it sends a body.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// Time within which a short body must arrive; longer bodies get more time ([`BODY_RATE`]).
const BODY_TIME: Duration = Duration::from_secs(60);
/// Minimum rate at which a long body must arrive, in bytes per second.
const BODY_RATE: usize = 64 * 1024;
/// Maximum time for which the rest of a refused body is read ([`discard`]).
const LINGER: Duration = Duration::from_secs(5);
/// The error for JSON that is not a message.
const NOT_A_MESSAGE: &str = "Invalid Request: the body is not a JSON-RPC message of MCP";
/// Maximum number of bytes that are read of the transport's error about a body.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Limits the requests in flight, and the memory of requests and replies.
#[derive(Debug, Clone)]
pub struct Admission {
    budget: Arc<Budget>,
    streams: Arc<Streams>,
    max_message_bytes: usize,
}

impl Admission {
    /// An admission for messages of up to `max_message_bytes`.
    #[must_use]
    pub fn new(budget: Arc<Budget>, max_message_bytes: usize) -> Self {
        Self {
            budget,
            streams: Arc::default(),
            max_message_bytes,
        }
    }
}

/// Admits a request, adapts its headers to the transport, refuses bodies that must not be parsed,
/// and turns the transport's plain-text errors about a body into JSON-RPC errors. The request's
/// memory is released when its reply has been sent.
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
    let response = if request.method() == Method::POST && has_json_body(request.headers()) {
        body(&admission, caller, &lease, request, next).await
    } else {
        next.run(request).await
    };
    let response = if response.status() == StatusCode::NOT_ACCEPTABLE {
        // The transport's own words require event streams too, which `accept_both` adds.
        let sentence = "the client must accept application/json\n";
        (StatusCode::NOT_ACCEPTABLE, sentence).into_response()
    } else {
        response
    };
    let Some(length) = response.body().size_hint().exact() else {
        // `streams` counts it instead. The MCP server keeps parts of the request, and its lease, until the stream ends.
        lease.leave();
        return match admission.streams.open(caller) {
            Ok(stream) => response.map(|body| held::until_sent(body, Arc::new(stream))),
            Err(error) => refused(&error),
        };
    };
    lease.settle(usize::try_from(length).unwrap_or(usize::MAX));
    response.map(|body| held::until_sent(body, lease))
}

/// Reads a message or a batch and passes it on. A message that must not be parsed gets an error with its id. One that
/// has no memory, or needs a scope that the caller lacks, gets an HTTP error without it.
async fn body(
    admission: &Admission,
    caller: Caller,
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
            tracing::debug!(%cause, "Could not read a request body");
            let message = "Parse error: the body ended early, arrived too slowly, or does not match its framing headers";
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
        // A message with too many values was read only in part.
        let id = envelope
            .as_ref()
            .and_then(|envelope| envelope.id.clone())
            .or_else(|| scan.id());
        return json_rpc_error(status(id.is_some()), &id.unwrap_or_default(), -32600, &why);
    }
    let messages = match batch::messages(&body).filter(|_| has_batches(&parts.headers)) {
        None => None,
        Some(Ok(messages)) => Some(
            messages
                .iter()
                .map(|message| body.slice_ref(message.get().as_bytes()))
                .collect::<Vec<Bytes>>(),
        ),
        Some(Err(why)) => {
            return json_rpc_error(StatusCode::BAD_REQUEST, &Value::Null, -32600, &why);
        }
    };
    let each = messages.as_deref().unwrap_or(std::slice::from_ref(&body));
    if let Some(refusal) = each
        .iter()
        .find_map(|message| super::auth::refusal(&parts.extensions, message))
    {
        return refusal;
    }
    // The memory for everything that is built from the body. `read` has counted the body itself.
    let wanted = body
        .len()
        .saturating_mul(BYTES_PER_BYTE - 1)
        .saturating_add(scan.values().saturating_mul(BYTES_PER_VALUE));
    if let Err(error) = lease.grow(wanted) {
        return refused(&error);
    }
    match messages {
        None => {
            parts.extensions.insert(lease.clone());
            message(parts, body, next).await
        }
        Some(messages) => run_batch(admission, caller, parts, messages, next).await,
    }
}

/// Whether the client's protocol revision has batches. The specification prescribes which revision to assume for a
/// client that does not name its own: [`batch::REVISION`]
/// (<https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#protocol-version-header>).
fn has_batches(headers: &HeaderMap) -> bool {
    headers
        .get("mcp-protocol-version")
        .is_none_or(|revision| revision == batch::REVISION)
}

/// Passes on the messages of a batch, all at the same time, and puts their responses into one array. Each message
/// counts as a request of the caller. When the client disconnects, all of them are cancelled.
async fn run_batch(
    admission: &Admission,
    caller: Caller,
    mut parts: Parts,
    messages: Vec<Bytes>,
    next: Next,
) -> Response {
    parts.headers.remove(header::CONTENT_LENGTH);
    let mut running = Vec::with_capacity(messages.len());
    for message in messages {
        let lease = match admission.budget.enter(caller) {
            Ok(lease) => Arc::new(lease),
            Err(error) => return refused(&error),
        };
        let mut parts = parts.clone();
        parts.extensions.insert(lease.clone());
        running.push(run_member(parts, message, next.clone(), lease));
    }
    let outcomes: Result<Vec<_>, _> = join_all(running).await.into_iter().collect();
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(refusal) => return *refusal,
    };
    // The leases are held until the array is made.
    let (responses, _leases): (Vec<_>, Vec<_>) = outcomes.into_iter().flatten().unzip();
    if responses.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], batch::array(&responses)).into_response()
}

/// The response to one message of a batch; `None` for a notification.
///
/// # Errors
/// The transport refused the head of the HTTP request, which all messages share.
async fn run_member(
    parts: Parts,
    text: Bytes,
    next: Next,
    lease: Arc<Lease>,
) -> Result<Option<(Bytes, Arc<Lease>)>, Box<Response>> {
    let response = match batch::misplaced(&text) {
        Some(error) => axum::Json(error).into_response(),
        None => message(parts, text.clone(), next).await,
    };
    let is_json = has_json_body(response.headers());
    if !is_json && !response.status().is_success() {
        return Err(Box::new(response));
    }
    let envelope = Envelope::read(&text);
    if response.status() == StatusCode::ACCEPTED
        || envelope.as_ref().is_some_and(Envelope::is_notification)
    {
        return Ok(None);
    }
    let bytes = if is_json {
        to_bytes(response.into_body(), usize::MAX).await.ok()
    } else {
        // A stream. Dropping it cancels the request.
        None
    };
    let bytes = bytes.unwrap_or_else(|| {
        let id = envelope
            .and_then(|envelope| envelope.id)
            .unwrap_or_default();
        let sentence = "Invalid Request: this request cannot be part of a batch; send it alone";
        Bytes::from(envelope::error(&id, -32600, sentence).to_string())
    });
    // The response, and its copy in the array.
    lease.settle(2 * bytes.len());
    Ok(Some((bytes, lease)))
}

/// Passes on one message. If the transport cannot parse it, the response is a JSON-RPC error.
async fn message(parts: Parts, body: Bytes, next: Next) -> Response {
    let kind = BodyKind::of(&body);
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    // The content type was JSON, so it was the body that could not be parsed.
    if response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        unreadable(response, kind).await
    } else {
        response
    }
}

/// What a body holds, as far as its outer structure shows.
enum BodyKind {
    Message(Envelope),
    /// JSON that is not a message, and the error sentence.
    OtherJson(&'static str),
    NotJson,
}

impl BodyKind {
    fn of(body: &[u8]) -> Self {
        // The parser does not check strings that it skips.
        if std::str::from_utf8(body).is_err() {
            return Self::NotJson;
        }
        match Envelope::read(body) {
            Some(envelope) => Self::Message(envelope),
            None if serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok() => {
                Self::OtherJson(batch::not_a_message(body, NOT_A_MESSAGE))
            }
            None => Self::NotJson,
        }
    }
}

/// Why a body was not read to its end.
enum Unread {
    Refused(Error),
    Broken(axum::BoxError),
}

/// Reads a body to its end, or until the scan refuses it. Memory is counted as each piece arrives.
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
            Err(_) => return Err(Unread::Broken("it arrived too slowly".into())),
        };
        length += piece.len();
        lease.grow(piece.len()).map_err(Unread::Refused)?;
        scan.feed(&piece);
        if scan.is_too_large() {
            break;
        }
        // Almost every body arrives in one piece and then needs no copy.
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

/// Reads and drops the rest of a refused body while the response is sent. Closing a connection with
/// unread data resets it, and the client would lose the response.
fn discard(mut body: BodyDataStream) {
    tokio::spawn(async move {
        let rest = async { while let Some(Ok(_)) = body.next().await {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    });
}

/// Extends `Accept` for clients that accept JSON or anything: replies are plain JSON. The transport
/// requires that the client accept event streams too, even where it never sends one.
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

fn has_json_body(headers: &HeaderMap) -> bool {
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

/// The HTTP status of a JSON-RPC error. For a request with an id it is 200, as for any other
/// response: some clients do not read the body of another status and would wait forever.
const fn status(has_id: bool) -> StatusCode {
    if has_id {
        StatusCode::OK
    } else {
        StatusCode::BAD_REQUEST
    }
}

/// The response to a request that finds no free memory or stream (503), or that could never get enough memory (413).
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

/// The response to a body that the transport could not parse.
async fn unreadable(response: Response, kind: BodyKind) -> Response {
    let cause = to_bytes(response.into_body(), MAX_ERROR_BYTES)
        .await
        .unwrap_or_default();
    // serde's error, after the transport's own words.
    let cause = String::from_utf8_lossy(&cause);
    let cause = cause
        .strip_prefix("fail to deserialize request body ")
        .unwrap_or_default();
    match kind {
        BodyKind::Message(envelope) if envelope.is_request() => {
            (StatusCode::OK, axum::Json(envelope.unreadable(cause))).into_response()
        }
        BodyKind::Message(envelope) => json_rpc_error(
            StatusCode::BAD_REQUEST,
            &envelope.id.unwrap_or_default(),
            -32600,
            NOT_A_MESSAGE,
        ),
        BodyKind::OtherJson(why) => {
            json_rpc_error(StatusCode::BAD_REQUEST, &Value::Null, -32600, why)
        }
        BodyKind::NotJson => json_rpc_error(
            StatusCode::BAD_REQUEST,
            &Value::Null,
            -32700,
            "Parse error: the body is not valid JSON in UTF-8",
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
    fn a_client_that_accepts_json_is_made_to_accept_both() {
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
