//! REST handlers for the owner's API keys.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use context_model::{
    ApiKey, ApiKeyRequest, CreateApiKeyReply, CreateApiKeyRequest, Error, ListApiKeysReply,
    Operation, UpdateApiKeyBody,
};
use http::{HeaderValue, StatusCode, header};

use super::body::{JsonBody, json};
use super::query::KeyPath;
use crate::app::App;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::transport::Transport;

/// Create an API key
///
/// Creates a key for the caller's owner. Only this reply shows its secret. Needs the scope `manage`. The
/// caller's own key must have every scope that the new key gets.
#[utoipa::path(
    post,
    path = "/v1/api-keys",
    operation_id = "create_api_key",
    tag = "api-keys",
    request_body(content = CreateApiKeyRequest, example = json!({"name": "dashboard", "scopes": ["read"], "expires_at": "2035-01-01"})),
    responses((status = 201, description = "The key", body = CreateApiKeyReply, headers(
        ("Location" = String, description = "URL of the key"))))
)]
pub async fn create_api_key(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<CreateApiKeyRequest>,
) -> Result<Response, Problem> {
    let work = app.engine.access.create_api_key(ctx.caller(), request);
    let reply = app
        .call(&ctx, Operation::CreateApiKey, Transport::Rest, None, work)
        .await?;
    let location = HeaderValue::from_str(&format!("/v1/api-keys/{}", reply.api_key.id))
        .map_err(Error::internal)?;
    let mut response = json(&ctx, StatusCode::CREATED, reply).await?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// List API keys
///
/// Lists the owner's keys without their secrets: active ones first, each kind newest first. Needs the scope `manage`.
#[utoipa::path(
    get,
    path = "/v1/api-keys",
    operation_id = "list_api_keys",
    tag = "api-keys",
    responses((status = 200, description = "The keys", body = ListApiKeysReply))
)]
pub async fn list_api_keys(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
) -> Result<Response, Problem> {
    let work = app.engine.access.list_api_keys(ctx.caller());
    let reply = app
        .call(&ctx, Operation::ListApiKeys, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Fetch an API key
///
/// Returns one key without its secret. Needs the scope `manage`.
#[utoipa::path(
    get,
    path = "/v1/api-keys/{key_id}",
    operation_id = "get_api_key",
    tag = "api-keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    responses((status = 200, description = "The key", body = ApiKey))
)]
pub async fn get_api_key(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    KeyPath(key_id): KeyPath,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .access
        .get_api_key(ctx.caller(), ApiKeyRequest { key_id });
    let reply = app
        .call(&ctx, Operation::GetApiKey, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Change an API key
///
/// Changes a key's name, scopes or expiry. Needs the scope `manage`; the caller's own key must have
/// every scope that it sets.
#[utoipa::path(
    patch,
    path = "/v1/api-keys/{key_id}",
    operation_id = "update_api_key",
    tag = "api-keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    request_body(content = UpdateApiKeyBody, example = json!({"scopes": ["read"]})),
    responses((status = 200, description = "The key after the change", body = ApiKey))
)]
pub async fn update_api_key(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    KeyPath(key_id): KeyPath,
    JsonBody(body): JsonBody<UpdateApiKeyBody>,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .access
        .update_api_key(ctx.caller(), body.for_key(key_id));
    let reply = app
        .call(&ctx, Operation::UpdateApiKey, Transport::Rest, None, work)
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}

/// Deactivate an API key
///
/// Deactivates a key permanently. It stays in the list. Every service rejects it within a second. Needs
/// the scope `manage`.
#[utoipa::path(
    post,
    path = "/v1/api-keys/{key_id}/deactivate",
    operation_id = "deactivate_api_key",
    tag = "api-keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    responses((status = 200, description = "The deactivated key", body = ApiKey))
)]
pub async fn deactivate_api_key(
    ctx: RequestContext,
    State(app): State<Arc<App>>,
    KeyPath(key_id): KeyPath,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .access
        .deactivate_api_key(ctx.caller(), ApiKeyRequest { key_id });
    let reply = app
        .call(
            &ctx,
            Operation::DeactivateApiKey,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&ctx, StatusCode::OK, reply).await
}
