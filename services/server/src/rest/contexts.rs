//! REST handlers for storing, fetching, changing and deleting entries.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use context_model::{
    BatchReply, DeleteContextBatchReply, DeleteContextBatchRequest, DeleteContextReply,
    DeleteContextRequest, Entry, Error, GetContextByIdsReply, GetContextByIdsRequest, Operation,
    StoreContextBatchRequest, StoreContextReply, StoreContextRequest, UpdateContextBatchRequest,
    UpdateContextBody, UpdateContextReply,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::body::{JsonBody, json};
use super::conditional::{etag, etag_beside, expected_version, none_match_names};
use super::query::{ContextId, Query};
use crate::app::App;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;
use crate::write_context::write_context;

/// Store an entry
///
/// Stores one entry durably: when this returns, the entry is on disk and every later call sees it. A request
/// that repeats the thread's newest entry stores no second one. The reply is then 200 instead of 201, with
/// `duplicate: true`.
#[utoipa::path(
    post,
    path = "/v1/contexts",
    operation_id = "store_context",
    tag = "contexts",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")),
    request_body(
        content = StoreContextRequest,
        example = json!({"thread_id": "project-123", "source": "agent", "text": "Chose PostgreSQL for the billing service.",
            "metadata": {"status": "decided", "priority": 3}, "tags": ["billing", "database"]})
    ),
    responses(
        (status = 201, description = "The entry is stored", body = StoreContextReply, headers(
            ("Location" = String, description = "URL of the entry"), ("ETag" = String, description = "The entry's version in quotes"))),
        (status = 200, description = "The request repeated the thread's newest entry, whose id is returned", body = StoreContextReply, headers(
            ("Location" = String, description = "URL of the entry"), ("ETag" = String, description = "The entry's version in quotes"))),
    )
)]
pub async fn store_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<StoreContextRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .contexts
        .store_context(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::StoreContext, Transport::Rest, None, work)
        .await?;
    let status = if reply.duplicate {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    let location = HeaderValue::from_str(&format!("/v1/contexts/{}", reply.context_id))
        .map_err(Error::internal)?;
    let tag = etag(reply.version);
    let mut response = json(&ctx, status, reply).await?;
    response.headers_mut().insert(header::LOCATION, location);
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Store several entries
///
/// Stores 1 to 100 entries. By default either all are stored or none. With `atomic: false` each entry
/// succeeds or fails alone, and `results` has the outcomes.
#[utoipa::path(
    post,
    path = "/v1/contexts/batch",
    operation_id = "store_context_batch",
    tag = "contexts",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")),
    request_body(
        content = StoreContextBatchRequest,
        example = json!({"entries": [
            {"thread_id": "project-123", "source": "user", "text": "Which database?"},
            {"thread_id": "project-123", "source": "agent", "text": "PostgreSQL.", "tags": ["database"]}]})
    ),
    responses((status = 200, description = "The outcome for each entry", body = BatchReply))
)]
pub async fn store_context_batch(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<StoreContextBatchRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .contexts
        .store_context_batch(ctx.caller(), request, write);
    let reply = app
        .call(
            &ctx,
            Operation::StoreContextBatch,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Fetch one entry
///
/// Returns one entry in full. With `If-None-Match` and the entry's current `ETag` the reply is 304
/// without a body.
#[utoipa::path(
    get,
    path = "/v1/contexts/{context_id}",
    operation_id = "get_context",
    tag = "contexts",
    params(
        ("context_id" = i64, Path, description = "The entry's id.", minimum = 1, maximum = 9007199254740991i64, example = 42),
        ("include_images" = Option<bool>, Query, description = "Whether to include images; default true."),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of the caller's copy.")
    ),
    responses(
        (status = 200, description = "The entry", body = Entry, headers(
            ("ETag" = String, description = "The entry's version in quotes, with a suffix (`\"3-…\"`) if it has a summary"))),
        (status = 304, description = "The caller already has this reply", headers(
            ("ETag" = String, description = "The entry's version in quotes, with a suffix (`\"3-…\"`) if it has a summary"))),
    )
)]
pub async fn get_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    ContextId(id): ContextId,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = get_request(vec![id], &mut query);
    query.finish()?;
    let work = async {
        let mut reply = app
            .engine
            .contexts
            .get_context_by_ids(ctx.caller(), request)
            .await?;
        reply
            .result
            .pop()
            .ok_or_else(|| Error::context_not_found(id))
    };
    let entry = app
        .call(
            &ctx,
            Operation::GetContextByIds,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    // A summary arrives in the background and makes no version.
    let tag = etag_beside(entry.version, &entry.summary);
    let mut response = if none_match_names(&headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json(&ctx, StatusCode::OK, entry).await?
    };
    response.headers_mut().insert(header::ETAG, tag);
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    Ok(response)
}

/// Fetch several entries
///
/// Returns entries in full, newest first; ids that do not exist are skipped.
#[utoipa::path(
    get,
    path = "/v1/contexts",
    operation_id = "get_context_by_ids",
    tag = "contexts",
    params(
        ("ids" = Vec<i64>, Query, description = "1 to 100 ids, comma-separated.", style = Form, explode = false, min_items = 1,
            max_items = 100, example = json!([1, 2, 3])),
        ("include_images" = Option<bool>, Query, description = "Whether to include images; default true."),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The entries that exist", body = GetContextByIdsReply))
)]
pub async fn get_context_by_ids(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let ids = query.integers("ids");
    let request = get_request(ids, &mut query);
    query.finish()?;
    let work = app
        .engine
        .contexts
        .get_context_by_ids(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::GetContextByIds,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

fn get_request(context_ids: Vec<i64>, query: &mut Query) -> GetContextByIdsRequest {
    GetContextByIdsRequest {
        context_ids,
        include_images: query.boolean("include_images"),
        min_revision: query.integer("min_revision"),
    }
}

/// Change an entry
///
/// Changes text, metadata, tags or images of one entry; omitted fields stay as they are. With
/// `If-Match` (or `expected_version`) the change is refused with 412 if the entry is no longer at
/// that version.
#[utoipa::path(
    patch,
    path = "/v1/contexts/{context_id}",
    operation_id = "update_context",
    tag = "contexts",
    params(
        ("context_id" = i64, Path, description = "The entry's id.", minimum = 1, maximum = 9007199254740991i64, example = 42),
        ("If-Match" = Option<String>, Header, description = "The `ETag` that the change is based on, or `*`."),
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    request_body(
        content = UpdateContextBody,
        example = json!({"metadata_patch": {"status": "done", "priority": null}, "tags": ["billing"]})
    ),
    responses((status = 200, description = "The entry is changed", body = UpdateContextReply, headers(
        ("ETag" = String, description = "The entry's new version in quotes"))))
)]
pub async fn update_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    ContextId(id): ContextId,
    headers: HeaderMap,
    JsonBody(body): JsonBody<UpdateContextBody>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let mut request = body.for_context(id);
    request.expected_version = expected_version(&headers, request.expected_version)?;
    let work = app
        .engine
        .contexts
        .update_context(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::UpdateContext, Transport::Rest, None, work)
        .await?;
    let tag = etag(reply.version);
    let mut response = json(&ctx, StatusCode::OK, reply).await?;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Change several entries
///
/// Applies 1 to 100 changes. By default either all are applied or none. With `atomic: false` each change
/// succeeds or fails alone, and `results` has the outcomes.
#[utoipa::path(
    patch,
    path = "/v1/contexts/batch",
    operation_id = "update_context_batch",
    tag = "contexts",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")),
    request_body(
        content = UpdateContextBatchRequest,
        example = json!({"updates": [{"context_id": 1, "tags": ["done"]}, {"context_id": 2, "metadata_patch": {"status": "done"}}],
            "atomic": false})
    ),
    responses((status = 200, description = "The outcome of each change", body = BatchReply))
)]
pub async fn update_context_batch(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<UpdateContextBatchRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .contexts
        .update_context_batch(ctx.caller(), request, write);
    let reply = app
        .call(
            &ctx,
            Operation::UpdateContextBatch,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Delete one entry
///
/// Deletes one entry with its images. Deleting an entry that does not exist succeeds with
/// `deleted_count` 0. This cannot be undone.
#[utoipa::path(
    delete,
    path = "/v1/contexts/{context_id}",
    operation_id = "delete_context_by_id",
    tag = "contexts",
    params(
        ("context_id" = i64, Path, description = "The entry's id.", minimum = 1, maximum = 9007199254740991i64, example = 42),
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    responses((status = 200, description = "The entry is deleted", body = DeleteContextReply))
)]
pub async fn delete_context_by_id(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    ContextId(id): ContextId,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    if headers.contains_key(header::IF_MATCH) {
        // Ignoring the header could delete a version that the caller has not seen.
        return Err(Error::invalid(
            "If-Match",
            "`If-Match` is not supported by DELETE; leave it out",
        )
        .into());
    }
    let request = DeleteContextRequest {
        context_ids: Some(vec![id]),
        thread_id: None,
    };
    let work = app
        .engine
        .contexts
        .delete_context(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::DeleteContext, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Delete entries or a thread
///
/// Deletes entries by id, or all entries of a thread. Exactly one of `context_ids` and `thread_id` is
/// required. This cannot be undone.
#[utoipa::path(
    post,
    path = "/v1/contexts/delete",
    operation_id = "delete_context",
    tag = "contexts",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")),
    request_body(content = DeleteContextRequest, example = json!({"context_ids": [1, 2, 3]})),
    responses((status = 200, description = "The entries are deleted", body = DeleteContextReply))
)]
pub async fn delete_context(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<DeleteContextRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .contexts
        .delete_context(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::DeleteContext, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Delete entries by criteria
///
/// Deletes every entry that meets all given criteria. `source` alone is refused. This cannot be
/// undone.
#[utoipa::path(
    post,
    path = "/v1/contexts/batch-delete",
    operation_id = "delete_context_batch",
    tag = "contexts",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")),
    request_body(content = DeleteContextBatchRequest, example = json!({"thread_ids": ["project-123"], "older_than_days": 90})),
    responses((status = 200, description = "The entries are deleted", body = DeleteContextBatchReply))
)]
pub async fn delete_context_batch(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<DeleteContextBatchRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .contexts
        .delete_context_batch(ctx.caller(), request, write);
    let reply = app
        .call(
            &ctx,
            Operation::DeleteContextBatch,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}
