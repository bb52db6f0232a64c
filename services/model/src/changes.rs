//! Requests and replies about changes.

use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::search::OneOf;
use crate::{
    Artifact, ChangeOperation, ChangeOperationOrLater, ChangedEntity, ChangedEntityOrLater, Entry,
    FilterInput, Timestamp,
};

/// Which changes to list.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ListChangesRequest {
    /// `next_cursor` of an earlier reply; only changes after it are listed. `now`: no changes, only the cursor of this
    /// moment. Default: from the oldest retained change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Maximum number of changes that are read, 1 to 1000; default 100. Without bodies and previews, a commit of up to
    /// 1000 changes is never split, so a page can have more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// How long to wait for a change, 0 to 25 000 milliseconds; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<i64>,
    /// Only changes of entries and artifacts that satisfy these filters.
    #[serde(flatten)]
    pub filters: FilterInput,
    /// Only changes of context entries, or only changes of artifacts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// Whether each change carries the current state of its entry or artifact, without images; default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_body: Option<bool>,
    /// Number of characters of the current text that each change carries as `preview`, 0 to 1000; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview_chars: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

search_request!(@read ListChangesRequest
    { cursor, limit, wait_ms, }
    { thread_id, source, tags, content_type, metadata, metadata_filters, start_date, end_date }
    { entity, include_body, preview_chars, min_revision }
);

/// One change.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct Change {
    /// The owner's revision after it. Revisions have no gaps.
    pub revision: i64,
    /// When it was made.
    pub time: Timestamp,
    /// What happened.
    #[schema(value_type = ChangeOperationOrLater)]
    pub operation: String,
    /// What was changed.
    #[schema(value_type = ChangedEntityOrLater)]
    pub entity: String,
    /// The id of the entry or artifact.
    #[schema(example = "42")]
    pub id: String,
    /// The thread of an entry; absent for an artifact, and for `left`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The version after the change; absent if it has none, and for `left`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// True: no later change of its commit is listed. A commit that is split between pages has no such change if the
    /// filters leave out its last part.
    pub commit_end: bool,
    /// The key that made it; only for callers with the scope `manage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The start of the current text; absent unless `preview_chars` is set, or if the entry or artifact is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The entry as it is now, without images; absent unless `include_body` is true, or if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Entry>,
    /// The artifact as it is now; absent unless `include_body` is true, or if it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
}

/// Changes, in the order of their revisions.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListChangesReply {
    /// The changes.
    pub changes: Vec<Change>,
    /// The cursor of the next request.
    pub next_cursor: String,
    /// Whether more changes can be read at once.
    pub has_more: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
    /// Changes with a lower revision have been deleted.
    pub compacted_before: i64,
}

/// A stream of changes to open.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WatchRequest {
    /// `cursor` of an earlier frame, or `next_cursor` of a list. `now`: only changes from this moment on. Default: from
    /// the oldest retained change.
    pub cursor: Option<String>,
    /// Whether the stream begins with the present entries and artifacts; default: false. Not together with a cursor.
    pub snapshot: Option<bool>,
    /// Only changes of entries and artifacts that satisfy these filters.
    pub filters: FilterInput,
    /// Only changes of context entries, or only changes of artifacts.
    pub entity: Option<String>,
    /// Whether frames carry the current state of their entry or artifact, without images; default: false.
    pub include_body: Option<bool>,
    /// Number of characters of the current text that frames carry as `preview`, 0 to 1000; default 0.
    pub preview_chars: Option<i64>,
    /// The `revision` of an earlier reply. The stream starts at that state or a later one.
    pub min_revision: Option<i64>,
}

/// An entry or artifact of a snapshot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SnapshotEntry {
    /// `context` or `artifact`.
    pub entity: String,
    /// The id of the entry or artifact.
    pub id: String,
    /// The thread of an entry; absent for an artifact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Its version; absent for an artifact without a body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
    /// The start of its text; absent unless `preview_chars` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    /// The entry, without images; absent unless `include_body` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<Entry>,
    /// The artifact; absent unless `include_body` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Artifact>,
}

impl SnapshotEntry {
    /// Whether it carries a preview or a body.
    #[must_use]
    pub const fn has_text(&self) -> bool {
        self.preview.is_some() || self.context.is_some() || self.artifact.is_some()
    }
}

/// A frame of a stream of changes. In JSON it is only its content; [`name`](Self::name) says which frame it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum WatchFrame {
    /// The first frame: the stream starts after this revision.
    Opened {
        /// The revision.
        revision: i64,
    },
    /// An entry or artifact of the snapshot. It may be newer than the snapshot's revision.
    Entry(Box<SnapshotEntry>),
    /// The snapshot is complete. Every change after this revision follows.
    SnapshotEnd {
        /// The revision.
        revision: i64,
    },
    /// A change.
    Change(Box<Change>),
    /// Everything up to this revision was sent.
    Bookmark {
        /// The revision.
        revision: i64,
    },
    /// The last frame of a stream that cannot be continued as it is.
    Resync {
        /// `RESYNC_REQUIRED`, `CURSOR_COMPACTED` or `SLOW_CONSUMER`.
        reason: &'static str,
        /// The cursor before the oldest retained change; only with `CURSOR_COMPACTED`.
        #[serde(skip_serializing_if = "Option::is_none")]
        oldest_cursor: Option<Box<str>>,
    },
    /// The last frame of a stream that the service ends.
    End {
        /// `KEY_REVOKED`, `OWNER_ERASED` or `DRAINING`.
        reason: &'static str,
    },
}

impl WatchFrame {
    /// Its name: the event of Server-Sent Events.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Opened { .. } => "opened",
            Self::Entry(_) => "entry",
            Self::SnapshotEnd { .. } => "snapshot_end",
            Self::Change(change) if change.operation == ChangeOperation::Left.as_str() => "left",
            Self::Change(_) => "change",
            Self::Bookmark { .. } => "bookmark",
            Self::Resync { .. } => "resync",
            Self::End { .. } => "end",
        }
    }

    /// Approximate number of bytes that its texts and metadata take in memory.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let (preview, context, artifact) = match self {
            Self::Entry(entry) => (&entry.preview, &entry.context, &entry.artifact),
            Self::Change(change) => (&change.preview, &change.context, &change.artifact),
            Self::Opened { .. }
            | Self::SnapshotEnd { .. }
            | Self::Bookmark { .. }
            | Self::Resync { .. }
            | Self::End { .. } => return 0,
        };
        let context = context.as_ref().map_or(0, |entry| {
            entry.text_content.len() + entry.summary.len() + entry.metadata.as_str().len()
        });
        let artifact = artifact.as_ref().map_or(0, |artifact| {
            artifact.content.len() + crate::held_bytes(&artifact.metadata)
        });
        preview.as_ref().map_or(0, String::len) + context + artifact
    }
}

/// A frame, and the cursor with which a later stream continues after it.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchEvent {
    /// The frame.
    pub frame: WatchFrame,
    /// The cursor. `None` before the end of a snapshot, and for the last frame.
    pub cursor: Option<String>,
}

impl ChangedEntity {
    /// Parses the name of an entity. Adds a violation and returns `None` for another name.
    pub fn read(given: &str, violations: &mut crate::Violations) -> Option<Self> {
        let entity = Self::parse(given);
        if entity.is_none() {
            violations.push(
                "entity",
                format!(
                    "`entity` is `{}`; it must be `context` or `artifact`",
                    crate::entry::shorten(given)
                ),
            );
        }
        entity
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_frame_counts_the_metadata_of_its_artifact_with_what_it_takes_in_memory() {
        let values = 1000;
        let artifact: Artifact =
            serde_json::from_value(json!({"id": "a", "title": "t", "content": "four",
            "metadata": {"key": vec![0; values]}, "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z", "version": 1}))
            .unwrap();
        let frame = WatchFrame::Entry(Box::new(SnapshotEntry {
            entity: "artifact".to_owned(),
            id: "a".to_owned(),
            thread_id: None,
            version: Some(1),
            preview: None,
            context: None,
            artifact: Some(artifact),
        }));
        let in_memory = values * size_of::<serde_json::Value>();
        assert!(frame.held_bytes() > in_memory, "{}", frame.held_bytes());
    }

    #[test]
    fn a_request_reads_its_own_parameters_and_the_filters() {
        let given = json!({"cursor": "now", "limit": 5, "wait_ms": 10, "thread_id": "t", "tags": ["a"],
            "entity": "context", "include_body": true, "preview_chars": 3});
        let request: ListChangesRequest = crate::decode(given.clone()).unwrap();
        assert_eq!(request.filters.thread_id.as_deref(), Some("t"));
        assert_eq!(serde_json::to_value(&request).unwrap(), given);
        let error = crate::decode::<ListChangesRequest>(json!({"wait": 5})).unwrap_err();
        assert_eq!(
            error.message,
            "`wait` is not a parameter; did you mean `wait_ms`?"
        );
    }
}
