//! What happens to every HTTP request, whatever its route: a request id, the check of its host, the memory of its
//! body, safe headers, and the rendering of failures.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_model::Error;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use tracing::Instrument as _;

use crate::app::App;
use crate::host::AllowedHosts;
use crate::memory::{Framing, HeldBody, Lease, LeasedBody, ReplyLease};
use crate::rest::Problem;

/// The header that correlates a request with the log.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the edge knows.
pub struct Edge {
    /// The shared state.
    pub app: Arc<App>,
    /// The hosts under which TCP clients may call; `None`: any.
    pub hosts: Option<AllowedHosts>,
}

/// How a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Over TCP.
    Tcp,
    /// Over the Unix socket, from a process of the same user.
    Unix,
}

/// The middleware.
pub async fn edge(State(edge): State<Arc<Edge>>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let grpc = is_grpc(request.headers());
    let span = tracing::info_span!("request", id = id.to_str().unwrap_or_default(), method = %request.method());
    let lease = Arc::new(Lease::new(edge.app.budget.clone()));
    let mut response = async {
        if let Some(hosts) = &edge.hosts
            && request.extensions().get::<Peer>() != Some(&Peer::Unix)
            && !hosts.allow(&request)
        {
            return Problem::render(refuse_host(grpc), &id);
        }
        if !request.body().is_end_stream() {
            let framing = if grpc { Framing::grpc(edge.app.limits.max_message_bytes()) } else { Framing::Plain };
            request.extensions_mut().insert(lease.clone());
            let lease = lease.clone();
            request = request.map(|body| Body::new(LeasedBody::new(body, lease, framing)));
        }
        let response = next.run(request).await;
        Problem::render(response, &id)
    }
    .instrument(span)
    .await;
    drop(lease);
    if let Some(ReplyLease(lease)) = response.extensions_mut().remove() {
        response = response.map(|body| Body::new(HeldBody::new(body, lease)));
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !grpc {
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        // Entries are private and change.
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

/// The id that the caller gave, when it is short and harmless in a log and a header, else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let harmless = |id: &&HeaderValue| {
        (1..=128).contains(&id.len()) && id.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    if let Some(id) = headers.get(REQUEST_ID).filter(harmless) {
        return id.clone();
    }
    let mut text = [0; uuid::fmt::Simple::LENGTH];
    let text = uuid::Uuid::now_v7().simple().encode_lower(&mut text);
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Whether a request is gRPC or gRPC-Web, by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn refuse_host(grpc: bool) -> Response {
    let sentence = "`Host` is a name under which this service is not known; add it to CONTEXT_ALLOWED_HOSTS if it is yours";
    let error = Error::invalid("Host", sentence);
    if grpc { crate::wire::status(&error).into_http::<Body>().into_response() } else { Problem::from(error).into_response() }
}
