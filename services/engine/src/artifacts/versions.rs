//! The versions of artifacts: listing, fetching, restoring and comparing them.

use context_model::{
    ArtifactId, ArtifactState, ArtifactVersionSummary, DiffArtifactVersionsReply,
    DiffArtifactVersionsRequest, Error, GetArtifactVersionReply, GetArtifactVersionRequest,
    ListArtifactVersionsReply, ListArtifactVersionsRequest, Operation, RestoreArtifactVersionReply,
    RestoreArtifactVersionRequest, Result, Violations, invalid_input,
};
use context_store::{
    ArtifactHistory, ArtifactRestore, ListedVersion, StoredVersion, Usage, VersionLookup, seal,
};

use super::{Artifacts, artifact_read, diff, failed};
use crate::access::{Caller, WriteContext, version_bytes};
use crate::validate;

/// Maximum number of earlier versions that a list shows.
const RECENT_VERSIONS: u32 = 50;

impl Artifacts {
    /// Lists the earlier versions of an artifact, newest first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_artifact_versions(
        &self,
        caller: &Caller,
        request: ListArtifactVersionsRequest,
    ) -> Result<ListArtifactVersionsReply> {
        caller.require(Operation::ListArtifactVersions)?;
        let ListArtifactVersionsRequest {
            artifact_id,
            min_revision,
        } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        let read = artifact_read(min_revision)?;
        let found = self
            .store
            .artifacts()
            .artifact_history(&caller.owner, id, RECENT_VERSIONS, read)
            .await;
        let found = found.map_err(|error| failed(error, "list artifact versions"))?;
        let ArtifactHistory {
            current_version,
            earlier,
        } = found.value.ok_or_else(|| Error::artifact_not_found(&id))?;
        let has_more = (earlier.len() as i64) < current_version - 1;
        let recent_versions = earlier
            .into_iter()
            .filter(|earlier| is_sound(&id, earlier))
            .map(|earlier| {
                let ListedVersion {
                    version,
                    title,
                    at,
                    changes,
                    damaged: _,
                } = earlier;
                ArtifactVersionSummary {
                    version,
                    title,
                    updated_at: at,
                    changes,
                }
            });
        Ok(ListArtifactVersionsReply {
            artifact_id: id.to_string(),
            current_version,
            total_edits: current_version - 1,
            recent_versions: recent_versions.collect(),
            has_more,
            revision: found.revision,
        })
    }

    /// Returns one version in full. It may be the current one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `ARTIFACT_VERSION_NOT_FOUND`; `SCOPE_MISSING` without `read`; the
    /// store's errors.
    pub async fn get_artifact_version(
        &self,
        caller: &Caller,
        request: GetArtifactVersionRequest,
    ) -> Result<GetArtifactVersionReply> {
        caller.require(Operation::GetArtifactVersion)?;
        let GetArtifactVersionRequest {
            artifact_id,
            version_number,
            min_revision,
        } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        let number = required_version(version_number, "version_number")?;
        let (mut versions, _, revision) = self
            .versions(caller, id, vec![Some(number)], min_revision)
            .await?;
        let found = versions
            .pop()
            .flatten()
            .ok_or_else(|| Error::artifact_version_not_found(&id, number))?;
        let StoredVersion {
            version,
            title,
            content,
            metadata,
            at,
        } = found;
        Ok(GetArtifactVersionReply {
            version,
            title,
            content,
            metadata,
            updated_at: at,
            revision,
        })
    }

    /// Creates a new version with the title, content and metadata of an earlier one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `ARTIFACT_VERSION_NOT_FOUND`; `VERSION_MISMATCH`; `QUOTA_EXCEEDED`;
    /// `SCOPE_MISSING` without `write`; the store's errors, and the embedding provider's with
    /// `EMBEDDING_ON_FAILURE=fail`.
    pub async fn restore_artifact_version(
        &self,
        caller: &Caller,
        request: RestoreArtifactVersionRequest,
        write: WriteContext,
    ) -> Result<RestoreArtifactVersionReply> {
        caller.require(Operation::RestoreArtifactVersion)?;
        let mut options =
            self.writes
                .options(caller, "restore_artifact_version", &request, &write)?;
        let RestoreArtifactVersionRequest {
            artifact_id,
            version_number,
            expected_version,
        } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        let version = required_version(version_number, "version_number")?;
        let expected_version = expected_version
            .map(|v| version_field(v, "expected_version"))
            .transpose()?;
        let restore = ArtifactRestore {
            id,
            version,
            expected_version,
        };
        let restored = self.version_of(caller, id, version).await;
        let bytes = restored.as_ref().map_or(0, |version| {
            version_bytes(&version.title, &version.content, &version.metadata)
        });
        let usage = Usage {
            bytes,
            ..Usage::default()
        };
        let admitted = self.writes.admit(caller, &options, 1, usage).await?;
        let embeddings = self.embed_restored(admitted, restored.as_ref()).await?;
        let pending = embeddings.is_pending();
        options.embeddings = embeddings.items;
        let written = self
            .store
            .artifacts()
            .restore_artifact(&caller.owner, restore, options)
            .await;
        if pending {
            self.retrieval.embeddings().wake_worker();
        }
        let written = written.map_err(|error| failed(error, "restore artifact version"))?;
        Ok(RestoreArtifactVersionReply {
            success: true,
            message: format!("Artifact restored to version {version}"),
            current_version: written.outcome.version,
            title: written.outcome.title,
            revision: written.revision,
        })
    }

    /// Compares the content of two versions as a unified diff.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `ARTIFACT_VERSION_NOT_FOUND`; `SCOPE_MISSING` without `read`; the
    /// store's errors.
    pub async fn diff_artifact_versions(
        &self,
        caller: &Caller,
        request: DiffArtifactVersionsRequest,
    ) -> Result<DiffArtifactVersionsReply> {
        caller.require(Operation::DiffArtifactVersions)?;
        let DiffArtifactVersionsRequest {
            artifact_id,
            from_version,
            to_version,
            min_revision,
        } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        let from = required_version(from_version, "from_version")?;
        let to = to_version
            .map(|v| version_field(v, "to_version"))
            .transpose()?;
        let (mut versions, current, revision) = self
            .versions(caller, id, vec![Some(from), to], min_revision)
            .await?;
        let newer = versions
            .pop()
            .flatten()
            .ok_or_else(|| Error::artifact_version_not_found(&id, to.unwrap_or(current)))?;
        let older = versions
            .pop()
            .flatten()
            .ok_or_else(|| Error::artifact_version_not_found(&id, from))?;
        let to_version = newer.version;
        let compare = move || {
            let (older, newer) = (state(older), state(newer));
            let changes = newer.changes_from(&older);
            (
                changes,
                diff::unified(&older.content, &newer.content, from, to_version),
            )
        };
        let (changes, diff) = tokio::task::spawn_blocking(compare)
            .await
            .map_err(Error::internal)?;
        Ok(DiffArtifactVersionsReply {
            artifact_id: id.to_string(),
            from_version: from,
            to_version,
            changes,
            diff,
            revision,
        })
    }

    /// The requested versions of an artifact, its current version number, and the revision.
    async fn versions(
        &self,
        caller: &Caller,
        id: ArtifactId,
        numbers: Vec<Option<i64>>,
        min_revision: Option<i64>,
    ) -> Result<(Vec<Option<StoredVersion>>, i64, i64)> {
        let read = artifact_read(min_revision)?;
        let found = self
            .store
            .artifacts()
            .artifact_versions(&caller.owner, id, numbers, read)
            .await;
        let found = found.map_err(|error| failed(error, "get artifact version"))?;
        match found.value {
            VersionLookup::Artifact {
                current_version,
                versions,
            } => Ok((versions, current_version, found.revision)),
            VersionLookup::NoArtifact => Err(Error::artifact_not_found(&id)),
        }
    }
}

/// Whether a version passes its checksum. A damaged one is logged and left out of the reply, but `total_edits` includes
/// it.
fn is_sound(id: &ArtifactId, listed: &ListedVersion) -> bool {
    if listed.damaged {
        tracing::error!(
            "Left a version out of a list: {}",
            seal::refuse_artifact(id, listed.version).message
        );
    }
    !listed.damaged
}

fn required_version(version: i64, field: &str) -> Result<i64> {
    let mut violations = Violations::default();
    validate::required(version, &(1..=i64::MAX), field, &mut violations);
    violations.finish(version).map_err(invalid_input)
}

fn version_field(version: i64, field: &str) -> Result<i64> {
    let mut violations = Violations::default();
    validate::in_range(version, &(1..=i64::MAX), field, &mut violations);
    violations.finish(version).map_err(invalid_input)
}

fn state(version: StoredVersion) -> ArtifactState {
    let StoredVersion {
        version: _,
        title,
        content,
        metadata,
        at: _,
    } = version;
    ArtifactState {
        title,
        title_given: false,
        content,
        metadata,
    }
}
