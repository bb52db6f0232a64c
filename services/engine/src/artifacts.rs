//! Creating, fetching, changing and deleting artifacts.

use context_model::{
    Artifact, ArtifactEdit, ArtifactId, ArtifactUpdate, ContentChange, CreateArtifactReply,
    CreateArtifactRequest, DeleteArtifactReply, DeleteArtifactRequest, Edit, Error,
    GetArtifactReply, GetArtifactRequest, Metadata, NewArtifact, Operation, Reason, Result,
    Timestamp, TitleChange, UpdateArtifactReply, UpdateArtifactRequest, Violations, check_content,
    invalid_input,
};
use context_store::{ArtifactStore, StoreError, StoredArtifact, Usage};
use uuid::Uuid;

use crate::{Caller, Engine, WriteContext, quota, validate};

impl Engine {
    /// Creates an artifact; its title is taken from the content unless one is given.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `SCOPE_MISSING` without `write`; the store's errors.
    pub async fn create_artifact(
        &self,
        caller: &Caller,
        request: CreateArtifactRequest,
        write: WriteContext,
    ) -> Result<CreateArtifactReply> {
        caller.require(Operation::CreateArtifact)?;
        let options = self.write_options(caller, "create_artifact", &request, &write)?;
        let CreateArtifactRequest {
            content,
            title,
            metadata,
        } = request;
        let mut violations = Violations::default();
        check_content(&content, &mut violations);
        let title = match title.map(|title| TitleChange::parse(&title, &mut violations)) {
            Some(TitleChange::Given(title)) => Some(title),
            Some(TitleChange::Generated) | None => None,
        };
        let metadata = Metadata::parse(metadata.unwrap_or_default(), "metadata", &mut violations)
            .unwrap_or_default();
        violations.finish(()).map_err(invalid_input)?;
        let id = new_id(options.now);
        let new = NewArtifact {
            title,
            content,
            metadata,
        };
        let usage = Usage {
            entries: 0,
            artifacts: 1,
            bytes: quota::bytes(&new.content, Some(new.metadata.as_object()), None),
        };
        self.admit(caller, &options, 1, usage).await?;
        let written = self
            .artifacts()?
            .create_artifact(&caller.owner, id, new, options)
            .await;
        let written = written.map_err(|error| failed(error, "create artifact"))?;
        let StoredArtifact {
            id,
            title,
            content,
            metadata,
            created_at,
            updated_at: _,
            version,
        } = written.outcome;
        let message = format!("Created artifact: {title}");
        Ok(CreateArtifactReply {
            id: id.to_string(),
            title,
            content,
            metadata,
            created_at,
            message,
            version,
            revision: written.revision,
        })
    }

    /// An artifact in full.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn get_artifact(
        &self,
        caller: &Caller,
        request: GetArtifactRequest,
    ) -> Result<GetArtifactReply> {
        caller.require(Operation::GetArtifact)?;
        let GetArtifactRequest {
            artifact_id,
            min_revision,
        } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        let read = artifact_read(min_revision)?;
        let found = self
            .artifacts()?
            .get_artifact(&caller.owner, id, read)
            .await;
        let found = found.map_err(|error| failed(error, "get artifact"))?;
        let artifact = found.value.ok_or_else(|| Error::artifact_not_found(&id))?;
        Ok(GetArtifactReply {
            artifact: full(artifact),
            revision: found.revision,
        })
    }

    /// Changes an artifact; what differs makes a new version.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `ARTIFACT_NOT_FOUND`; `VERSION_MISMATCH`; `SCOPE_MISSING` without
    /// `write`; the store's errors.
    pub async fn update_artifact(
        &self,
        caller: &Caller,
        request: UpdateArtifactRequest,
        write: WriteContext,
    ) -> Result<UpdateArtifactReply> {
        caller.require(Operation::UpdateArtifact)?;
        let options = self.write_options(caller, "update_artifact", &request, &write)?;
        let update = update(request)?;
        let bytes = match &update.content {
            Some(ContentChange::Replace(content)) => content.len() as u64,
            Some(ContentChange::Edits(_)) | None => VERSION_BYTES,
        };
        self.admit(
            caller,
            &options,
            1,
            Usage {
                entries: 0,
                artifacts: 0,
                bytes,
            },
        )
        .await?;
        let written = self
            .artifacts()?
            .update_artifact(&caller.owner, update, options)
            .await;
        let written = written.map_err(|error| failed(error, "update artifact"))?;
        let artifact = full(written.outcome);
        let message = format!("Updated artifact: {}", artifact.title);
        Ok(UpdateArtifactReply {
            artifact,
            message,
            revision: written.revision,
        })
    }

    /// Deletes an artifact with all its versions.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `SCOPE_MISSING` without `delete`; the store's errors.
    pub async fn delete_artifact(
        &self,
        caller: &Caller,
        request: DeleteArtifactRequest,
        write: WriteContext,
    ) -> Result<DeleteArtifactReply> {
        caller.require(Operation::DeleteArtifact)?;
        let options = self.write_options(caller, "delete_artifact", &request, &write)?;
        let DeleteArtifactRequest { artifact_id } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        self.admit(caller, &options, 1, Usage::default()).await?;
        let written = self
            .artifacts()?
            .delete_artifact(&caller.owner, id, options)
            .await;
        let written = written.map_err(|error| failed(error, "delete artifact"))?;
        let message = "Successfully deleted artifact".to_owned();
        Ok(DeleteArtifactReply {
            message,
            artifact_id: id.to_string(),
            revision: written.revision,
        })
    }

    /// The artifacts of the store.
    pub(crate) fn artifacts(&self) -> Result<&dyn ArtifactStore> {
        let absent = || {
            Error::new(
                Reason::FeatureUnavailable,
                format!("artifacts are not yet kept on {}", self.store.backend()),
            )
        };
        self.store.artifacts().ok_or_else(absent)
    }
}

/// The bytes of a version whose content is not known before it is made, until the owner is counted again.
pub(crate) const VERSION_BYTES: u64 = 100_000;

/// A time-ordered id (RFC 9562, version 7).
fn new_id(now: Timestamp) -> ArtifactId {
    let micros = u64::try_from(now.micros()).unwrap_or(0);
    let (seconds, nanos) = (
        micros / 1_000_000,
        u32::try_from(micros % 1_000_000 * 1000).unwrap_or(0),
    );
    ArtifactId::new(Uuid::new_v7(uuid::Timestamp::from_unix(
        uuid::NoContext,
        seconds,
        nanos,
    )))
}

/// The read of one artifact.
pub(crate) fn artifact_read(min_revision: Option<i64>) -> Result<context_store::Read> {
    let mut violations = Violations::default();
    let min_revision = validate::min_revision(min_revision, &mut violations);
    violations.finish(()).map_err(invalid_input)?;
    Ok(Engine::read(min_revision))
}

/// The error of a store call. What the caller cannot help is worded as the documents have it.
pub(crate) fn failed(error: StoreError, what: &str) -> Error {
    let mut error = crate::store_error(error);
    if error.reason == Reason::Internal {
        error.message = format!("Failed to {what}");
    }
    error
}

pub(crate) fn full(artifact: StoredArtifact) -> Artifact {
    let StoredArtifact {
        id,
        title,
        content,
        metadata,
        created_at,
        updated_at,
        version,
    } = artifact;
    Artifact {
        id: id.to_string(),
        title,
        content,
        metadata,
        created_at,
        updated_at,
        version,
    }
}

fn update(request: UpdateArtifactRequest) -> Result<ArtifactUpdate> {
    let UpdateArtifactRequest {
        artifact_id,
        title,
        content,
        metadata,
        edits,
        expected_version,
    } = request;
    let id = ArtifactId::parse(&artifact_id)?;
    let mut violations = Violations::default();
    if title.is_none() && content.is_none() && metadata.is_none() && edits.is_none() {
        violations.push(
            "content",
            "At least one of title, content, metadata and edits is required",
        );
    }
    let title = title.map(|title| TitleChange::parse(&title, &mut violations));
    let content = match (content, edits) {
        (Some(_), Some(_)) => {
            violations.push(
                "edits",
                "`content` and `edits` exclude each other; give one of them",
            );
            None
        }
        (Some(content), None) => {
            check_content(&content, &mut violations);
            Some(ContentChange::Replace(content))
        }
        (None, Some(edits)) => {
            if validate::count(edits.len(), Edit::MAX, "edits", "items", &mut violations) {
                Some(ContentChange::Edits(
                    edits
                        .into_iter()
                        .enumerate()
                        .filter_map(|(i, e)| edit(e, i, &mut violations))
                        .collect(),
                ))
            } else {
                None
            }
        }
        (None, None) => None,
    };
    let metadata =
        metadata.and_then(|metadata| Metadata::parse(metadata, "metadata", &mut violations));
    let expected_version = expected_version
        .map(|v| validate::in_range(v, &(1..=i64::MAX), "expected_version", &mut violations));
    violations
        .finish(ArtifactUpdate {
            id,
            title,
            content,
            metadata,
            expected_version,
        })
        .map_err(invalid_input)
}

fn edit(edit: ArtifactEdit, index: usize, violations: &mut Violations) -> Option<Edit> {
    let ArtifactEdit {
        old_str,
        insert_line,
        new_str,
    } = edit;
    match (old_str, insert_line) {
        (Some(old), None) if !old.is_empty() => Some(Edit::Replace { old, new: new_str }),
        (Some(_), None) => {
            violations.push(
                format!("edits[{index}].old_str"),
                format!("`edits[{index}].old_str` must not be empty"),
            );
            None
        }
        (None, Some(line)) => {
            let line = validate::in_range(
                line,
                &(0..=i64::from(u32::MAX)),
                &format!("edits[{index}].insert_line"),
                violations,
            );
            Some(Edit::Insert {
                after_line: usize::try_from(line).unwrap_or(0),
                text: new_str,
            })
        }
        (Some(_), Some(_)) | (None, None) => {
            let rule =
                format!("`edits[{index}]` must have exactly one of `old_str` and `insert_line`");
            violations.push(format!("edits[{index}]"), rule);
            None
        }
    }
}
