//! The layer around all routes. Before the body is read: request id, checks of host, caller and
//! scope, and a lease on memory. Afterwards: security headers, and the rendering of errors.
//!
//! Only compression and CORS are outside this layer. With allowed origins, the CORS layer answers
//! preflight requests itself, so they do not get here.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_edge::host::AllowedHosts;
use context_model::{Error, Operation, Resource, Result};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::admission::Holder;
use crate::app::App;
use crate::authenticate::authenticate;
use crate::body::Held;
use crate::cross_site::CrossSite;
use crate::logging;
use crate::memory::{Lease, Payer};
use crate::origin::{Origin, Peer};
use crate::page_session::PageSessions;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::rest;
use crate::route::{self, is_guarded, is_public_stream};
use crate::transport::Transport;

/// The header that correlates a request with the log.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The state of the layer.
pub struct Edge {
    /// The shared state.
    pub app: Arc<App>,
    /// Host names that TCP clients may use; `None`: any.
    pub hosts: Option<AllowedHosts>,
    /// Refuses requests from pages of other sites. `None` with authentication: other pages have no
    /// key.
    pub cross_site: Option<CrossSite>,
    /// The sessions without which the page's port serves no operation. `None` on all other ports,
    /// and with authentication: the page then asks for a key.
    pub sessions: Option<Arc<PageSessions>>,
}

/// Memory of a request besides its headers and body, in bytes.
const REQUEST_BYTES: usize = 4 * 1024;

/// The middleware.
pub async fn edge(State(edge): State<Arc<Edge>>, mut request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let transport = if is_grpc(request.headers()) {
        Transport::Grpc
    } else {
        Transport::Rest
    };
    let template = request.extensions().get::<MatchedPath>();
    let operation = route::operation(
        request.method(),
        request.uri().path(),
        template.map(MatchedPath::as_str),
    );
    let (mut response, held) = logging::of_request(id.clone(), async {
        let line = edge.app.request_log.begin(&request, operation, transport);
        let (response, held) = match admit(&edge, &mut request, operation, transport).await {
            Ok(held) => (next.run(request).await, Some(held)),
            Err(error) => (refusal(error, transport), None),
        };
        let response = Problem::render(response, &id);
        if let Some(line) = line {
            line.end(&response);
        }
        (response, held)
    })
    .await;
    if let Some(held) = held {
        response.extensions_mut().insert(held);
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if transport == Transport::Rest {
        headers.insert(
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        );
        headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
        // Entries are private and change.
        headers
            .entry(header::CACHE_CONTROL)
            .or_insert(HeaderValue::from_static("no-store"));
    }
    response
}

/// Decides by a request's head whether it is served, and acquires its resources.
async fn admit(
    edge: &Edge,
    request: &mut Request,
    operation: Option<Operation>,
    transport: Transport,
) -> Result<Held> {
    let app = &edge.app;
    crate::grpc::refuse_text(request.headers())?;
    let origin = Origin::of(request).cloned();
    let peer = origin.as_ref().map(|origin| origin.peer);
    if let Some(hosts) = &edge.hosts
        && peer != Some(Peer::Unix)
        && !hosts.allow(request)
    {
        return Err(unknown_host());
    }
    if let Some(cross_site) = &edge.cross_site {
        cross_site.check(request)?;
    }
    if matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::DELETE
    ) {
        // The routes of these methods do not read a body, and data that has arrived would be held
        // until the body is dropped.
        *request.body_mut() = Body::empty();
    }
    if !is_guarded(request.uri().path()) {
        let payer = if peer == Some(Peer::Unix) {
            Payer::Operator
        } else if is_public_stream(request.uri().path()) {
            Payer::PublicStream
        } else {
            Payer::Public
        };
        let lease = lease(app, &payer, request)?;
        let holder = Holder::Network(origin.and_then(|origin| origin.network));
        let slot = match payer {
            Payer::Public => Some(app.public.try_enter(holder)?),
            Payer::PublicStream => Some(app.public_streams.try_enter(holder)?),
            Payer::Operator | Payer::Owner(_) | Payer::KeysOf(_) => None,
        };
        request.extensions_mut().insert(lease.clone());
        return Ok(Held::public(lease, slot));
    }
    if let Some(sessions) = &edge.sessions {
        sessions.check(request.headers())?;
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "measures how long an operation takes"
    )]
    let started = Instant::now();
    let holder = authenticate(app, request.headers(), operation).await?;
    let owner = holder
        .as_ref()
        .map(|holder| holder.caller.owner.clone())
        .unwrap_or_default();
    let payer = match operation.map(Operation::resource) {
        // With authentication on, the socket serves every owner, not only the operator.
        _ if peer == Some(Peer::Unix) && holder.is_none() => Payer::Operator,
        Some(Resource::ApiKey) => Payer::KeysOf(owner),
        Some(Resource::Context | Resource::Artifact | Resource::Change) | None => {
            Payer::Owner(owner)
        }
    };
    let lease = lease(app, &payer, request)?;
    let ctx = RequestContext::new(holder, peer, operation, lease.clone());
    if let Some(operation) = operation {
        let allowed = ctx.caller().require(operation);
        if let Err(error) = allowed {
            app.refused(&ctx, operation, transport, error.reason, started.elapsed());
            return Err(error);
        }
        if transport == Transport::Rest && !route::takes_parameters(request.method(), operation) {
            rest::refuse_parameters(request.uri())?;
        }
    }
    request.extensions_mut().insert(ctx);
    Ok(Held::guarded(
        lease,
        origin.map(|origin| origin.connection.authenticated_request()),
    ))
}

/// The lease of a request. It already counts the request's head.
fn lease(app: &App, payer: &Payer, request: &Request) -> Result<Arc<Lease>> {
    let headers: usize = request
        .headers()
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 32)
        .sum();
    let lease = Lease::new(&app.budget, payer);
    lease.grow(
        REQUEST_BYTES
            + headers
            + request.uri().path().len()
            + request.uri().query().map_or(0, str::len),
    )?;
    Ok(Arc::new(lease))
}

fn refusal(error: Error, transport: Transport) -> Response {
    match transport {
        Transport::Grpc => crate::error_codes::status(&error)
            .into_http::<Body>()
            .into_response(),
        Transport::Rest => Problem::from(error).into_response(),
    }
}

/// The caller's request id if it is short and safe in logs and headers; else a new one.
#[expect(clippy::disallowed_methods, reason = "it only joins lines of the log")]
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let harmless = |id: &&HeaderValue| {
        (1..=128).contains(&id.len())
            && id
                .as_bytes()
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    if let Some(id) = headers.get(REQUEST_ID).filter(harmless) {
        return id.clone();
    }
    let mut text = [0; uuid::fmt::Simple::LENGTH];
    let text = uuid::Uuid::now_v7().simple().encode_lower(&mut text);
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("unknown"))
}

/// Whether a request is gRPC or gRPC-Web, judged by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn unknown_host() -> Error {
    let sentence = "`Host` is not an allowed host name of this service; add it to CONTEXT_ALLOWED_HOSTS if it is yours";
    Error::invalid("Host", sentence)
}
