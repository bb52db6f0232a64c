//! REST handlers for threads, tags, metadata fields, days and statistics.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{
    GetThreadReply, GetThreadRequest, ListDaysReply, ListDaysRequest, ListMetadataKeysReply,
    ListMetadataKeysRequest, ListMetadataValuesReply, ListMetadataValuesRequest, ListTagsReply,
    ListTagsRequest, ListThreadsReply, ListThreadsRequest, Operation, Statistics,
};
use http::StatusCode;

use super::body::json;
use super::query::{Query, ThreadPath};
use crate::app::App;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;

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
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListThreadsRequest {
        limit: query.integer("limit"),
        offset: query.integer("offset"),
        name: query.one("name"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.contexts.list_threads(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::ListThreads, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
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
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    ThreadPath(thread_id): ThreadPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = GetThreadRequest {
        thread_id,
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.contexts.get_thread(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::GetThread, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
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
    ctx: RequestContext,
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
    let work = app.engine.contexts.list_tags(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::ListTags, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// List metadata keys
///
/// Lists the keys of metadata with the number of entries that have them, most frequent first, then by
/// name. The newest 10 000 entries are read, and metadata of more than 4 KiB is skipped; `scanned` and
/// `complete` say whether that was all.
#[utoipa::path(
    get,
    path = "/v1/metadata/keys",
    operation_id = "list_metadata_keys",
    tag = "overview",
    params(ListMetadataKeysRequest),
    responses((status = 200, description = "The keys", body = ListMetadataKeysReply))
)]
pub async fn list_metadata_keys(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListMetadataKeysRequest {
        prefix: query.one("prefix"),
        thread_id: query.one("thread_id"),
        limit: query.integer("limit"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app
        .engine
        .contexts
        .list_metadata_keys(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::ListMetadataKeys,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// List the values of a metadata key
///
/// Lists the strings, numbers and booleans of a metadata key with the number of entries that have them, most
/// frequent first. The newest 10 000 entries are read, and metadata of more than 4 KiB is skipped; `scanned`
/// and `complete` say whether that was all.
#[utoipa::path(
    get,
    path = "/v1/metadata/values",
    operation_id = "list_metadata_values",
    tag = "overview",
    params(ListMetadataValuesRequest),
    responses((status = 200, description = "The values", body = ListMetadataValuesReply))
)]
pub async fn list_metadata_values(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListMetadataValuesRequest {
        key: query.one("key").unwrap_or_default(),
        prefix: query.one("prefix"),
        thread_id: query.one("thread_id"),
        limit: query.integer("limit"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app
        .engine
        .contexts
        .list_metadata_values(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::ListMetadataValues,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Count entries by day
///
/// Counts entries by the day of their creation in UTC, newest day first. Days without entries are left out. The
/// newest 100 000 entries are counted; `scanned` and `complete` say whether that was all.
#[utoipa::path(
    get,
    path = "/v1/days",
    operation_id = "list_days",
    tag = "overview",
    params(ListDaysRequest),
    responses((status = 200, description = "The days", body = ListDaysReply))
)]
pub async fn list_days(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListDaysRequest {
        thread_id: query.one("thread_id"),
        start_date: query.one("start_date"),
        end_date: query.one("end_date"),
        limit: query.integer("limit"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.contexts.list_days(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::ListDays, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Get statistics and the state of every feature
///
/// Returns counts of entries, images and tags, the size of the database (with authentication on, of the owner's data),
/// and for each feature whether it is enabled, whether it works, and why not.
#[utoipa::path(
    get,
    path = "/v1/statistics",
    operation_id = "get_statistics",
    tag = "overview",
    params(("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)),
    responses((status = 200, description = "The statistics", body = Statistics))
)]
pub async fn get_statistics(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let min_revision = query.integer("min_revision");
    query.finish()?;
    let work = app.engine.get_statistics(ctx.caller(), min_revision);
    let statistics = app
        .call(&ctx, Operation::GetStatistics, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, statistics).await
}
