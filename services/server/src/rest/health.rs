//! Liveness, readiness and metrics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use context_engine::Caller;
use context_model::{Error, Reason};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::app::App;
use crate::problem::Problem;

/// The reply of a health check.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok`.
    #[schema(example = "ok")]
    status: &'static str,
    /// The version of the service.
    #[schema(example = "0.1.0")]
    version: &'static str,
}

const OK: Health = Health {
    status: "ok",
    version: env!("CARGO_PKG_VERSION"),
};

/// Liveness check
///
/// Responds without accessing the database.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "healthz",
    tag = "operation",
    responses((status = 200, description = "The process is alive", body = Health))
)]
pub async fn healthz() -> axum::Json<Health> {
    axum::Json(OK)
}

/// Readiness check
///
/// Checks that the database responds and has the right schema. Returns 503 if a check fails, or if the
/// database has reported damage. A stopping service accepts no connections.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "readyz",
    tag = "operation",
    responses((status = 200, description = "The service is ready", body = Health))
)]
pub async fn readyz(State(app): State<Arc<App>>) -> Result<axum::Json<Health>, Problem> {
    let limit = std::time::Duration::from_secs(2);
    match tokio::time::timeout(limit, app.engine.check()).await {
        Ok(Ok(())) => Ok(axum::Json(OK)),
        // Load balancers understand 503, whatever the cause.
        Ok(Err(error)) => Err(Error::new(Reason::StoreUnavailable, error.message.clone())
            .with_source(error)
            .into()),
        Err(_) => Err(Error::new(
            Reason::StoreUnavailable,
            "the database did not respond within two seconds",
        )
        .into()),
    }
}

/// Metrics for Prometheus
///
/// Returns counts of operations by outcome, durations, connections, memory, and the state of the database.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "operation",
    responses((status = 200, description = "OpenMetrics text", content_type = "application/openmetrics-text", body = String))
)]
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let limit = std::time::Duration::from_secs(1);
    let caller = Caller::local();
    let (statistics, waiting) = tokio::join!(
        tokio::time::timeout(limit, app.engine.get_statistics(&caller, None)),
        tokio::time::timeout(limit, app.engine.retrieval.waiting_entries()),
    );
    let store = statistics
        .ok()
        .and_then(Result::ok)
        .and_then(|statistics| statistics.connection_metrics);
    if let Ok(Ok(waiting)) = waiting {
        let (entries, seconds) = waiting.unwrap_or((0, Some(0)));
        app.metrics.set_pending(entries, seconds);
    }
    app.metrics
        .body_bytes
        .set(i64::try_from(app.budget.used()).unwrap_or(i64::MAX));
    if let Some(authenticator) = &app.authenticator {
        app.metrics
            .key_verifications
            .set(i64::try_from(authenticator.verifications()).unwrap_or(i64::MAX));
    }
    let mut response = (StatusCode::OK, app.metrics.render(store.as_ref())).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(crate::metrics::CONTENT_TYPE),
    );
    response
}
