//! Changing artifacts.

use context_model::{
    Artifact, ArtifactEdit, ArtifactId, ArtifactUpdate, ContentChange, Edit, Metadata, Operation,
    PathChange, Reason, Result, TitleChange, UpdateArtifactReply, UpdateArtifactRequest,
    Violations, check_content, invalid_input,
};
use context_store::{StoreError, StoredArtifact, Usage, WriteOptions, Written};

use super::{Artifacts, failed, full};
use crate::access::{Admitted, Caller, WriteContext, path_bytes, version_bytes};
use crate::validate;

/// How often an update is tried with the embedding of its new text.
const MAX_EMBEDDED_ATTEMPTS: u32 = 3;

impl Artifacts {
    /// Changes an artifact. A different title, content or metadata creates a new version.
    /// The reply has no content if the request says so, or without `read`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `ARTIFACT_NOT_FOUND`; `VERSION_MISMATCH`; `PATH_TAKEN`;
    /// `QUOTA_EXCEEDED`; `SCOPE_MISSING` without `write`; the store's errors, and the embedding provider's with
    /// `EMBEDDING_ON_FAILURE=fail`.
    pub async fn update_artifact(
        &self,
        caller: &Caller,
        request: UpdateArtifactRequest,
        write: WriteContext,
    ) -> Result<UpdateArtifactReply> {
        caller.require(Operation::UpdateArtifact)?;
        let options = self
            .writes
            .options(caller, "update_artifact", &request, &write)?;
        // A caller that may not read gets no stored content from its own update either.
        let may_read = caller.require(Operation::GetArtifact).is_ok();
        let returns_content = may_read && request.return_content.unwrap_or(true);
        let update = validated(request)?;
        let path = path_bytes(update.path.as_ref().and_then(PathChange::path));
        let usage = Usage {
            bytes: path + self.new_version_bytes(caller, &update).await,
            ..Usage::default()
        };
        let admitted = self.writes.admit(caller, &options, 1, usage).await?;
        let written = self.update(caller, admitted, update, options).await;
        let written = written.map_err(|error| failed(error, "update artifact"))?;
        let Artifact {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            updated_at,
            version,
        } = full(written.outcome);
        let message = format!("Updated artifact: {title}");
        Ok(UpdateArtifactReply {
            id,
            title,
            content: returns_content.then_some(content),
            metadata,
            path,
            created_at,
            updated_at,
            version,
            message,
            revision: written.revision,
        })
    }

    /// Bytes of the version that an update creates. 0 if no quota is set, if it creates no version, or if it fails. The
    /// write then reports the failure.
    async fn new_version_bytes(&self, caller: &Caller, update: &ArtifactUpdate) -> u64 {
        let ArtifactUpdate {
            id,
            path: _,
            title,
            content,
            metadata,
            expected_version: _,
        } = update;
        let changes_nothing = title.is_none() && content.is_none() && metadata.is_none();
        if changes_nothing || !self.writes.has_quotas() {
            return 0;
        }
        let Some((before, _)) = self.state_of(caller, *id).await else {
            return 0;
        };
        match before.updated(update) {
            Ok(after)
                if (&after.title, &after.content, &after.metadata)
                    != (&before.title, &before.content, &before.metadata) =>
            {
                version_bytes(&after.title, &after.content, &after.metadata)
            }
            Ok(_) | Err(_) => 0,
        }
    }

    /// Updates an artifact, with the embedding of its new text. The embedding is computed from the current version, so
    /// the update is tried again if another update was stored in between. The last attempt stores the artifact without
    /// an embedding, and the background worker creates it.
    async fn update(
        &self,
        caller: &Caller,
        admitted: Admitted,
        update: ArtifactUpdate,
        options: WriteOptions,
    ) -> std::result::Result<Written<StoredArtifact>, StoreError> {
        let artifacts = self.store.artifacts();
        for _ in 0..MAX_EMBEDDED_ATTEMPTS {
            let embedded = self.embed_update(caller, admitted, &update).await?;
            let Some((embeddings, version)) = embedded else {
                break;
            };
            let mut with_embedding = options.clone();
            let pending = embeddings.is_pending();
            with_embedding.embeddings = embeddings.items;
            let attempt = ArtifactUpdate {
                expected_version: update.expected_version.or(Some(version)),
                ..update.clone()
            };
            // The update expects another version, so the write below returns the error.
            if attempt.expected_version != Some(version) {
                break;
            }
            let written = artifacts
                .update_artifact(&caller.owner, attempt, with_embedding)
                .await;
            if pending {
                self.retrieval.embeddings().wake_worker();
            }
            match written {
                Err(StoreError::Rejected(error))
                    if error.reason == Reason::VersionMismatch
                        && update.expected_version.is_none() => {}
                written => return written,
            }
        }
        let written = artifacts
            .update_artifact(&caller.owner, update, options)
            .await;
        self.retrieval.embeddings().wake_worker();
        written
    }
}

/// The update that a request describes.
///
/// # Errors
/// `INVALID_ARGUMENT` naming each bad field.
fn validated(request: UpdateArtifactRequest) -> Result<ArtifactUpdate> {
    let UpdateArtifactRequest {
        artifact_id,
        title,
        content,
        metadata,
        path,
        edits,
        expected_version,
        return_content: _,
    } = request;
    let id = ArtifactId::parse(&artifact_id)?;
    let mut violations = Violations::default();
    let nothing = title.is_none() && content.is_none() && metadata.is_none() && edits.is_none();
    if nothing && path.is_none() {
        violations.push(
            "content",
            "At least one of title, content, metadata, path and edits is required",
        );
    }
    let path = path.and_then(|path| PathChange::parse(path, &mut violations));
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
            path,
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
