//! Creating artifacts.

use context_model::{
    ArtifactId, CreateArtifactReply, CreateArtifactRequest, Metadata, NewArtifact, Operation,
    Result, Timestamp, TitleChange, Violations, check_content, invalid_input,
};
use context_store::{StoredArtifact, Usage};
use uuid::Uuid;

use super::{Artifacts, failed};
use crate::access::{Caller, WriteContext, stored_bytes};

impl Artifacts {
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
        let options = self
            .writes
            .options(caller, "create_artifact", &request, &write)?;
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
            bytes: stored_bytes(&new.content, Some(new.metadata.as_object()), None),
        };
        self.writes.admit(caller, &options, 1, usage).await?;
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
}

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
