//! REST handlers for the versions of artifacts.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{
    DiffArtifactVersionsReply, DiffArtifactVersionsRequest, GetArtifactVersionReply,
    GetArtifactVersionRequest, ListArtifactVersionsReply, ListArtifactVersionsRequest, Operation,
    RestoreArtifactVersionBody, RestoreArtifactVersionReply, RestoreArtifactVersionRequest,
};
use http::{HeaderMap, StatusCode, header};

use super::body::{JsonBody, json};
use super::conditional::{etag, expected_version};
use super::query::{ArtifactPath, Query};
use crate::app::App;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;
use crate::write_context::write_context;

/// List the versions of an artifact
///
/// Lists up to 50 versions before the current one, newest first, each with the fields that it changed.
#[utoipa::path(
    get,
    path = "/v1/artifacts/{artifact_id}/versions",
    operation_id = "list_artifact_versions",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The versions", body = ListArtifactVersionsReply))
)]
pub async fn list_artifact_versions(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = ListArtifactVersionsRequest {
        artifact_id: path.artifact_id,
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app
        .engine
        .artifacts
        .list_artifact_versions(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::ListArtifactVersions,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Fetch a version of an artifact
///
/// Returns any version in full, including the current one.
#[utoipa::path(
    get,
    path = "/v1/artifacts/{artifact_id}/versions/{version}",
    operation_id = "get_artifact_version",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("version" = i64, Path, description = "The version's number.", minimum = 1),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The version", body = GetArtifactVersionReply))
)]
pub async fn get_artifact_version(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let version_number = path.version()?;
    let min_revision = query.integer("min_revision");
    query.finish()?;
    let request = GetArtifactVersionRequest {
        artifact_id: path.artifact_id,
        version_number,
        min_revision,
    };
    let work = app
        .engine
        .artifacts
        .get_artifact_version(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::GetArtifactVersion,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Restore a version of an artifact
///
/// Creates a new version with the title, content and metadata of an earlier one. With `If-Match` or `expected_version`
/// the restore is refused with 412 if the artifact is no longer at that version.
#[utoipa::path(
    post,
    path = "/v1/artifacts/{artifact_id}/versions/{version}/restore",
    operation_id = "restore_artifact_version",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("version" = i64, Path, description = "The version to restore.", minimum = 1),
        ("If-Match" = Option<String>, Header, description = "The `ETag` that the change is based on, or `*`."),
        ("Idempotency-Key" = Option<String>, Header, description = "A retry with the same key and request within 24 hours returns the first reply and changes nothing.", pattern = "^[!-~]{1,255}$")
    ),
    request_body(content = Option<RestoreArtifactVersionBody>, example = json!({"expected_version": 3})),
    responses((status = 200, description = "The artifact after the restore", body = RestoreArtifactVersionReply, headers(
        ("ETag" = String, description = "The new version in quotes"))))
)]
pub async fn restore_artifact_version(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
    headers: HeaderMap,
    body: Option<JsonBody<RestoreArtifactVersionBody>>,
) -> Result<Response, Problem> {
    let write = write_context(&headers)?;
    let version_number = path.version()?;
    let given = body.and_then(|JsonBody(body)| body.expected_version);
    let expected_version = expected_version(&headers, given)?;
    let request = RestoreArtifactVersionRequest {
        artifact_id: path.artifact_id,
        version_number,
        expected_version,
    };
    let work = app
        .engine
        .artifacts
        .restore_artifact_version(ctx.caller(), request, write);
    let reply = app
        .call(
            &ctx,
            Operation::RestoreArtifactVersion,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    let tag = etag(reply.current_version);
    let mut response = json(&ctx, StatusCode::OK, reply).await?;
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// Compare two versions of an artifact
///
/// Returns a unified diff of the content and the names of the fields that differ.
#[utoipa::path(
    get,
    path = "/v1/artifacts/{artifact_id}/diff",
    operation_id = "diff_artifact_versions",
    tag = "artifacts",
    params(
        ("artifact_id" = String, Path, description = "The artifact's id, a UUID.", format = "uuid"),
        ("from_version" = i64, Query, description = "The version to compare from.", minimum = 1, example = 1),
        ("to_version" = Option<i64>, Query, description = "The version to compare with; default: the current one.", minimum = 1),
        ("min_revision" = Option<i64>, Query, description = "The `revision` of an earlier reply. The result shows that state or a later one.", minimum = 0)
    ),
    responses((status = 200, description = "The differences", body = DiffArtifactVersionsReply))
)]
pub async fn diff_artifact_versions(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    path: ArtifactPath,
    mut query: Query,
) -> Result<Response, Problem> {
    let request = DiffArtifactVersionsRequest {
        artifact_id: path.artifact_id,
        from_version: query.integer("from_version").unwrap_or_default(),
        to_version: query.integer("to_version"),
        min_revision: query.integer("min_revision"),
    };
    query.finish()?;
    let work = app
        .engine
        .artifacts
        .diff_artifact_versions(ctx.caller(), request);
    let reply = app
        .call(
            &ctx,
            Operation::DiffArtifactVersions,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}
