//! REST handlers for creating, finding, fetching, changing and deleting artifacts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use context_model::{
    ArtifactSearchMode, CreateArtifactReply, CreateArtifactRequest, DeleteArtifactReply,
    DeleteArtifactRequest, DeleteArtifactsReply, DeleteArtifactsRequest, Error, GetArtifactReply,
    GetArtifactRequest, ListArtifactsReply, ListArtifactsRequest, MoveArtifactsReply,
    MoveArtifactsRequest, Operation, SearchArtifactsReply, SearchArtifactsRequest,
    UpdateArtifactBody, UpdateArtifactReply,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::body::{JsonBody, json};
use super::conditional::{etag, etag_beside, expected_version, none_match_names};
use super::query::{ArtifactPath, Query};
use crate::app::App;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;
use crate::write_context::write_context;

/// Create an artifact
///
/// Creates an artifact. Without a title, it is derived from the content: the first `# ` heading,
/// else the first `## ` heading, else the first line that is not blank.
#[utoipa::path(
    post,
    path = "/v1/artifacts",
    operation_id = "create_artifact",
    tag = "artifacts",
    params(("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")),
    request_body(
        content = CreateArtifactRequest,
        example = json!({"content": "# Release plan\n\nShip on Friday.", "metadata": {"category": "project"}})
    ),
    responses((status = 201, description = "The artifact is stored", body = CreateArtifactReply, headers(
        ("Location" = String, description = "URL of the artifact"), ("ETag" = String, description = "The artifact's version in quotes"))))
)]
pub async fn create_artifact(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<CreateArtifactRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .artifacts
        .create_artifact(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::CreateArtifact, Transport::Rest, None, work)
        .await?;
    let location =
        HeaderValue::from_str(&format!("/v1/artifacts/{}", reply.id)).map_err(Error::internal)?;
    let tag = etag(reply.version);
    let mut response = json(&ctx, StatusCode::CREATED, reply).await?;
    response.headers_mut().insert(header::LOCATION, location);
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// List artifacts
///
/// Lists artifacts, newest first, each with the first 200 characters of its content. For the next page,
/// pass `next_cursor` as `cursor`.
#[utoipa::path(
    get,
    path = "/v1/artifacts",
    operation_id = "list_artifacts",
    tag = "artifacts",
    params(
        ("limit" = Option<i64>, Query, description = "Maximum number of artifacts, 1 to 50; default 10.", minimum = 1, maximum = 50),
        ("offset" = Option<i64>, Query, description = "Number of artifacts to skip; default 0.", minimum = 0, maximum = 4294967295i64),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous reply; not together with an offset."),
        ("path_prefix" = Option<String>, Query, description = "Only artifacts whose path begins with this.", min_length = 1, max_length = 1024),
        ("metadata_filters" = Option<String>, Query, description = "A JSON array of conditions on metadata, as in search."),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The artifacts of this page", body = ListArtifactsReply))
)]
pub async fn list_artifacts(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListArtifactsRequest {
        limit: query.integer("limit"),
        offset: query.integer("offset"),
        cursor: query.one("cursor"),
        path_prefix: query.one("path_prefix"),
        metadata_filters: query.json("metadata_filters"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.artifacts.list_artifacts(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::ListArtifacts, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Search artifacts
///
/// Returns artifacts whose title or content contains the query, ignoring case, newest first. `%` and `_` have no
/// special function. With `mode=ranked` it returns those that match the query best by their words and by meaning, best
/// first.
#[utoipa::path(
    get,
    path = "/v1/artifacts/search",
    operation_id = "search_artifacts",
    tag = "artifacts",
    params(
        ("query" = String, Query, description = "The substring to search for, 1 to 1000 characters. Case is ignored. With `mode=ranked`, a query in natural language.", min_length = 1, max_length = 1000, example = "release"),
        ("mode" = Option<ArtifactSearchMode>, Query, description = "`substring` (newest first) or `ranked` (by words and by meaning, best first); default `substring`."),
        ("metadata_filters" = Option<String>, Query, description = "A JSON array of conditions on metadata, as in search."),
        ("limit" = Option<i64>, Query, description = "Maximum number of artifacts, 1 to 50; default 10.", minimum = 1, maximum = 50),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The artifacts that match", body = SearchArtifactsReply))
)]
pub async fn search_artifacts(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = SearchArtifactsRequest {
        query: query.one("query").unwrap_or_default(),
        mode: query.one("mode"),
        metadata_filters: query.json("metadata_filters"),
        limit: query.integer("limit"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app.engine.artifacts.search_artifacts(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::SearchArtifacts,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Fetch an artifact
///
/// Returns an artifact in full. With `If-None-Match` and the artifact's current `ETag` the reply is
/// 304 without a body.
#[utoipa::path(
    get,
    path = "/v1/artifacts/{artifact_id}",
    operation_id = "get_artifact",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of the caller's copy.")
    ),
    responses(
        (status = 200, description = "The artifact", body = GetArtifactReply, headers(
            ("ETag" = String, description = "The artifact's version in quotes, with a suffix (`\"3-…\"`) if it has a path"))),
        (status = 304, description = "The caller already has this artifact; only `revision` may have grown", headers(
            ("ETag" = String, description = "The artifact's version in quotes, with a suffix (`\"3-…\"`) if it has a path"))),
    )
)]
pub async fn get_artifact(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = GetArtifactRequest {
        artifact_id: path.artifact_id,
        path: None,
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    respond_with(&ctx, &app, &headers, request).await
}

/// Fetch an artifact by its path
///
/// Returns the artifact with this path in full. With `If-None-Match` and the artifact's current `ETag` the reply is 304
/// without a body.
#[utoipa::path(
    get,
    path = "/v1/artifacts/by-path",
    operation_id = "get_artifact_by_path",
    tag = "artifacts",
    params(
        ("path" = String, Query, description = "The artifact's path.", min_length = 1, max_length = 1024, example = "/plans/release.md"),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of the caller's copy.")
    ),
    responses(
        (status = 200, description = "The artifact", body = GetArtifactReply, headers(
            ("ETag" = String, description = "The artifact's version in quotes, with a suffix (`\"3-…\"`) if it has a path"))),
        (status = 304, description = "The caller already has this artifact; only `revision` may have grown", headers(
            ("ETag" = String, description = "The artifact's version in quotes, with a suffix (`\"3-…\"`) if it has a path"))),
    )
)]
pub async fn get_artifact_by_path(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = GetArtifactRequest {
        artifact_id: String::new(),
        path: Some(query.one("path").unwrap_or_default()),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    respond_with(&ctx, &app, &headers, request).await
}

/// Responds with the artifact, or with 304 if the caller has it.
async fn respond_with(
    ctx: &RequestContext,
    app: &App,
    headers: &HeaderMap,
    request: GetArtifactRequest,
) -> Result<Response, Problem> {
    let work = app.engine.artifacts.get_artifact(ctx.caller(), request);
    let reply = app
        .call(ctx, Operation::GetArtifact, Transport::Rest, None, work)
        .await?;
    let artifact = &reply.artifact;
    // A path is given to another artifact, and changes, without a new version.
    let path = artifact.path.as_deref();
    let at_path = path.map(|path| format!("{}{path}", artifact.id));
    let tag = etag_beside(artifact.version, at_path.as_deref().unwrap_or_default());
    let mut response = if none_match_names(headers, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json(ctx, StatusCode::OK, reply).await?
    };
    response.headers_mut().insert(header::ETAG, tag);
    response.headers_mut().insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("private, no-cache"),
    );
    Ok(response)
}

/// Change an artifact
///
/// Changes the given fields. A different title, content or metadata creates a new version; a different path does not.
/// `edits` change single places of the content. With `If-Match` the change is refused with 412 if the artifact is no
/// longer at that version.
#[utoipa::path(
    patch,
    path = "/v1/artifacts/{artifact_id}",
    operation_id = "update_artifact",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("If-Match" = Option<String>, Header, description = "The `ETag` that the change is based on, or `*`."),
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    request_body(content = UpdateArtifactBody, example = json!({"edits": [{"old_str": "Friday", "new_str": "Monday"}]})),
    responses((status = 200, description = "The artifact after the change", body = UpdateArtifactReply, headers(
        ("ETag" = String, description = "The artifact's version in quotes"))))
)]
pub async fn update_artifact(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
    headers: HeaderMap,
    JsonBody(body): JsonBody<UpdateArtifactBody>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let mut request = body.for_artifact(path.artifact_id);
    request.expected_version = expected_version(&headers, request.expected_version)?;
    let work = app
        .engine
        .artifacts
        .update_artifact(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::UpdateArtifact, Transport::Rest, None, work)
        .await?;
    let tag = etag(reply.version);
    let mut response = json(&ctx, StatusCode::OK, reply).await?;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Delete an artifact
///
/// Deletes an artifact with all its versions. This cannot be undone.
#[utoipa::path(
    delete,
    path = "/v1/artifacts/{artifact_id}",
    operation_id = "delete_artifact",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    responses((status = 200, description = "The artifact is deleted", body = DeleteArtifactReply))
)]
pub async fn delete_artifact(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
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
    let work = app.engine.artifacts.delete_artifact(
        ctx.caller(),
        DeleteArtifactRequest {
            artifact_id: path.artifact_id,
        },
        write,
    );
    let reply = app
        .call(&ctx, Operation::DeleteArtifact, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Move artifacts
///
/// Moves the artifact at `path`, and every artifact below it, to the path `to`. Either all are moved or none. A move
/// creates no new version.
#[utoipa::path(
    post,
    path = "/v1/artifacts/move",
    operation_id = "move_artifacts",
    tag = "artifacts",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    request_body(content = MoveArtifactsRequest, example = json!({"path": "/plans", "to": "/archive/plans"})),
    responses((status = 200, description = "The artifacts are moved", body = MoveArtifactsReply))
)]
pub async fn move_artifacts(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<MoveArtifactsRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .artifacts
        .move_artifacts(ctx.caller(), request, write);
    let reply = app
        .call(&ctx, Operation::MoveArtifacts, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Delete artifacts by path
///
/// Deletes the artifact at `path`, and every artifact below it, with all their versions. Either all are deleted or
/// none. This cannot be undone.
#[utoipa::path(
    post,
    path = "/v1/artifacts/delete",
    operation_id = "delete_artifacts",
    tag = "artifacts",
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    request_body(content = DeleteArtifactsRequest, example = json!({"path": "/plans"})),
    responses((status = 200, description = "The artifacts are deleted", body = DeleteArtifactsReply))
)]
pub async fn delete_artifacts(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    JsonBody(request): JsonBody<DeleteArtifactsRequest>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let work = app
        .engine
        .artifacts
        .delete_artifacts(ctx.caller(), request, write);
    let reply = app
        .call(
            &ctx,
            Operation::DeleteArtifacts,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}
