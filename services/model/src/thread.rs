use serde::{Deserialize, Serialize};

use crate::{Timestamp, Violations};

/// The caller's identifier of a conversation or task: trimmed, 1 to 256 characters, case-sensitive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(String);

impl ThreadId {
    /// Longest identifier, in characters.
    pub const MAX_CHARS: usize = 256;

    /// Parses an identifier; if it breaks a rule, adds a violation under `field` and returns
    /// `None`.
    pub fn parse(given: &str, field: &str, violations: &mut Violations) -> Option<Self> {
        let id = given.trim();
        if id.is_empty() {
            violations.push(
                field,
                format!("`{field}` is required and must not be blank"),
            );
        } else if id.contains('\0') {
            violations.push(
                field,
                format!("`{field}` contains the character U+0000, which cannot be stored"),
            );
        } else if id.chars().nth(Self::MAX_CHARS).is_some() {
            violations.push(
                field,
                format!(
                    "`{field}` has {} characters; the maximum is {}",
                    id.chars().count(),
                    Self::MAX_CHARS
                ),
            );
        } else {
            return Some(Self(id.to_owned()));
        }
        None
    }

    /// An identifier that was validated before, such as one from a database.
    #[must_use]
    pub const fn from_stored(id: String) -> Self {
        Self(id)
    }

    /// The identifier.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The identifier.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

/// Text that the names of threads may contain: trimmed, 1 to 256 characters. Case matters, except that of A to Z.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadNamePart(String);

impl ThreadNamePart {
    /// Parses the text by the rules of [`ThreadId`]; if it breaks one, adds a violation under `field` and returns
    /// `None`.
    pub fn parse(given: &str, field: &str, violations: &mut Violations) -> Option<Self> {
        let mut text = ThreadId::parse(given, field, violations)?.into_string();
        text.make_ascii_lowercase();
        Some(Self(text))
    }

    /// The text, with A to Z in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which threads to list.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Deserialize,
    Serialize,
    utoipa::ToSchema,
    utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListThreadsRequest {
    /// Maximum number of threads, 1 to 1000; default 1000.
    #[schema(minimum = 1, maximum = 1000)]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    /// Number of threads to skip; default 0.
    #[schema(minimum = 0)]
    #[param(minimum = 0)]
    pub offset: Option<i64>,
    /// Only threads whose name contains this text. A to Z match in upper or lower case. The 100 000 threads with the
    /// latest activity are searched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub name: Option<String>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    pub min_revision: Option<i64>,
}

/// Threads, latest activity first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListThreadsReply {
    /// The threads of this page.
    pub threads: Vec<Thread>,
    /// Total number of threads that the request selects.
    pub total_threads: i64,
    /// Whether more threads follow this page.
    pub has_more: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// Which thread to return.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GetThreadRequest {
    /// The thread, as in the entries.
    #[serde(default)]
    pub thread_id: String,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// One thread, and the revision of the reply.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct GetThreadReply {
    /// The thread.
    #[serde(flatten)]
    pub thread: Thread,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// One thread with its counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct Thread {
    /// The thread's identifier.
    pub thread_id: String,
    /// Number of entries in the thread.
    pub entry_count: i64,
    /// Number of different sources among the thread's entries: 1 or 2.
    pub source_types: i64,
    /// Number of entries by source.
    pub sources: SourceCounts,
    /// Number of entries with at least one image.
    pub multimodal_count: i64,
    /// When the oldest entry was created.
    pub first_entry: Timestamp,
    /// When the newest entry was created.
    pub last_entry: Timestamp,
    /// The id of the newest entry.
    pub last_id: i64,
}

/// Entries by source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct SourceCounts {
    /// Number of entries with source `user`.
    pub user: i64,
    /// Number of entries with source `agent`.
    pub agent: i64,
}
