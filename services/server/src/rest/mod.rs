//! REST: the same operations as gRPC, with the same JSON as MCP.

mod artifacts;
mod body;
mod changes;
mod conditional;
mod contexts;
mod docs;
mod health;
mod keys;
mod openapi;
mod overview;
mod page;
mod query;
mod routes;
mod search;
mod sign_in;
mod versions;

pub use openapi::document;
pub use query::refuse_parameters;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use context_model::{Error, Reason};

use crate::app::App;
use crate::problem::Problem;

/// All REST routes. The caller adds the fallback for unknown paths.
pub fn router() -> Router<Arc<App>> {
    let (router, _) = routes::documented().split_for_parts();
    router
        .merge(docs::routes())
        .merge(page::routes())
        .merge(sign_in::routes())
        .method_not_allowed_fallback(method_not_allowed)
}

/// The response for an unknown path.
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
            "{path} does not support {}; `Allow` lists the supported methods",
            request.method()
        ),
    )
    .into()
}
