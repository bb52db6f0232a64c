//! Requests and replies about artifacts.

use serde::{Deserialize, Serialize};

use crate::{JsonObject, MetadataFilter, Timestamp};

/// An artifact to create.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateArtifactRequest {
    /// The content: 1 to 100 000 characters, not blank.
    #[serde(default)]
    #[schema(
        required,
        min_length = 1,
        max_length = 100000,
        example = "# Release plan\n\nShip on Friday."
    )]
    pub content: String,
    /// A title of at most 200 characters. If absent or blank, it is taken from the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub title: Option<String>,
    /// Any JSON object, at most 64 levels deep and 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
    /// A path of 1 to 1 024 characters that no other artifact has; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 1024, example = "/plans/release.md")]
    pub path: Option<String>,
}

/// The created artifact.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct CreateArtifactReply {
    /// The artifact's id, a UUID.
    #[schema(format = "uuid")]
    pub id: String,
    /// Its title, given or generated.
    pub title: String,
    /// Its content.
    pub content: String,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: JsonObject,
    /// Its path; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// What happened, as a sentence.
    pub message: String,
    /// Its version: 1.
    pub version: i64,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which artifacts to list.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListArtifactsRequest {
    /// Maximum number of artifacts, 1 to 50; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// Number of artifacts to skip; default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    /// `next_cursor` of the previous reply; not together with an offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Only artifacts whose path begins with this; 1 to 1 024 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_prefix: Option<String>,
    /// Conditions on metadata. All must hold. At most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_filters: Option<Vec<MetadataFilter>>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// Artifacts, newest first.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListArtifactsReply {
    /// The artifacts of this page.
    pub result: Vec<ArtifactSummary>,
    /// Total number of artifacts that satisfy the filters.
    pub total: i64,
    /// Whether more artifacts follow this page.
    pub has_more: bool,
    /// Cursor of the next page; null on the last page.
    #[schema(required)]
    pub next_cursor: Option<String>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// An artifact in a list.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ArtifactSummary {
    /// The artifact's id, a UUID.
    #[schema(format = "uuid")]
    pub id: String,
    /// Its title.
    pub title: String,
    /// The first 200 characters of its content, and `...` if there are more.
    pub content_preview: String,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: JsonObject,
    /// Its path; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its newest version was created.
    pub updated_at: Timestamp,
}

/// A search in titles and contents.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SearchArtifactsRequest {
    /// The substring to search for: 1 to 1000 characters, not blank. Case is ignored; `%` and `_` have no special
    /// function. With `mode: ranked`, a query in natural language.
    #[serde(default)]
    pub query: String,
    /// `substring` (newest first) or `ranked` (by words and by meaning, best first); default: `substring`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Conditions on metadata. All must hold. At most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_filters: Option<Vec<MetadataFilter>>,
    /// Maximum number of artifacts, 1 to 50; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// Artifacts that match, newest first, or best first with `mode: ranked`.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct SearchArtifactsReply {
    /// The artifacts.
    pub result: Vec<ArtifactHit>,
    /// Whether more artifacts match than `limit`. How many is not counted.
    pub has_more: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// An artifact that a search found.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ArtifactHit {
    /// The artifact's id, a UUID.
    #[schema(format = "uuid")]
    pub id: String,
    /// Its title.
    pub title: String,
    /// The first 200 characters of its content, and `...` if there are more. With the mode `ranked`, at most
    /// SEARCH_TRUNCATION_LENGTH characters.
    pub content_preview: String,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: JsonObject,
    /// Its path; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The query that found it, as `Matched query: '…'`.
    pub relevance_context: String,
    /// How likely it is about the query, 0 to 1, comparable between queries; only with `mode: ranked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub relevance: Option<f64>,
    /// At most 300 characters of the content around what matches the query best, if it lies beyond the opening; only
    /// with `mode: ranked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
}

/// Which artifact to fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GetArtifactRequest {
    /// The artifact's id.
    #[serde(default)]
    pub artifact_id: String,
    /// The artifact's path, instead of its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// An artifact in full, at its newest version.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct Artifact {
    /// The artifact's id, a UUID.
    #[schema(format = "uuid")]
    pub id: String,
    /// Its title, given or generated.
    pub title: String,
    /// Its content.
    pub content: String,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: JsonObject,
    /// Its path; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its newest version was created.
    pub updated_at: Timestamp,
    /// The number of its newest version, from 1; the `ETag` begins with it.
    pub version: i64,
}

/// An artifact in full, and the revision of the reply.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct GetArtifactReply {
    /// The artifact.
    #[serde(flatten)]
    pub artifact: Artifact,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// Changes to an artifact; at least one of title, content, metadata, path and edits is required.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateArtifactRequest {
    /// The artifact to update.
    #[serde(default)]
    pub artifact_id: String,
    /// A new title of at most 200 characters; a blank one restores the generated title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The new content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Metadata that replaces the stored object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<JsonObject>,
    /// A new path that no other artifact has; "" removes the path. This creates no version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Edits of single places in the content; not together with `content`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edits: Option<Vec<ArtifactEdit>>,
    /// The version that the caller read; the update is refused if the artifact changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<i64>,
    /// Whether the reply has the content; default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_content: Option<bool>,
}

/// Changes to an artifact. At least one of title, content, metadata, path and edits is required.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateArtifactBody {
    /// A new title of at most 200 characters; a blank one restores the generated title.
    #[schema(max_length = 200)]
    pub title: Option<String>,
    /// The new content.
    #[schema(min_length = 1, max_length = 100000)]
    pub content: Option<String>,
    /// Metadata that replaces the stored object.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
    /// A new path that no other artifact has; "" removes the path. This creates no version.
    #[schema(max_length = 1024)]
    pub path: Option<String>,
    /// 1 to 100 edits of single places in the content; not together with `content`.
    #[schema(min_items = 1, max_items = 100)]
    pub edits: Option<Vec<ArtifactEdit>>,
    /// The version that the caller read. It has the same effect as `If-Match`.
    pub expected_version: Option<i64>,
    /// Whether the reply has the content; default: true.
    pub return_content: Option<bool>,
}

impl UpdateArtifactBody {
    /// The request for the artifact with this id.
    #[must_use]
    pub fn for_artifact(self, artifact_id: String) -> UpdateArtifactRequest {
        let Self {
            title,
            content,
            metadata,
            path,
            edits,
            expected_version,
            return_content,
        } = self;
        UpdateArtifactRequest {
            artifact_id,
            title,
            content,
            metadata,
            path,
            edits,
            expected_version,
            return_content,
        }
    }
}

/// A change at one place of the content. Exactly one of `old_str` and `insert_line` is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEdit {
    /// The text to replace; it must occur exactly once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_str: Option<String>,
    /// The number of the line after which the text is inserted; 0 inserts it before the first line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub insert_line: Option<i64>,
    /// The replacement, or the text to insert.
    // No default: a forgotten field must not delete text.
    pub new_str: String,
}

/// The artifact after an update.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct UpdateArtifactReply {
    /// The artifact's id, a UUID.
    #[schema(format = "uuid")]
    pub id: String,
    /// Its title, given or generated.
    pub title: String,
    /// Its content; absent if `return_content` is false, or without the scope `read`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: JsonObject,
    /// Its path; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its newest version was created.
    pub updated_at: Timestamp,
    /// The number of its newest version, from 1; the `ETag` is this number in quotes.
    pub version: i64,
    /// What happened, as a sentence.
    pub message: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which artifact to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteArtifactRequest {
    /// The artifact's id.
    #[serde(default)]
    pub artifact_id: String,
}

/// The outcome of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct DeleteArtifactReply {
    /// What happened, as a sentence.
    pub message: String,
    /// The id of the deleted artifact.
    #[schema(format = "uuid")]
    pub artifact_id: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which artifacts to move, and where to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveArtifactsRequest {
    /// The path of the artifact to move. Every artifact below it moves too; at most 1 000 in all.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 1024, example = "/plans")]
    pub path: String,
    /// The path that replaces `path` at the start of each moved path. It must not equal `path` or lie below it. If an
    /// artifact that is not moved has this path, a path below it, or one above it, the error is `PATH_TAKEN`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 1024, example = "/archive/plans")]
    pub to: String,
}

/// The outcome of a move.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct MoveArtifactsReply {
    /// Number of artifacts that were moved.
    pub moved_count: i64,
    /// What happened, as a sentence.
    pub message: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which artifacts to delete.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteArtifactsRequest {
    /// The path of the artifact to delete. Every artifact below it is deleted too; at most 1 000 in all.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 1024, example = "/plans")]
    pub path: String,
}

/// The outcome of a delete by path.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct DeleteArtifactsReply {
    /// Number of artifacts that were deleted.
    pub deleted_count: i64,
    /// What happened, as a sentence.
    pub message: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which artifact's versions to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ListArtifactVersionsRequest {
    /// The artifact's id.
    #[serde(default)]
    pub artifact_id: String,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// The history of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListArtifactVersionsReply {
    /// The artifact's id.
    #[schema(format = "uuid")]
    pub artifact_id: String,
    /// The number of its newest version.
    pub current_version: i64,
    /// Number of changes since it was created: `current_version` − 1.
    pub total_edits: i64,
    /// Earlier versions, newest first, at most 50, without the current one.
    pub recent_versions: Vec<ArtifactVersionSummary>,
    /// Whether there are earlier versions than these. get_artifact_version returns each by its number.
    pub has_more: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// An earlier version in a list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ArtifactVersionSummary {
    /// Its number, from 1.
    pub version: i64,
    /// The title at that version.
    pub title: String,
    /// When it was created.
    pub updated_at: Timestamp,
    /// Which of `title`, `content` and `metadata` it changed. Empty for version 1.
    pub changes: Vec<String>,
}

/// Which version to fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GetArtifactVersionRequest {
    /// The artifact's id.
    #[serde(default)]
    pub artifact_id: String,
    /// The version's number, from 1.
    #[serde(default)]
    pub version_number: i64,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// A version in full.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct GetArtifactVersionReply {
    /// Its number.
    pub version: i64,
    /// Its title.
    pub title: String,
    /// Its content.
    pub content: String,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: JsonObject,
    /// When it was created.
    pub updated_at: Timestamp,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// Which version to restore.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreArtifactVersionRequest {
    /// The artifact's id.
    #[serde(default)]
    pub artifact_id: String,
    /// The version to restore, from 1.
    #[serde(default)]
    pub version_number: i64,
    /// The version that the caller read; the restore is refused if the artifact changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<i64>,
}

/// What a restore is based on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreArtifactVersionBody {
    /// The version that the caller read. It has the same effect as `If-Match`.
    pub expected_version: Option<i64>,
}

/// The artifact after a restore.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct RestoreArtifactVersionReply {
    /// Always true.
    pub success: bool,
    /// What happened, as a sentence.
    pub message: String,
    /// The number of the new version.
    pub current_version: i64,
    /// Its title.
    pub title: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which versions to compare.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DiffArtifactVersionsRequest {
    /// The artifact's id.
    #[serde(default)]
    pub artifact_id: String,
    /// The version to compare from.
    #[serde(default)]
    pub from_version: i64,
    /// The version to compare with; default: the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_version: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// The difference between two versions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct DiffArtifactVersionsReply {
    /// The artifact's id.
    #[schema(format = "uuid")]
    pub artifact_id: String,
    /// The version to compare from.
    pub from_version: i64,
    /// The version to compare with.
    pub to_version: i64,
    /// Which of `title`, `content` and `metadata` differ.
    pub changes: Vec<String>,
    /// A unified diff of the content with three lines of context; "" if the content is the same.
    pub diff: String,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}
