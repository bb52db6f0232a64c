//! Fetching artifacts.

use context_model::{ArtifactId, Error, GetArtifactReply, GetArtifactRequest, Operation, Result};

use super::{Artifacts, artifact_read, failed, full};
use crate::access::Caller;

impl Artifacts {
    /// Returns an artifact in full.
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
            .store
            .artifacts()
            .get_artifact(&caller.owner, id, read)
            .await;
        let found = found.map_err(|error| failed(error, "get artifact"))?;
        let artifact = found.value.ok_or_else(|| Error::artifact_not_found(&id))?;
        Ok(GetArtifactReply {
            artifact: full(artifact),
            revision: found.revision,
        })
    }
}
