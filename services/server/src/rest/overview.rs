//! REST handlers for threads, tags and statistics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{
    GetThreadReply, GetThreadRequest, ListTagsReply, ListTagsRequest, ListThreadsReply,
    ListThreadsRequest, Operation, Statistics,
};
use http::StatusCode;

use super::body::json;
use super::query::{Query, ThreadPath};
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

/// Fetch a thread
///
/// Returns one thread with its counts. A thread exists as long as it has entries.
#[utoipa::path(
    get,
    path = "/v1/threads/{thread_id}",
    operation_id = "get_thread",
    tag = "overview",
    params(
        ("thread_id" = String, Path, description = "The thread.", min_length = 1, max_length = 256, example = "billing"),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The thread", body = GetThreadReply))
)]
pub async fn get_thread(
    who: Who,
    State(app): State<Arc<App>>,
    ThreadPath(thread_id): ThreadPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = GetThreadRequest {
        thread_id,
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.contexts.get_thread(who.caller(), request);
    let reply = app
        .call(&who, Operation::GetThread, Transport::Rest, None, work)
        .await?;
    json(&who, StatusCode::OK, reply)
}

/// List tags
///
/// Lists the tags of entries with the number of entries that have them, most frequent first, then by
/// name.
#[utoipa::path(
    get,
    path = "/v1/tags",
    operation_id = "list_tags",
    tag = "overview",
    params(ListTagsRequest),
    responses((status = 200, description = "The tags", body = ListTagsReply))
)]
pub async fn list_tags(
    who: Who,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListTagsRequest {
        thread_id: query.one("thread_id"),
        prefix: query.one("prefix"),
        limit: query.integer("limit"),
        offset: query.integer("offset"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.contexts.list_tags(who.caller(), request);
    let reply = app
        .call(&who, Operation::ListTags, Transport::Rest, None, work)
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
