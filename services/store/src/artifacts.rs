//! What a database must implement for artifacts.

use async_trait::async_trait;
use context_model::{
    ArtifactId, ArtifactPath, ArtifactUpdate, Condition, JsonObject, NewArtifact, ObjectText,
    Timestamp,
};

use crate::{OwnerId, Read, Result, WriteOptions, Written};

/// An artifact with its current version.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredArtifact {
    /// The artifact's id.
    pub id: ArtifactId,
    /// The title.
    pub title: String,
    /// Whether a caller gave the title. Otherwise it is generated from the content.
    pub title_given: bool,
    /// The path, if it has one.
    pub path: Option<String>,
    /// The content.
    pub content: String,
    /// The metadata.
    pub metadata: JsonObject,
    /// When it was created.
    pub created_at: Timestamp,
    /// When the current version was stored.
    pub updated_at: Timestamp,
    /// The number of the current version.
    pub version: i64,
}

/// A request to restore an earlier version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRestore {
    /// The artifact.
    pub id: ArtifactId,
    /// The version whose title, content and metadata become the new version's.
    pub version: i64,
    /// If set, the write is rejected when the artifact is at another version.
    pub expected_version: Option<i64>,
}

/// Which artifacts to list. Every condition that is present must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ArtifactSelection {
    /// Only artifacts whose title or content contains this text literally, ignoring case.
    pub substring: Option<String>,
    /// Only artifacts whose path begins with this text.
    pub path_prefix: Option<String>,
    /// Conditions on metadata.
    pub conditions: Vec<Condition>,
}

impl ArtifactSelection {
    /// Whether it has no condition.
    #[must_use]
    pub fn selects_all(&self) -> bool {
        let Self {
            substring,
            path_prefix,
            conditions,
        } = self;
        substring.is_none() && path_prefix.is_none() && conditions.is_empty()
    }
}

/// An artifact as a document of ranked searches: its current version.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactDocument {
    /// The document's id in rankings. Negative, so that it differs from the id of every entry.
    pub document: i64,
    /// The artifact's id.
    pub id: ArtifactId,
    /// The title.
    pub title: String,
    /// The path, if it has one.
    pub path: Option<String>,
    /// The content.
    pub content: String,
    /// The metadata. It stays text, because the parsed form can take many times its length.
    pub metadata: ObjectText,
    /// When the artifact was created.
    pub created_at: Timestamp,
    /// When the version was stored.
    pub updated_at: Timestamp,
    /// Version number.
    pub version: i64,
    /// Whether it does not match its checksum. Such an artifact must not be shown.
    pub damaged: bool,
}

/// The page of a list to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactPage {
    /// Maximum number of artifacts.
    pub limit: u32,
    /// Where the page begins.
    pub start: PageStart,
    /// Maximum number of characters read of each content.
    pub preview_chars: u32,
    /// Maximum number of metadata bytes on the page. A larger page is rejected with `RESULT_TOO_LARGE`, except when it
    /// has only one artifact.
    pub max_bytes: u64,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStart {
    /// After this many artifacts.
    Offset(u64),
    /// After the artifact with this time and id. The artifact need not exist any more.
    After {
        /// Its creation time.
        created_at: Timestamp,
        /// Its id.
        id: ArtifactId,
    },
}

/// An artifact in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedArtifact {
    /// The artifact's id.
    pub id: ArtifactId,
    /// The title.
    pub title: String,
    /// The beginning of the content, up to `preview_chars` characters.
    pub preview: String,
    /// The metadata. It stays text, because the parsed form can take many times its length.
    pub metadata: ObjectText,
    /// The path, if it has one.
    pub path: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When the current version was stored.
    pub updated_at: Timestamp,
    /// The number of the current version if the part that was read does not match its checksum. Such an artifact must
    /// not be shown.
    pub damaged_version: Option<i64>,
}

/// Artifacts of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactsPage {
    /// The artifacts, in order.
    pub artifacts: Vec<ListedArtifact>,
    /// Number of the owner's artifacts that match the path prefix and the metadata conditions. The substring is not
    /// applied.
    pub total: i64,
    /// The owner's revision when the page was read.
    pub revision: i64,
}

/// The versions of an artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactHistory {
    /// The number of the current version.
    pub current_version: i64,
    /// Earlier versions, newest first.
    pub earlier: Vec<ListedVersion>,
}

/// A version in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedVersion {
    /// Version number.
    pub version: i64,
    /// The title.
    pub title: String,
    /// When it was stored.
    pub at: Timestamp,
    /// The fields that differ from the previous version.
    pub changes: Vec<String>,
    /// Whether the part that was read does not match its checksum. Such a version must not be shown.
    pub damaged: bool,
}

/// A complete version.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVersion {
    /// Version number.
    pub version: i64,
    /// The title.
    pub title: String,
    /// The content.
    pub content: String,
    /// The metadata.
    pub metadata: JsonObject,
    /// When it was stored.
    pub at: Timestamp,
}

/// A value together with the owner's revision when it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct AtRevision<T> {
    /// The value.
    pub value: T,
    /// The owner's revision.
    pub revision: i64,
}

/// Result of a lookup of artifact versions.
#[derive(Debug, Clone, PartialEq)]
pub enum VersionLookup {
    /// The artifact exists.
    Artifact {
        /// The number of the current version.
        current_version: i64,
        /// One element per requested number, in the order of the request: the version, if it exists.
        versions: Vec<Option<StoredVersion>>,
    },
    /// The artifact does not exist.
    NoArtifact,
}

/// A database of artifacts. Their titles and contents are also indexed for
/// [`VectorStore::rank`](crate::VectorStore::rank). `options.embeddings` of a write has the embedding of the
/// [`document_text`](crate::rules::artifact::document_text) after the write. The guarantees of [`Store`](crate::Store)
/// about writes and futures apply here too.
///
/// Each change of title, content or metadata creates a version and a row in `changes` and increments the owner's
/// revision by one. The times of an artifact's versions increase with their numbers.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Creates an artifact with a new id.
    ///
    /// # Errors
    /// `PATH_TAKEN`; [`StoreError`](crate::StoreError). Nothing is stored then.
    async fn create_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        new: NewArtifact,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>>;

    /// Updates an artifact. An update without effect creates no version. Nor does a change of the path alone, but it is
    /// a change in the feed.
    ///
    /// # Errors
    /// `ARTIFACT_NOT_FOUND`, `PATH_TAKEN`, `VERSION_MISMATCH`, or an edit that does not fit the content. Nothing is
    /// changed then.
    async fn update_artifact(
        &self,
        owner: &OwnerId,
        update: ArtifactUpdate,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>>;

    /// Creates a new version from an earlier one, even if the content is the same.
    ///
    /// # Errors
    /// `ARTIFACT_NOT_FOUND`, `ARTIFACT_VERSION_NOT_FOUND`, `VERSION_MISMATCH`. Nothing is changed then.
    async fn restore_artifact(
        &self,
        owner: &OwnerId,
        restore: ArtifactRestore,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>>;

    /// Deletes an artifact with all its versions.
    ///
    /// # Errors
    /// `ARTIFACT_NOT_FOUND`.
    async fn delete_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        options: WriteOptions,
    ) -> Result<Written<()>>;

    /// The artifact with its current version. `None` when it does not exist.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn get_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        read: Read,
    ) -> Result<AtRevision<Option<StoredArtifact>>>;

    /// Moves the artifact with the path `from`, and those below it, to `to`. All are moved or none. Returns how many.
    ///
    /// # Errors
    /// `ARTIFACT_NOT_FOUND` when there is none; `PATH_TAKEN` when an artifact that is not moved is at `to`, below it or
    /// above it; `INVALID_ARGUMENT` for too many artifacts or too long a path. Nothing is changed then.
    async fn move_artifacts(
        &self,
        owner: &OwnerId,
        from: ArtifactPath,
        to: ArtifactPath,
        options: WriteOptions,
    ) -> Result<Written<u64>>;

    /// Deletes the artifact with this path, and those below it, with all versions. All are deleted or none. Returns how
    /// many.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for too many artifacts. Nothing is deleted then.
    async fn delete_artifacts(
        &self,
        owner: &OwnerId,
        path: ArtifactPath,
        options: WriteOptions,
    ) -> Result<Written<u64>>;

    /// The id of the artifact with this path, if there is one.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn artifact_at(
        &self,
        owner: &OwnerId,
        path: ArtifactPath,
        read: Read,
    ) -> Result<AtRevision<Option<ArtifactId>>>;

    /// A page of the selected artifacts, newest first (created_at, then id, descending).
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_artifacts(
        &self,
        owner: &OwnerId,
        selection: ArtifactSelection,
        page: ArtifactPage,
        read: Read,
    ) -> Result<ArtifactsPage>;

    /// The documents with these ids, which a ranking returned, in any order. Artifacts that no longer exist are left
    /// out, and so are those that changed after the revision `read.as_of`.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn artifact_documents(
        &self,
        owner: &OwnerId,
        ids: Vec<i64>,
        read: Read,
    ) -> Result<Vec<ArtifactDocument>>;

    /// The newest `limit` versions of an artifact, without the current one. `None` when the artifact does not exist.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn artifact_history(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        limit: u32,
        read: Read,
    ) -> Result<AtRevision<Option<ArtifactHistory>>>;

    /// Versions by number. `None` requests the current one. Intended for a few versions at a time.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn artifact_versions(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        numbers: Vec<Option<i64>>,
        read: Read,
    ) -> Result<AtRevision<VersionLookup>>;
}
