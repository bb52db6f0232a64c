//! A database that is a copy of an owner at another service: what `context-service follow` writes.

use context_model::{Artifact, Entry, JsonObject, Timestamp};
use serde::{Deserialize, Serialize};

/// An entry or an artifact as it is at the source, or the news that it is gone.
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

/// An artifact, and those of its versions that the copy lacks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopiedArtifact {
    /// The artifact as it is now.
    pub artifact: Artifact,
    /// Consecutive versions, the current one last. Versions from the first of these on replace those of the copy. Empty
    /// when the copy has all versions, so that only the path can differ.
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

/// Up to where a copy has everything. It is stored in the transaction of what it covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyPosition {
    /// The source's cursor.
    pub cursor: String,
    /// The owner's revision at the source.
    pub revision: i64,
}
