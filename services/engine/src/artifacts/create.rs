//! Creating artifacts.

use context_model::{
    ArtifactPath, ArtifactState, CreateArtifactReply, CreateArtifactRequest, Metadata, NewArtifact,
    Operation, Result, TitleChange, Violations, check_content, invalid_input,
};
use context_store::{StoredArtifact, Usage};

use super::{Artifacts, failed};
use crate::access::{Caller, WriteContext, path_bytes, version_bytes};
use crate::ids::artifact_id;

impl Artifacts {
    /// Creates an artifact. If the request has no title, the title is derived from the content.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `PATH_TAKEN`; `QUOTA_EXCEEDED`; `SCOPE_MISSING` without `write`; the
    /// store's errors, and the embedding provider's with `EMBEDDING_ON_FAILURE=fail`.
    pub async fn create_artifact(
        &self,
        caller: &Caller,
        request: CreateArtifactRequest,
        write: WriteContext,
    ) -> Result<CreateArtifactReply> {
        caller.require(Operation::CreateArtifact)?;
        let mut options = self
            .writes
            .options(caller, "create_artifact", &request, &write)?;
        let CreateArtifactRequest {
            content,
            title,
            metadata,
            path,
        } = request;
        let mut violations = Violations::default();
        check_content(&content, &mut violations);
        let title = match title.map(|title| TitleChange::parse(&title, &mut violations)) {
            Some(TitleChange::Given(title)) => Some(title),
            Some(TitleChange::Generated) | None => None,
        };
        let metadata = Metadata::parse(metadata.unwrap_or_default(), "metadata", &mut violations)
            .unwrap_or_default();
        let path = path.and_then(|path| ArtifactPath::parse(path, "path", &mut violations));
        violations.finish(()).map_err(invalid_input)?;
        let id = artifact_id(options.now);
        let new = NewArtifact {
            path,
            title,
            content,
            metadata,
        };
        let state = ArtifactState::first(new.clone());
        let usage = Usage {
            entries: 0,
            artifacts: 1,
            bytes: version_bytes(&state.title, &state.content, &state.metadata)
                + path_bytes(new.path.as_ref()),
        };
        let admitted = self.writes.admit(caller, &options, 1, usage).await?;
        let embeddings = self.embed_state(admitted, &state).await?;
        let pending = embeddings.is_pending();
        options.embeddings = embeddings.items;
        let written = self
            .store
            .artifacts()
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
            path,
            title_given: _,
        } = written.outcome;
        if pending {
            self.retrieval.embeddings().wake_worker();
        }
        let message = format!("Created artifact: {title}");
        Ok(CreateArtifactReply {
            id: id.to_string(),
            title,
            content,
            metadata,
            path,
            created_at,
            message,
            version,
            revision: written.revision,
        })
    }
}
