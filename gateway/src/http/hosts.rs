//! Refuses requests for host names that are not this gateway's.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_edge::host::AllowedHosts;

/// Refuses requests for other host names.
pub async fn admit(
    State(hosts): State<Arc<AllowedHosts>>,
    request: Request,
    next: Next,
) -> Response {
    if hosts.allow(&request) {
        next.run(request).await
    } else {
        (
            StatusCode::FORBIDDEN,
            "this host name is not allowed; GATEWAY_ALLOWED_HOSTS names those that are\n",
        )
            .into_response()
    }
}
