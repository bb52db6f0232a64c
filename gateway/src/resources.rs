//! Entries, threads and artifacts as MCP resources. Each is read with the operation of the tool that returns it.

use context_model::{ArtifactId, Error, Limits, Operation, Reason, ThreadId, Violations};
use percent_encoding::percent_decode_str;
use rmcp::ErrorData;
use rmcp::model::{JsonObject, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};

const ENTRIES: &str = "context://entries/";
const THREADS: &str = "context://threads/";
const ARTIFACTS: &str = "context://artifacts/";
/// Longest URI that is read, in bytes. That of a thread with 256 characters has at most 3 090.
const MAX_URI_BYTES: usize = 4096;
/// Number of entries in the resource of a thread: its newest ones.
const THREAD_ENTRIES: i64 = 30;

/// What a URI names, in the form in which changes name it: an id as the service writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// An entry, by its id.
    Entry(i64),
    /// The newest entries of a thread.
    Thread(String),
    /// An artifact, by its id.
    Artifact(String),
}

impl Resource {
    /// Reads a URI. Names are percent-encoded.
    ///
    /// # Errors
    /// [`not_found`], for a URI of any other form.
    pub fn parse(uri: &str) -> Result<Self, ErrorData> {
        Self::parsed(uri).ok_or_else(|| not_found(uri))
    }

    fn parsed(uri: &str) -> Option<Self> {
        if uri.len() > MAX_URI_BYTES {
            return None;
        }
        if let Some(id) = uri.strip_prefix(ENTRIES) {
            let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
            let id = is_number.then(|| id.parse().ok())??;
            return (1..=Limits::MAX_ID)
                .contains(&id)
                .then_some(Self::Entry(id));
        }
        if let Some(thread) = uri.strip_prefix(THREADS) {
            let name = percent_decode_str(thread).decode_utf8().ok()?;
            let id = ThreadId::parse(&name, "thread_id", &mut Violations::default())?;
            return Some(Self::Thread(id.as_str().to_owned()));
        }
        let name = percent_decode_str(uri.strip_prefix(ARTIFACTS)?);
        let id = ArtifactId::parse(&name.decode_utf8().ok()?).ok()?;
        Some(Self::Artifact(id.to_string()))
    }

    /// The operation that reads it.
    #[must_use]
    pub const fn operation(&self) -> Operation {
        match self {
            Self::Entry(_) => Operation::GetContextByIds,
            Self::Thread(_) => Operation::SearchContext,
            Self::Artifact(_) => Operation::GetArtifact,
        }
    }

    /// The arguments of [`operation`](Self::operation).
    #[must_use]
    pub fn arguments(&self) -> JsonObject {
        let arguments = match self {
            Self::Entry(id) => json!({"context_ids": [id], "include_images": false}),
            Self::Thread(thread) => json!({"thread_id": thread, "limit": THREAD_ENTRIES}),
            Self::Artifact(id) => json!({"artifact_id": id}),
        };
        match arguments {
            Value::Object(arguments) => arguments,
            _ => JsonObject::new(),
        }
    }

    /// Its contents, from the reply of [`operation`](Self::operation).
    ///
    /// # Errors
    /// [`not_found`], if there is no such entry, or none in the thread.
    pub fn contents(&self, uri: &str, reply: &Value) -> Result<Vec<ResourceContents>, ErrorData> {
        let content = match self {
            Self::Entry(_) => reply["result"].get(0),
            Self::Thread(_) => reply["results"].get(0).map(|_| reply),
            Self::Artifact(_) => Some(reply),
        };
        let content = content.ok_or_else(|| not_found(uri))?;
        Ok(vec![
            ResourceContents::text(content.to_string(), uri).with_mime_type("application/json"),
        ])
    }
}

/// The templates of the resources whose operation is offered.
#[must_use]
pub fn templates(offers: impl Fn(Operation) -> bool) -> Vec<ResourceTemplate> {
    let template = |prefix: &str, variable: &str, name: &str, title: &str, description: &str| {
        ResourceTemplate::new(format!("{prefix}{{{variable}}}"), name)
            .with_title(title)
            .with_description(description)
            .with_mime_type("application/json")
    };
    let templates = [
        (
            Operation::GetContextByIds,
            template(
                ENTRIES,
                "context_id",
                "context_entry",
                "Context entry",
                "A stored entry in full, by its context_id, without image data",
            ),
        ),
        (
            Operation::SearchContext,
            template(
                THREADS,
                "thread_id",
                "context_thread",
                "Thread",
                "The newest 30 entries of a thread, by its percent-encoded thread_id; long texts are cut",
            ),
        ),
        (
            Operation::GetArtifact,
            template(
                ARTIFACTS,
                "artifact_id",
                "context_artifact",
                "Artifact",
                "A document in full, by its artifact_id",
            ),
        ),
    ];
    let offered = templates
        .into_iter()
        .filter(|(operation, _)| offers(*operation));
    offered.map(|(_, template)| template).collect()
}

/// The error for a resource that cannot be read, with the service's sentence.
#[must_use]
pub fn unreadable(error: Error) -> ErrorData {
    let reason = json!({ "reason": error.reason.as_str() });
    ErrorData::internal_error(error.message, Some(reason))
}

/// "Resource not found", with the reason, and the URI, cut to 200 characters, in its data.
#[must_use]
pub fn not_found(uri: &str) -> ErrorData {
    let reason = if uri.starts_with(ARTIFACTS) {
        Reason::ArtifactNotFound
    } else if uri.starts_with(ENTRIES) || uri.starts_with(THREADS) {
        Reason::ContextNotFound
    } else {
        Reason::NotFound
    };
    unavailable(uri, "resource not found".to_owned(), reason)
}

/// The error for a resource whose tool is disabled. It says nothing about whether the resource exists.
#[must_use]
pub fn disabled(uri: &str, operation: Operation) -> ErrorData {
    let tool = operation.as_str();
    let message = format!(
        "this resource is not available, because the tool `{tool}` that reads it is disabled (DISABLED_TOOLS)"
    );
    unavailable(uri, message, Reason::FeatureUnavailable)
}

fn unavailable(uri: &str, message: String, reason: Reason) -> ErrorData {
    let shown: String = uri.chars().take(200).collect();
    let data = json!({ "uri": shown, "reason": reason.as_str() });
    ErrorData::resource_not_found(message, Some(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "019aa3f0-c2b0-7d5e-8a4b-6c1d2e3f4a5b";

    #[test]
    fn a_uri_names_what_its_percent_encoding_says() {
        let artifact = || Some(Resource::Artifact(ID.into()));
        for (uri, expected) in [
            ("context://entries/42", Some(Resource::Entry(42))),
            ("context://entries/0", None),
            ("context://entries/+1", None),
            (
                "context://threads/billing",
                Some(Resource::Thread("billing".into())),
            ),
            (
                "context://threads/a%2Fb%20%C3%A4",
                Some(Resource::Thread("a/b ä".into())),
            ),
            ("context://threads/%FF", None),
            ("context://threads/%20", None),
            ("context://threads/", None),
            ("context://threads/%20x", Some(Resource::Thread("x".into()))),
            ("context://threads/a%00", None),
            (format!("{THREADS}{}", "x".repeat(257)).as_str(), None),
            (format!("{ARTIFACTS}{ID}").as_str(), artifact()),
            (
                format!("{ARTIFACTS}{}", ID.to_uppercase()).as_str(),
                artifact(),
            ),
            (format!("{ARTIFACTS}urn:uuid:{ID}").as_str(), artifact()),
            ("context://artifacts/x", None),
            ("context://artifact/019a", None),
            ("file:///etc/passwd", None),
        ] {
            assert_eq!(Resource::parse(uri).ok(), expected, "{uri}");
        }
        let long = format!("{THREADS}{}", "%C3%A4".repeat(700));
        assert_eq!(Resource::parse(&long).ok(), None);
    }
}
