use serde::{Deserialize, Serialize};

use crate::{Timestamp, Violations};

/// The identifier of a conversation or task, as a caller chose it: trimmed, 1 to 256 characters, case kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(String);

impl ThreadId {
    /// Characters, at most.
    pub const MAX_CHARS: usize = 256;

    /// Reads an identifier; `None` and a violation under `field` when it breaks a rule.
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

    /// An identifier that passed [`parse`](Self::parse) before, such as one read from a database.
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
    /// Threads to return at most, 1 to 1000; absent: 1000.
    #[schema(minimum = 1, maximum = 1000)]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    /// Threads to skip, from 0; absent: 0.
    #[schema(minimum = 0)]
    #[param(minimum = 0)]
    pub offset: Option<i64>,
    /// Read a state at or after this revision of an earlier reply.
    pub min_revision: Option<i64>,
}

/// Threads, latest activity first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListThreadsReply {
    /// The threads of this page.
    pub threads: Vec<Thread>,
    /// Threads in all.
    pub total_threads: i64,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// One thread with its counts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct Thread {
    /// The thread's identifier.
    pub thread_id: String,
    /// Entries in the thread.
    pub entry_count: i64,
    /// How many of the two sources have entries in it.
    pub source_types: i64,
    /// Entries of each source.
    pub sources: SourceCounts,
    /// Entries with at least one image.
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
    /// Entries stored with source `user`.
    pub user: i64,
    /// Entries stored with source `agent`.
    pub agent: i64,
}
