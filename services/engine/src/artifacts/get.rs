//! Fetching artifacts.

use context_model::{
    ArtifactId, ArtifactPath, Error, GetArtifactReply, GetArtifactRequest, Operation, Result,
    invalid_input,
};
use context_store::Read;

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
            path,
            min_revision,
        } = request;
        let read = artifact_read(min_revision)?;
        let id = match path {
            None => ArtifactId::parse(&artifact_id)?,
            Some(path) => self.id_at(caller, artifact_id, path, read).await?,
        };
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

    /// The id of the artifact with this path.
    async fn id_at(
        &self,
        caller: &Caller,
        artifact_id: String,
        path: String,
        read: Read,
    ) -> Result<ArtifactId> {
        if !artifact_id.is_empty() {
            let both = "`artifact_id` and `path` exclude each other; give one of them";
            return Err(invalid_input(Error::invalid("path", both)));
        }
        let path = ArtifactPath::new(path, "path").map_err(invalid_input)?;
        let found = self
            .store
            .artifacts()
            .artifact_at(&caller.owner, path.clone(), read)
            .await;
        let found = found.map_err(|error| failed(error, "get artifact"))?;
        found
            .value
            .ok_or_else(|| Error::no_artifact_at(path.as_str()))
    }
}
