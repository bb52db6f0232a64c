//! REST: the same operations as gRPC, in the same JSON as MCP.

mod artifacts;
mod body;
mod conditional;
mod contexts;
mod docs;
mod health;
mod keys;
mod openapi;
mod overview;
mod problem;
mod query;
mod search;
mod versions;

pub use conditional::idempotency_key;
pub use openapi::document;
pub use problem::Problem;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use context_model::{Error, Reason};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The documented routes with their documentation.
fn documented() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(
            contexts::store_context,
            contexts::get_context_by_ids
        ))
        .routes(routes!(
            contexts::store_context_batch,
            contexts::update_context_batch
        ))
        .routes(routes!(contexts::delete_context))
        .routes(routes!(contexts::delete_context_batch))
        .routes(routes!(
            contexts::get_context,
            contexts::update_context,
            contexts::delete_context_by_id
        ))
        .routes(routes!(search::search_context))
        .routes(routes!(search::semantic_search_context))
        .routes(routes!(search::fts_search_context))
        .routes(routes!(search::hybrid_search_context))
        .routes(routes!(overview::list_threads))
        .routes(routes!(overview::get_statistics))
        .routes(routes!(
            artifacts::create_artifact,
            artifacts::list_artifacts
        ))
        .routes(routes!(artifacts::search_artifacts))
        .routes(routes!(
            artifacts::get_artifact,
            artifacts::update_artifact,
            artifacts::delete_artifact
        ))
        .routes(routes!(versions::list_artifact_versions))
        .routes(routes!(versions::get_artifact_version))
        .routes(routes!(versions::restore_artifact_version))
        .routes(routes!(versions::diff_artifact_versions))
        .routes(routes!(keys::create_api_key, keys::list_api_keys))
        .routes(routes!(keys::get_api_key, keys::update_api_key))
        .routes(routes!(keys::deactivate_api_key))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
}

/// Every REST route. What no route takes is the caller's to answer.
pub fn router() -> Router<Arc<App>> {
    let (router, _) = documented().split_for_parts();
    router
        .merge(docs::routes())
        .method_not_allowed_fallback(method_not_allowed)
}

/// The answer for a path that no route has.
pub async fn not_found(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(100).collect();
    Error::new(
        Reason::NotFound,
        format!("there is no route {path}; GET /openapi.json lists the routes"),
    )
    .into()
}

async fn method_not_allowed(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(100).collect();
    Error::new(
        Reason::MethodNotAllowed,
        format!(
            "{path} does not take {}; `Allow` lists what it takes",
            request.method()
        ),
    )
    .into()
}
