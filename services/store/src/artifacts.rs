//! What a database must do for artifacts.

use async_trait::async_trait;
use context_model::{ArtifactId, ArtifactUpdate, JsonObject, NewArtifact, Timestamp};

use crate::{OwnerId, Read, Result, WriteOptions, Written};

/// An artifact with its current version.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredArtifact {
    /// The artifact's id.
    pub id: ArtifactId,
    /// The title.
    pub title: String,
    /// The content.
    pub content: String,
    /// The metadata.
    pub metadata: JsonObject,
    /// When it was created.
    pub created_at: Timestamp,
    /// When the current version was made.
    pub updated_at: Timestamp,
    /// The number of the current version.
    pub version: i64,
}

/// Going back to an earlier version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRestore {
    /// The artifact.
    pub id: ArtifactId,
    /// The version whose title, content and metadata become the new version's.
    pub version: i64,
    /// Refuse when the artifact is at another version.
    pub expected_version: Option<i64>,
}

/// Which part of a list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArtifactPage {
    /// Artifacts at most.
    pub limit: u32,
    /// Where the page begins.
    pub start: PageStart,
    /// Characters of each content that are read, at most.
    pub preview_chars: u32,
    /// Bytes of metadata the page may hold, at most; a single artifact is never refused. Beyond it the read is
    /// `RESULT_TOO_LARGE`.
    pub max_bytes: u64,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStart {
    /// After this many artifacts.
    Offset(u64),
    /// After the artifact with this time and id, whether it still exists or not.
    After {
        /// When it was created.
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
    /// The start of the content, as much as was asked for.
    pub preview: String,
    /// The metadata.
    pub metadata: JsonObject,
    /// When it was created.
    pub created_at: Timestamp,
    /// When the current version was made.
    pub updated_at: Timestamp,
    /// The current version when it is not what was stored, as far as it was read. Such an artifact is not to be shown.
    pub damaged: Option<i64>,
}

/// Artifacts of one page.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactsPage {
    /// The artifacts in order.
    pub artifacts: Vec<ListedArtifact>,
    /// The owner's artifacts in all, whatever was searched for.
    pub total: i64,
    /// The owner's revision the page shows.
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
    /// Its number.
    pub version: i64,
    /// Its title.
    pub title: String,
    /// When it was made.
    pub at: Timestamp,
    /// What differs from the version before.
    pub changes: Vec<String>,
    /// Whether it is not what was stored, as far as it was read. Such a version is not to be shown.
    pub damaged: bool,
}

/// A version in full.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredVersion {
    /// Its number.
    pub version: i64,
    /// The title.
    pub title: String,
    /// The content.
    pub content: String,
    /// The metadata.
    pub metadata: JsonObject,
    /// When it was made.
    pub at: Timestamp,
}

/// What was read and the owner's revision that it shows.
#[derive(Debug, Clone, PartialEq)]
pub struct AtRevision<T> {
    /// What was read.
    pub value: T,
    /// The owner's revision.
    pub revision: i64,
}

/// What looking for versions of an artifact gave.
#[derive(Debug, Clone, PartialEq)]
pub enum VersionLookup {
    /// The artifact exists; these of the versions asked for do, in the order asked.
    Artifact {
        /// The number of the current version.
        current_version: i64,
        /// For each number asked for, the version, if there is one.
        versions: Vec<Option<StoredVersion>>,
    },
    /// There is no such artifact.
    NoArtifact,
}

/// A database of artifacts. What [`Store`](crate::Store) says of writes and futures holds here.
///
/// Each change of title, content or metadata makes a version, a row in `changes` and one step of the owner's revision.
/// Times of an artifact's versions grow with their numbers.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Creates an artifact under an id that was never used.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError); nothing is stored then.
    async fn create_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        new: NewArtifact,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>>;

    /// Changes an artifact. What changes nothing makes no version.
    ///
    /// # Errors
    /// `ARTIFACT_NOT_FOUND`, `VERSION_MISMATCH`, an edit that does not fit; nothing is changed then.
    async fn update_artifact(
        &self,
        owner: &OwnerId,
        update: ArtifactUpdate,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>>;

    /// Makes a new version out of an earlier one, even when nothing differs.
    ///
    /// # Errors
    /// `ARTIFACT_NOT_FOUND`, `ARTIFACT_VERSION_NOT_FOUND`, `VERSION_MISMATCH`; nothing is changed then.
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

    /// An artifact with its current version.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn get_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        read: Read,
    ) -> Result<AtRevision<Option<StoredArtifact>>>;

    /// Artifacts, newest first (created_at, then id, descending).
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_artifacts(
        &self,
        owner: &OwnerId,
        page: ArtifactPage,
        read: Read,
    ) -> Result<ArtifactsPage>;

    /// Artifacts whose title or content holds `query` as it is, in any case; newest first.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn search_artifacts(
        &self,
        owner: &OwnerId,
        query: String,
        page: ArtifactPage,
        read: Read,
    ) -> Result<ArtifactsPage>;

    /// The newest `limit` versions of an artifact before its current one.
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

    /// Versions by number; `None` stands for the current one. At most a few are asked for.
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
