//! The artifacts of [`PostgresStore`].

use std::sync::Arc;

use async_trait::async_trait;
use context_model::{ArtifactId, ArtifactPath, ArtifactUpdate, Error, Filter, NewArtifact};
use context_store::rules::artifact::ArtifactOutcome;
use context_store::{
    ArtifactDocument, ArtifactHistory, ArtifactPage, ArtifactRestore, ArtifactSelection,
    ArtifactStore, ArtifactsPage, AtRevision, OwnerId, Read, Result, StoreError, StoredArtifact,
    VersionLookup, WriteOptions, Written,
};

use super::documents::GetDocuments;
use super::read::{FindByPath, GetArtifact, History, List, Versions};
use super::write::{Create, Delete, DeleteAll, MoveAll, Restore, Update};
use crate::store::PostgresStore;

#[async_trait]
impl ArtifactStore for PostgresStore {
    async fn create_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        new: NewArtifact,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>> {
        let written = self
            .write(
                owner,
                options,
                Create {
                    id,
                    new,
                    language: Arc::clone(&self.inner.language),
                },
            )
            .await?;
        self.with_artifact(owner, written).await
    }

    async fn update_artifact(
        &self,
        owner: &OwnerId,
        update: ArtifactUpdate,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>> {
        let written = self
            .write(
                owner,
                options,
                Update {
                    update,
                    language: Arc::clone(&self.inner.language),
                },
            )
            .await?;
        self.with_artifact(owner, written).await
    }

    async fn restore_artifact(
        &self,
        owner: &OwnerId,
        restore: ArtifactRestore,
        options: WriteOptions,
    ) -> Result<Written<StoredArtifact>> {
        let written = self
            .write(
                owner,
                options,
                Restore {
                    restore,
                    language: Arc::clone(&self.inner.language),
                },
            )
            .await?;
        self.with_artifact(owner, written).await
    }

    async fn delete_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        options: WriteOptions,
    ) -> Result<Written<()>> {
        let Written {
            outcome: _,
            revision,
        } = self.write(owner, options, Delete(id)).await?;
        Ok(Written {
            outcome: (),
            revision,
        })
    }

    async fn move_artifacts(
        &self,
        owner: &OwnerId,
        from: ArtifactPath,
        to: ArtifactPath,
        options: WriteOptions,
    ) -> Result<Written<u64>> {
        self.write(owner, options, MoveAll { from, to }).await
    }

    async fn delete_artifacts(
        &self,
        owner: &OwnerId,
        path: ArtifactPath,
        options: WriteOptions,
    ) -> Result<Written<u64>> {
        self.write(owner, options, DeleteAll(path)).await
    }

    async fn get_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        read: Read,
    ) -> Result<AtRevision<Option<StoredArtifact>>> {
        self.read(
            owner,
            read,
            GetArtifact {
                id,
                version: None,
                statement_timeout: self.statement_timeout(),
            },
        )
        .await
    }

    async fn artifact_at(
        &self,
        owner: &OwnerId,
        path: ArtifactPath,
        read: Read,
    ) -> Result<AtRevision<Option<ArtifactId>>> {
        let find = FindByPath {
            path,
            statement_timeout: self.statement_timeout(),
        };
        self.read(owner, read, find).await
    }

    async fn list_artifacts(
        &self,
        owner: &OwnerId,
        selection: ArtifactSelection,
        page: ArtifactPage,
        read: Read,
    ) -> Result<ArtifactsPage> {
        let list = List {
            filter: Filter {
                conditions: selection.conditions,
                ..Filter::default()
            },
            path_prefix: selection.path_prefix,
            substring: selection.substring,
            page,
            statement_timeout: self.statement_timeout(),
        };
        self.read(owner, read, list).await
    }

    async fn artifact_documents(
        &self,
        owner: &OwnerId,
        ids: Vec<i64>,
        read: Read,
    ) -> Result<Vec<ArtifactDocument>> {
        let get = GetDocuments {
            ids,
            as_of: read.as_of,
            statement_timeout: self.statement_timeout(),
        };
        self.read(owner, read, get).await
    }

    async fn artifact_history(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        limit: u32,
        read: Read,
    ) -> Result<AtRevision<Option<ArtifactHistory>>> {
        self.read(
            owner,
            read,
            History {
                id,
                limit,
                statement_timeout: self.statement_timeout(),
            },
        )
        .await
    }

    async fn artifact_versions(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        numbers: Vec<Option<i64>>,
        read: Read,
    ) -> Result<AtRevision<VersionLookup>> {
        self.read(
            owner,
            read,
            Versions {
                id,
                numbers,
                statement_timeout: self.statement_timeout(),
            },
        )
        .await
    }
}

impl PostgresStore {
    /// The artifact of a write. It is read from the database when an earlier request with the same idempotency key
    /// wrote it.
    async fn with_artifact(
        &self,
        owner: &OwnerId,
        written: Written<ArtifactOutcome>,
    ) -> Result<Written<StoredArtifact>> {
        let Written {
            outcome:
                ArtifactOutcome {
                    id,
                    version,
                    artifact,
                },
            revision,
        } = written;
        if let Some(outcome) = artifact {
            return Ok(Written { outcome, revision });
        }
        let id = ArtifactId::parse(&id)?;
        let get = GetArtifact {
            id,
            version: Some(version),
            statement_timeout: self.statement_timeout(),
        };
        let found = self.read(owner, Read::default(), get).await?;
        let outcome = found
            .value
            .ok_or_else(|| StoreError::Rejected(Error::artifact_not_found(&id)))?;
        Ok(Written { outcome, revision })
    }
}
