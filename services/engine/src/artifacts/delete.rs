//! Deleting one artifact by its id.

use context_model::{ArtifactId, DeleteArtifactReply, DeleteArtifactRequest, Operation, Result};
use context_store::Usage;

use super::{Artifacts, failed};
use crate::access::{Caller, WriteContext};

impl Artifacts {
    /// Deletes an artifact with all its versions.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `ARTIFACT_NOT_FOUND`; `QUOTA_EXCEEDED` with an idempotency key; `SCOPE_MISSING` without
    /// `delete`; the store's errors.
    pub async fn delete_artifact(
        &self,
        caller: &Caller,
        request: DeleteArtifactRequest,
        write: WriteContext,
    ) -> Result<DeleteArtifactReply> {
        caller.require(Operation::DeleteArtifact)?;
        let options = self
            .writes
            .options(caller, "delete_artifact", &request, &write)?;
        let DeleteArtifactRequest { artifact_id } = request;
        let id = ArtifactId::parse(&artifact_id)?;
        self.writes
            .admit(caller, &options, 1, Usage::default())
            .await?;
        let written = self
            .store
            .artifacts()
            .delete_artifact(&caller.owner, id, options)
            .await;
        let written = written.map_err(|error| failed(error, "delete artifact"))?;
        self.writes.freed(caller, 1).await;
        let message = "Successfully deleted artifact".to_owned();
        Ok(DeleteArtifactReply {
            message,
            artifact_id: id.to_string(),
            revision: written.revision,
        })
    }
}
