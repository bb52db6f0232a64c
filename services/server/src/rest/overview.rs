//! REST handlers for threads and statistics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{ListThreadsReply, ListThreadsRequest, Operation, Statistics};
use http::StatusCode;

use super::body::json;
use super::query::Query;
use crate::app::App;
use crate::problem::Problem;
use crate::transport::Transport;
use crate::who::Who;

/// List threads
///
/// Lists threads with their counts, latest activity first.
#[utoipa::path(
    get,
    path = "/v1/threads",
    operation_id = "list_threads",
    tag = "overview",
    params(ListThreadsRequest),
    responses((status = 200, description = "The threads", body = ListThreadsReply))
)]
pub async fn list_threads(
    who: Who,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListThreadsRequest {
        limit: query.integer("limit"),
        offset: query.integer("offset"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.contexts.list_threads(who.caller(), request);
    let reply = app
        .call(&who, Operation::ListThreads, Transport::Rest, None, work)
        .await?;
    json(&who, StatusCode::OK, reply)
}

/// Get statistics and the state of every feature
///
/// Returns counts of entries, images and tags, the size of the database, and for each feature
/// whether it is enabled, whether it works, and why not.
#[utoipa::path(
    get,
    path = "/v1/statistics",
    operation_id = "get_statistics",
    tag = "overview",
    params(("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)),
    responses((status = 200, description = "The statistics", body = Statistics))
)]
pub async fn get_statistics(
    who: Who,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let min_revision = query.integer("min_revision");
    query.finish()?;
    let work = app.engine.get_statistics(who.caller(), min_revision);
    let statistics = app
        .call(&who, Operation::GetStatistics, Transport::Rest, None, work)
        .await?;
    json(&who, StatusCode::OK, statistics)
}
