//! The owner's own API keys.

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
use crate::transport::Transport;
use crate::who::Who;

/// Make an API key
///
/// Makes a key of the caller's owner. The reply is the only place that shows it. Needs the scope `manage`, and gives no scope that the
/// caller's own key lacks.
#[utoipa::path(
    post,
    path = "/v1/api-keys",
    operation_id = "create_api_key",
    tag = "api-keys",
    request_body(content = CreateApiKeyRequest, example = json!({"name": "dashboard", "scopes": ["read"], "expires_at": "2035-01-01"})),
    responses((status = 201, description = "The key", body = CreateApiKeyReply, headers(
        ("Location" = String, description = "Where what is known about the key is"))))
)]
pub async fn create_api_key(
    who: Who,
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<CreateApiKeyRequest>,
) -> Result<Response, Problem> {
    let work = app.engine.access.create_api_key(who.caller(), request);
    let reply = app
        .call(&who, Operation::CreateApiKey, Transport::Rest, None, work)
        .await?;
    let location = HeaderValue::from_str(&format!("/v1/api-keys/{}", reply.api_key.id))
        .map_err(Error::internal)?;
    let mut response = json(&who, StatusCode::CREATED, reply)?;
    response.headers_mut().insert(header::LOCATION, location);
    Ok(response)
}

/// List the API keys
///
/// Gives the owner's keys, newest first; the keys themselves are shown by nothing. Needs the scope `manage`.
#[utoipa::path(
    get,
    path = "/v1/api-keys",
    operation_id = "list_api_keys",
    tag = "api-keys",
    responses((status = 200, description = "The keys", body = ListApiKeysReply))
)]
pub async fn list_api_keys(who: Who, State(app): State<Arc<App>>) -> Result<Response, Problem> {
    let work = app.engine.access.list_api_keys(who.caller());
    let reply = app
        .call(&who, Operation::ListApiKeys, Transport::Rest, None, work)
        .await?;
    json(&who, StatusCode::OK, reply)
}

/// Fetch an API key
///
/// Gives what is known about one key. Needs the scope `manage`.
#[utoipa::path(
    get,
    path = "/v1/api-keys/{key_id}",
    operation_id = "get_api_key",
    tag = "api-keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    responses((status = 200, description = "The key", body = ApiKey))
)]
pub async fn get_api_key(
    who: Who,
    State(app): State<Arc<App>>,
    KeyPath(key_id): KeyPath,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .access
        .get_api_key(who.caller(), ApiKeyRequest { key_id });
    let reply = app
        .call(&who, Operation::GetApiKey, Transport::Rest, None, work)
        .await?;
    json(&who, StatusCode::OK, reply)
}

/// Change an API key
///
/// Changes a key's name, scopes or expiry. Needs the scope `manage`, and gives no scope that the caller's own key lacks.
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
    who: Who,
    State(app): State<Arc<App>>,
    KeyPath(key_id): KeyPath,
    JsonBody(body): JsonBody<UpdateApiKeyBody>,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .access
        .update_api_key(who.caller(), body.for_key(key_id));
    let reply = app
        .call(&who, Operation::UpdateApiKey, Transport::Rest, None, work)
        .await?;
    json(&who, StatusCode::OK, reply)
}

/// Switch an API key off
///
/// Switches a key off, for good; it stays in the list. Within a second it works nowhere. Needs the scope `manage`.
#[utoipa::path(
    post,
    path = "/v1/api-keys/{key_id}/deactivate",
    operation_id = "deactivate_api_key",
    tag = "api-keys",
    params(("key_id" = String, Path, description = "The key's id.")),
    responses((status = 200, description = "The key, which works no more", body = ApiKey))
)]
pub async fn deactivate_api_key(
    who: Who,
    State(app): State<Arc<App>>,
    KeyPath(key_id): KeyPath,
) -> Result<Response, Problem> {
    let work = app
        .engine
        .access
        .deactivate_api_key(who.caller(), ApiKeyRequest { key_id });
    let reply = app
        .call(
            &who,
            Operation::DeactivateApiKey,
            Transport::Rest,
            None,
            work,
        )
        .await?;
    json(&who, StatusCode::OK, reply)
}
