//! A database that is a copy of an owner at another service: what `context-service follow` writes.

use context_model::{Artifact, Entry, JsonObject, Timestamp};
use serde::{Deserialize, Serialize};

/// An entry or an artifact as the source has it, or the fact that the source does not have it any more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Copied {
    /// An entry with its images.
    Entry(Box<Entry>),
    /// No entry has this id any more.
    EntryGone(i64),
    /// An artifact.
    Artifact(Box<CopiedArtifact>),
    /// No artifact has this id any more.
    ArtifactGone(String),
}

/// An artifact, and its versions that the copy lacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopiedArtifact {
    /// The artifact as it is now.
    pub artifact: Artifact,
    /// Consecutive versions, the current one last. They replace the copy's versions from the first number on. Empty
    /// when the copy has all versions and only the path can differ.
    pub versions: Vec<CopiedVersion>,
}

/// A version of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopiedVersion {
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

/// The position in the source's feed up to which a copy is complete. It is stored in the same transaction as the
/// changes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPosition {
    /// The source's cursor.
    pub cursor: String,
    /// The owner's revision at the source.
    pub revision: i64,
}
