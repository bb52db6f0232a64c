//! The HTTP transport: stateless streamable HTTP on `/mcp`, and the health routes.

mod auth;
mod edge;
mod held;
mod hosts;
mod origins;
mod serve;
mod streams;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use context_edge::host::AllowedHosts;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;
use tower::limit::ConcurrencyLimitLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::handler::Gateway;
use crate::memory::Budget;
pub use auth::Guarded;
pub use origins::AllowedOrigin;
use origins::Origins;
pub use serve::{ConnectionLimits, serve};

/// The configuration of the HTTP transport.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Host names by which clients reach this server, besides loopback names and IP addresses.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call, besides this server's own loopback origins, as [`AllowedOrigin`] reads them.
    pub allowed_origins: Vec<String>,
    /// The protected resource, if every request needs a valid key or token; `None` if
    /// authentication is off.
    pub guarded_as: Option<Guarded>,
    /// The largest request body, in bytes.
    pub max_message_bytes: usize,
}

impl HttpConfig {
    fn origins(&self) -> Origins {
        let port = self.listen.port();
        let mut origins: Vec<String> = ["localhost", "127.0.0.1", "[::1]"]
            .iter()
            .map(|host| format!("http://{host}:{port}"))
            .collect();
        origins.extend(self.allowed_origins.iter().cloned());
        Origins::new(&origins)
    }
}

/// Maximum number of concurrent requests for `/readyz`, which any caller can make without credentials.
const MAX_PROBES: usize = 16;

/// The routes. `stop` ends the long subscription streams.
pub fn app(
    gateway: Arc<Gateway>,
    config: &HttpConfig,
    budget: Arc<Budget>,
    stop: CancellationToken,
) -> Router {
    let service = StreamableHttpService::new(
        {
            let gateway = gateway.clone();
            move || Ok(gateway.clone())
        },
        Arc::new(NeverSessionManager::default()),
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_retry(None)
            // `hosts::admit` and `origins::admit` check them, on every path.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(config.max_message_bytes)
            .with_cancellation_token(stop),
    );
    let hosts = Arc::new(AllowedHosts::new(&config.allowed_hosts));
    let origins = config.origins();
    let admission = edge::Admission::new(budget, config.max_message_bytes);
    let mut routes = Router::new()
        .route_service("/mcp", service.clone())
        .route_service("/mcp/", service)
        .layer(from_fn_with_state(admission, edge::admit));
    if let Some(guarded) = &config.guarded_as {
        let guard = auth::Guard::new(gateway.clone(), guarded.clone());
        let metadata = guard.metadata();
        routes = routes.layer(from_fn_with_state(guard, auth::admit));
        for path in auth::METADATA_PATHS {
            let metadata = metadata.clone();
            routes = routes.route(path, get(|| async move { axum::Json(metadata) }));
        }
    }
    routes
        .layer(cors(origins.clone()))
        .route("/healthz", get(|| async { "ok\n" }))
        .route(
            "/readyz",
            get(ready).layer(ConcurrencyLimitLayer::new(MAX_PROBES)),
        )
        // Outside of CORS, which answers the preflight of any origin with 200.
        .layer(from_fn_with_state(origins, origins::admit))
        .layer(from_fn_with_state(hosts, hosts::admit))
        .layer(CatchPanicLayer::new())
        .with_state(gateway)
}

/// Adds CORS headers for the allowed origins.
fn cors(origins: Origins) -> CorsLayer {
    let allowed = AllowOrigin::predicate(move |origin, _| origins.allow(origin));
    let mcp = [
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "traceparent",
        "tracestate",
    ];
    let mut headers = vec![header::ACCEPT, header::AUTHORIZATION, header::CONTENT_TYPE];
    headers.extend(mcp.map(HeaderName::from_static));
    CorsLayer::new()
        .allow_origin(allowed)
        .allow_methods([Method::POST])
        .allow_headers(headers)
        .expose_headers([header::WWW_AUTHENTICATE, header::RETRY_AFTER])
        .max_age(Duration::from_secs(3600))
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> (StatusCode, &'static str) {
    if gateway.backend().is_ready(Duration::from_secs(2)).await {
        (StatusCode::OK, "ready\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the context service cannot be reached\n",
        )
    }
}
