//! Entries as resources: `context://entries/{context_id}` is the entry in full, fetched like get_context_by_ids.

use rmcp::model::{JsonObject, ResourceContents, ResourceTemplate};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;

use crate::handler::{Gateway, cancelled};
use context_model::Operation;

const PREFIX: &str = "context://entries/";

/// The templates of the resources that can be read.
#[must_use]
pub fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new(format!("{PREFIX}{{context_id}}"), "context_entry")
            .with_title("Context entry")
            .with_description("A stored entry in full, by its context_id, without image data")
            .with_mime_type("application/json"),
    ]
}

/// Reads one resource.
///
/// # Errors
/// Resource not found, with the URI in its data, for any URI that is not an existing entry; an internal error with
/// the service's sentence when it cannot be read.
pub async fn read(
    gateway: &Gateway,
    uri: &str,
    context: &RequestContext<RoleServer>,
) -> Result<Vec<ResourceContents>, ErrorData> {
    let not_found = || {
        let shown: String = uri.chars().take(200).collect();
        ErrorData::resource_not_found("resource not found", Some(json!({ "uri": shown })))
    };
    let id: i64 = uri
        .strip_prefix(PREFIX)
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .filter(|id| (1..=context_model::Limits::MAX_ID).contains(id))
        .ok_or_else(not_found)?;
    let mut arguments = JsonObject::new();
    arguments.insert("context_ids".to_owned(), json!([id]));
    arguments.insert("include_images".to_owned(), json!(false));
    let reply = gateway
        .run(Operation::GetContextByIds, arguments, context)
        .await
        .ok_or_else(cancelled)?
        .map_err(|error| {
            ErrorData::internal_error(
                error.message,
                Some(json!({ "reason": error.reason.as_str() })),
            )
        })?;
    let entry = reply.structured["result"].get(0).ok_or_else(not_found)?;
    Ok(vec![
        ResourceContents::text(entry.to_string(), uri).with_mime_type("application/json"),
    ])
}
