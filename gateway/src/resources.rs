//! Entries as MCP resources: `context://entries/{context_id}` is the full entry, as
//! get_context_by_ids returns it.

use context_model::Error;
use rmcp::ErrorData;
use rmcp::model::{JsonObject, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};

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

/// The arguments of get_context_by_ids that fetch a resource.
///
/// # Errors
/// "Resource not found" with the URI in its data, for each URI that does not name an entry.
pub fn arguments(uri: &str) -> Result<JsonObject, ErrorData> {
    let id: i64 = uri
        .strip_prefix(PREFIX)
        .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .filter(|id| (1..=context_model::Limits::MAX_ID).contains(id))
        .ok_or_else(|| not_found(uri))?;
    let mut arguments = JsonObject::new();
    arguments.insert("context_ids".to_owned(), json!([id]));
    arguments.insert("include_images".to_owned(), json!(false));
    Ok(arguments)
}

/// The contents of a resource, from the reply of get_context_by_ids.
///
/// # Errors
/// "Resource not found" with the URI in its data, if the entry does not exist.
pub fn contents(uri: &str, reply: &Value) -> Result<Vec<ResourceContents>, ErrorData> {
    let entry = reply["result"].get(0).ok_or_else(|| not_found(uri))?;
    Ok(vec![
        ResourceContents::text(entry.to_string(), uri).with_mime_type("application/json"),
    ])
}

/// The error for a resource that cannot be read, with the service's sentence.
#[must_use]
pub fn unreadable(error: Error) -> ErrorData {
    let reason = json!({ "reason": error.reason.as_str() });
    ErrorData::internal_error(error.message, Some(reason))
}

/// "Resource not found", with the URI in its data.
#[must_use]
pub fn not_found(uri: &str) -> ErrorData {
    let shown: String = uri.chars().take(200).collect();
    ErrorData::resource_not_found("resource not found", Some(json!({ "uri": shown })))
}
