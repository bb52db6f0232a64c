//! Versions of artifacts: how a change turns the current version into the next.

use context_model::{
    ArtifactId, ArtifactPath, ArtifactState, ArtifactUpdate, Error, JsonObject, Metadata,
    NewArtifact, ObjectText, Timestamp,
};

use crate::seal::{self, StoredVersionContent};
use crate::{
    ArtifactDocument, ArtifactRestore, CopiedVersion, Record, Recorded, StoreError, StoredArtifact,
    StoredVersion,
};

/// The text that searches index for an artifact: its title, an empty line and its content.
#[must_use]
pub fn document_text(title: &str, content: &str) -> String {
    format!("{title}\n\n{content}")
}

/// A version as it was read, damaged or not, with the creation time of its artifact.
#[derive(Debug, Clone)]
pub struct ReadVersion {
    /// The artifact.
    pub id: ArtifactId,
    /// When the artifact was created, in microseconds.
    pub created_at: i64,
    /// The artifact's path.
    pub path: Option<String>,
    /// Version number.
    pub version: i64,
    /// When it was stored, in microseconds.
    pub at: i64,
    /// Whether a caller gave the title. Otherwise it is generated from the content.
    pub title_given: bool,
    /// The title.
    pub title: String,
    /// The metadata, as JSON.
    pub metadata: String,
    /// The content.
    pub content: String,
    /// The checksum.
    pub seal: Option<Vec<u8>>,
}

impl ReadVersion {
    /// Whether the title, metadata and content match the checksum.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let read = StoredVersionContent {
            id: &self.id.to_string(),
            version: self.version,
            title: &self.title,
            metadata: Some(&self.metadata),
            content: Some(&self.content),
        };
        self.object().is_some() && seal::artifact_is_sound(&read, self.seal.as_deref())
    }

    /// Returns the version if it is sound.
    ///
    /// # Errors
    /// `STORAGE_CORRUPT` when the version does not match its checksum.
    pub fn checked(self) -> Result<Self, StoreError> {
        if self.is_sound() {
            Ok(self)
        } else {
            Err(seal::refuse_artifact(&self.id, self.version).into())
        }
    }

    /// The artifact with this version as its current one.
    #[must_use]
    pub fn into_artifact(self) -> StoredArtifact {
        StoredArtifact {
            metadata: self.object().unwrap_or_default(),
            id: self.id,
            title: self.title,
            title_given: self.title_given,
            path: self.path,
            content: self.content,
            created_at: Timestamp(self.created_at),
            updated_at: Timestamp(self.at),
            version: self.version,
        }
    }

    /// The document with this id, with this version as the artifact's current one.
    #[must_use]
    pub fn into_document(self, document: i64) -> ArtifactDocument {
        ArtifactDocument {
            document,
            damaged: !self.is_sound(),
            metadata: ObjectText::from_slice(self.metadata.as_bytes()).unwrap_or_default(),
            id: self.id,
            title: self.title,
            path: self.path,
            content: self.content,
            created_at: Timestamp(self.created_at),
            updated_at: Timestamp(self.at),
            version: self.version,
        }
    }

    /// The version without its artifact.
    #[must_use]
    pub fn into_version(self) -> StoredVersion {
        StoredVersion {
            metadata: self.object().unwrap_or_default(),
            version: self.version,
            title: self.title,
            content: self.content,
            at: Timestamp(self.at),
        }
    }

    /// Its title, content and metadata.
    #[must_use]
    pub fn state(&self) -> ArtifactState {
        ArtifactState {
            title: self.title.clone(),
            title_given: self.title_given,
            content: self.content.clone(),
            metadata: self.object().unwrap_or_default(),
        }
    }

    /// `None` when the metadata is not a JSON object.
    fn object(&self) -> Option<JsonObject> {
        serde_json::from_str(&self.metadata).ok()
    }
}

/// A version to store.
#[derive(Debug)]
pub struct NewVersion {
    /// The artifact.
    pub id: ArtifactId,
    /// When the artifact was created.
    pub created_at: Timestamp,
    /// The artifact's path after the write.
    pub path: Option<String>,
    /// Version number, from 1.
    pub version: i64,
    /// When it is stored.
    pub at: Timestamp,
    /// Its title, content and metadata.
    pub state: ArtifactState,
    /// The metadata, as JSON.
    pub metadata: String,
    /// The fields that differ from the previous version: `title`, `content`, `metadata`.
    pub changes: Vec<String>,
    /// The checksum.
    pub seal: [u8; seal::ARTIFACT_BYTES],
}

impl NewVersion {
    /// The first version of a new artifact.
    #[must_use]
    pub fn first(id: ArtifactId, new: NewArtifact, now: Timestamp) -> Self {
        let path = new.path.clone().map(ArtifactPath::into_string);
        let first = ArtifactState::first(new);
        Self::new(id, now, path, 1, now, first, Vec::new())
    }

    /// A version copied from another service. That service does not say whether the title was given, so the title
    /// counts as given. `before` is the previous version.
    #[must_use]
    pub fn copied(
        id: ArtifactId,
        created_at: Timestamp,
        path: Option<String>,
        version: CopiedVersion,
        before: Option<&ArtifactState>,
    ) -> Self {
        let CopiedVersion {
            version: number,
            title,
            content,
            metadata,
            at,
        } = version;
        let state = ArtifactState {
            title,
            title_given: true,
            content,
            metadata,
        };
        let changes = before.map_or_else(Vec::new, |before| state.changes_from(before));
        Self::new(id, created_at, path, number, at, state, changes)
    }

    fn after(
        current: &ReadVersion,
        path: Option<String>,
        state: ArtifactState,
        changes: Vec<String>,
        now: Timestamp,
    ) -> Self {
        // The time must increase even if the clock stands still or steps back. Otherwise the change would be hidden.
        let at = Timestamp(now.micros().max(current.at + 1));
        let created_at = Timestamp(current.created_at);
        Self::new(
            current.id,
            created_at,
            path,
            current.version + 1,
            at,
            state,
            changes,
        )
    }

    fn new(
        id: ArtifactId,
        created_at: Timestamp,
        path: Option<String>,
        version: i64,
        at: Timestamp,
        state: ArtifactState,
        changes: Vec<String>,
    ) -> Self {
        let metadata = Metadata::from_stored(state.metadata.clone()).to_json();
        let (title, content) = (&state.title, &state.content);
        let seal = seal::artifact_version(&id.to_string(), version, title, &metadata, content);
        Self {
            id,
            created_at,
            path,
            version,
            at,
            state,
            metadata,
            changes,
            seal,
        }
    }

    /// Whether the title or the content, which artifact search reads, differs from the previous version. False for the
    /// first version.
    #[must_use]
    pub fn has_other_texts(&self) -> bool {
        self.changes.iter().any(|change| change != "metadata")
    }

    /// The outcome of the write.
    #[must_use]
    pub fn into_outcome(self) -> ArtifactOutcome {
        let ArtifactState {
            title,
            title_given,
            content,
            metadata,
        } = self.state;
        StoredArtifact {
            id: self.id,
            title,
            title_given,
            path: self.path,
            content,
            metadata,
            created_at: self.created_at,
            updated_at: self.at,
            version: self.version,
        }
        .into()
    }
}

/// The result of an update.
#[derive(Debug)]
pub enum Updated {
    /// A new version.
    Version(NewVersion),
    /// No new version, because title, content and metadata stay the same. The path may change.
    Unchanged {
        /// The artifact after the update.
        outcome: ArtifactOutcome,
        /// The new `title_given` of the current version, if it changes. The title itself stays the same.
        title_given: Option<bool>,
    },
}

/// The current version of an artifact, if it is the expected one.
///
/// # Errors
/// `ARTIFACT_NOT_FOUND` or `VERSION_MISMATCH`.
pub fn current(
    id: &ArtifactId,
    found: Option<ReadVersion>,
    expected: Option<i64>,
) -> Result<ReadVersion, Error> {
    let current = found.ok_or_else(|| Error::artifact_not_found(id))?;
    match expected {
        Some(expected) if expected != current.version => Err(Error::artifact_version_mismatch(
            id,
            expected,
            current.version,
        )),
        _ => Ok(current),
    }
}

/// Applies an update to the current version.
///
/// # Errors
/// An edit that does not fit the content, or `STORAGE_CORRUPT` when the current version is damaged.
pub fn update(
    current: ReadVersion,
    update: &ArtifactUpdate,
    now: Timestamp,
) -> Result<Updated, StoreError> {
    let current = current.checked()?;
    let path = path_after(&current, update);
    let before = current.state();
    let after = before.updated(update)?;
    let changes = after.changes_from(&before);
    if !changes.is_empty() {
        return Ok(Updated::Version(NewVersion::after(
            &current, path, after, changes, now,
        )));
    }
    Ok(Updated::Unchanged {
        title_given: (after.title_given != before.title_given).then_some(after.title_given),
        outcome: StoredArtifact {
            title_given: after.title_given,
            path,
            ..current.into_artifact()
        }
        .into(),
    })
}

/// The artifact's path after an update.
#[must_use]
pub fn path_after(current: &ReadVersion, update: &ArtifactUpdate) -> Option<String> {
    match &update.path {
        None => current.path.clone(),
        Some(change) => change.path().map(|path| path.as_str().to_owned()),
    }
}

/// Creates a new version from an earlier one.
///
/// # Errors
/// `ARTIFACT_VERSION_NOT_FOUND` when there is no such version, `STORAGE_CORRUPT` when it is damaged.
pub fn restore(
    current: &ReadVersion,
    wanted: Option<ReadVersion>,
    restore: &ArtifactRestore,
    now: Timestamp,
) -> Result<NewVersion, StoreError> {
    let ArtifactRestore {
        id,
        version,
        expected_version: _,
    } = restore;
    let wanted = wanted.ok_or_else(|| Error::artifact_version_not_restorable(id, *version))?;
    let state = wanted.checked()?.state();
    // A damaged current version may be replaced. Then all fields count as changed.
    let changes = if current.is_sound() {
        state.changes_from(&current.state())
    } else {
        ["title", "content", "metadata"].map(str::to_owned).to_vec()
    };
    let path = current.path.clone();
    Ok(NewVersion::after(current, path, state, changes, now))
}

/// The outcome of a write. `artifact` is `None` when an earlier request with the same idempotency key made the write.
/// The record of that request has no content, so that no content survives the artifact. The version must then be read
/// again.
#[derive(Debug, Clone)]
pub struct ArtifactOutcome {
    /// The artifact's id.
    pub id: String,
    /// The version after the write.
    pub version: i64,
    /// The artifact.
    pub artifact: Option<StoredArtifact>,
}

impl From<StoredArtifact> for ArtifactOutcome {
    fn from(artifact: StoredArtifact) -> Self {
        Self {
            id: artifact.id.to_string(),
            version: artifact.version,
            artifact: Some(artifact),
        }
    }
}

impl Recorded for ArtifactOutcome {
    fn to_record(&self) -> Record {
        Record::Artifact {
            id: self.id.clone(),
            version: self.version,
        }
    }

    fn from_record(record: Record) -> Option<Self> {
        match record {
            Record::Artifact { id, version } => Some(Self {
                id,
                version,
                artifact: None,
            }),
            Record::Batch(_) | Record::Deleted(_) | Record::Once => None,
        }
    }
}
