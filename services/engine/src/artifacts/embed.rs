//! The embedding of an artifact's text, created before the write.

use context_model::{ArtifactId, ArtifactState, ArtifactUpdate, Result};
use context_store::rules::artifact::document_text;
use context_store::{Read, StoredArtifact, StoredVersion, VersionLookup};

use super::Artifacts;
use crate::access::{Admitted, Caller};
use crate::retrieval::WriteEmbeddings;

impl Artifacts {
    /// Embeds the text of an artifact in this state.
    pub(super) async fn embed_state(
        &self,
        admitted: Admitted,
        state: &ArtifactState,
    ) -> Result<WriteEmbeddings> {
        let text = || vec![Some(document_text(&state.title, &state.content))];
        self.retrieval
            .embeddings()
            .embed_write(admitted, text)
            .await
    }

    /// Embeds the text that an update results in, and returns the version that it was computed from. `None` if the
    /// text does not change, or if the artifact cannot be read or updated. In the latter case the store's write returns
    /// the error.
    pub(super) async fn embed_update(
        &self,
        caller: &Caller,
        admitted: Admitted,
        update: &ArtifactUpdate,
    ) -> Result<Option<(WriteEmbeddings, i64)>> {
        if update.title.is_none() && update.content.is_none() {
            return Ok(None);
        }
        let Some((before, version)) = self.state_of(caller, update.id).await else {
            return Ok(None);
        };
        let Ok(after) = before.updated(update) else {
            return Ok(None);
        };
        if (&after.title, &after.content) == (&before.title, &before.content) {
            return Ok(None);
        }
        let embeddings = self.embed_state(admitted, &after).await?;
        Ok(Some((embeddings, version)))
    }

    /// An earlier version. `None` if it cannot be read. The store's write then returns the error.
    pub(super) async fn version_of(
        &self,
        caller: &Caller,
        id: ArtifactId,
        version: i64,
    ) -> Option<StoredVersion> {
        let read = self
            .store
            .artifacts()
            .artifact_versions(&caller.owner, id, vec![Some(version)], Read::default())
            .await;
        match read.map(|read| read.value) {
            Ok(VersionLookup::Artifact { mut versions, .. }) => versions.pop().flatten(),
            Ok(VersionLookup::NoArtifact) | Err(_) => None,
        }
    }

    /// Embeds the text of an earlier version. Nothing is embedded without one.
    pub(super) async fn embed_restored(
        &self,
        admitted: Admitted,
        restored: Option<&StoredVersion>,
    ) -> Result<WriteEmbeddings> {
        let Some(StoredVersion { title, content, .. }) = restored else {
            return Ok(WriteEmbeddings::default());
        };
        let text = || vec![Some(document_text(title, content))];
        self.retrieval
            .embeddings()
            .embed_write(admitted, text)
            .await
    }

    /// The current state of an artifact and its version.
    pub(super) async fn state_of(
        &self,
        caller: &Caller,
        id: ArtifactId,
    ) -> Option<(ArtifactState, i64)> {
        let read = self
            .store
            .artifacts()
            .get_artifact(&caller.owner, id, Read::default())
            .await;
        let StoredArtifact {
            title,
            title_given,
            content,
            metadata,
            version,
            ..
        } = read.ok()?.value?;
        let state = ArtifactState {
            title,
            title_given,
            content,
            metadata,
        };
        Some((state, version))
    }
}
