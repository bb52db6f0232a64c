//! The artifact operations of [`SqliteStore`].

use async_trait::async_trait;
use context_model::{
    ArtifactId, ArtifactPath, ArtifactUpdate, ContentChange, Edit, Error, Metadata, NewArtifact,
    TitleChange,
};
use context_store::rules::artifact::{ArtifactOutcome, ReadVersion};
use context_store::{
    ArtifactDocument, ArtifactHistory, ArtifactPage, ArtifactRestore, ArtifactSelection,
    ArtifactStore, ArtifactsPage, AtRevision, Embedding, OwnerId, Read, Result, StoreError,
    StoredArtifact, VersionLookup, WriteOptions, Written,
};

use super::{documents, read, write};
use crate::failure::store_error;
use crate::store::SqliteStore;
use crate::weigh;

#[async_trait]
impl ArtifactStore for SqliteStore {
    async fn create_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        new: NewArtifact,
        mut options: WriteOptions,
    ) -> Result<Written<StoredArtifact>> {
        self.require_own()?;
        let NewArtifact {
            path: _,
            title,
            content,
            metadata,
        } = &new;
        let embedding = embedding(&mut options);
        let bytes = weigh::artifact(title.as_deref(), content.len(), Some(metadata))
            + weigh::embedding(&embedding);
        let written = self
            .write(owner, options, bytes, move |transaction| {
                write::create(transaction, id, &new, &embedding)
            })
            .await?;
        self.with_artifact(owner, written).await
    }

    async fn update_artifact(
        &self,
        owner: &OwnerId,
        update: ArtifactUpdate,
        mut options: WriteOptions,
    ) -> Result<Written<StoredArtifact>> {
        self.require_own()?;
        let embedding = embedding(&mut options);
        let bytes = weigh_update(&update) + weigh::embedding(&embedding);
        let written = self
            .write(owner, options, bytes, move |transaction| {
                write::update(transaction, &update, &embedding)
            })
            .await?;
        self.with_artifact(owner, written).await
    }

    async fn restore_artifact(
        &self,
        owner: &OwnerId,
        restore: ArtifactRestore,
        mut options: WriteOptions,
    ) -> Result<Written<StoredArtifact>> {
        self.require_own()?;
        let embedding = embedding(&mut options);
        let bytes = weigh::artifact(None, 0, None) + weigh::embedding(&embedding);
        let written = self
            .write(owner, options, bytes, move |transaction| {
                write::restore(transaction, &restore, &embedding)
            })
            .await?;
        self.with_artifact(owner, written).await
    }

    async fn delete_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        options: WriteOptions,
    ) -> Result<Written<()>> {
        self.require_own()?;
        let bytes = weigh::artifact(None, 0, None);
        let Written {
            outcome: _,
            revision,
        } = self
            .write(owner, options, bytes, move |transaction| {
                write::delete(transaction, id)
            })
            .await?;
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
        self.require_own()?;
        let bytes = weigh::artifact(None, 0, None);
        self.write(owner, options, bytes, move |transaction| {
            write::move_all(transaction, &from, &to)
        })
        .await
    }

    async fn delete_artifacts(
        &self,
        owner: &OwnerId,
        path: ArtifactPath,
        options: WriteOptions,
    ) -> Result<Written<u64>> {
        self.require_own()?;
        let bytes = weigh::artifact(None, 0, None);
        self.write(owner, options, bytes, move |transaction| {
            write::delete_all(transaction, &path)
        })
        .await
    }

    async fn get_artifact(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        read: Read,
    ) -> Result<AtRevision<Option<StoredArtifact>>> {
        self.read(&self.points, owner, read, move |conn, owner| {
            let Some(owner) = owner else {
                return Ok(AtRevision {
                    value: None,
                    revision: 0,
                });
            };
            let row = read::version(conn, owner.owner, &id, None)?;
            Ok(AtRevision {
                value: row.map(ReadVersion::into_artifact),
                revision: owner.revision,
            })
        })
        .await
    }

    async fn artifact_at(
        &self,
        owner: &OwnerId,
        path: ArtifactPath,
        read: Read,
    ) -> Result<AtRevision<Option<ArtifactId>>> {
        self.read(&self.points, owner, read, move |conn, owner| {
            let Some(owner) = owner else {
                return Ok(AtRevision {
                    value: None,
                    revision: 0,
                });
            };
            Ok(AtRevision {
                value: read::at_path(conn, owner.owner, path.as_str())?,
                revision: owner.revision,
            })
        })
        .await
    }

    async fn list_artifacts(
        &self,
        owner: &OwnerId,
        selection: ArtifactSelection,
        page: ArtifactPage,
        read: Read,
    ) -> Result<ArtifactsPage> {
        let lane = if selection.selects_all() {
            &self.points
        } else {
            &self.searches
        };
        self.read(lane, owner, read, move |conn, owner| match owner {
            Some(owner) => read::list(conn, owner, &selection, page),
            None => Ok(EMPTY_PAGE),
        })
        .await
    }

    async fn artifact_documents(
        &self,
        owner: &OwnerId,
        ids: Vec<i64>,
        read: Read,
    ) -> Result<Vec<ArtifactDocument>> {
        let as_of = read.as_of;
        self.read(&self.points, owner, read, move |conn, owner| match owner {
            Some(owner) => documents::read(conn, owner, &ids, as_of),
            None => Ok(Vec::new()),
        })
        .await
    }

    async fn artifact_history(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        limit: u32,
        read: Read,
    ) -> Result<AtRevision<Option<ArtifactHistory>>> {
        self.read(&self.points, owner, read, move |conn, owner| {
            let Some(owner) = owner else {
                return Ok(AtRevision {
                    value: None,
                    revision: 0,
                });
            };
            Ok(AtRevision {
                value: read::history(conn, owner.owner, &id, limit)?,
                revision: owner.revision,
            })
        })
        .await
    }

    async fn artifact_versions(
        &self,
        owner: &OwnerId,
        id: ArtifactId,
        numbers: Vec<Option<i64>>,
        read: Read,
    ) -> Result<AtRevision<VersionLookup>> {
        self.read(&self.points, owner, read, move |conn, owner| {
            let Some(owner) = owner else {
                return Ok(AtRevision {
                    value: VersionLookup::NoArtifact,
                    revision: 0,
                });
            };
            let revision = owner.revision;
            let Some(current_version) =
                read::current_version(conn, owner.owner, &id).map_err(store_error)?
            else {
                return Ok(AtRevision {
                    value: VersionLookup::NoArtifact,
                    revision,
                });
            };
            let versions = numbers.iter().map(|number| {
                let row = read::version(conn, owner.owner, &id, *number)?;
                Ok(row.map(ReadVersion::into_version))
            });
            let versions = versions.collect::<Result<_>>()?;
            Ok(AtRevision {
                value: VersionLookup::Artifact {
                    current_version,
                    versions,
                },
                revision,
            })
        })
        .await
    }
}

const EMPTY_PAGE: ArtifactsPage = ArtifactsPage {
    artifacts: Vec::new(),
    total: 0,
    revision: 0,
};

impl SqliteStore {
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
        let found = self
            .read(&self.points, owner, Read::default(), move |conn, owner| {
                let Some(owner) = owner else { return Ok(None) };
                let row = read::version(conn, owner.owner, &id, Some(version))?;
                Ok(row.map(ReadVersion::into_artifact))
            })
            .await?;
        let outcome = found.ok_or_else(|| StoreError::Rejected(Error::artifact_not_found(&id)))?;
        Ok(Written { outcome, revision })
    }
}

/// The embedding of the text that the write results in.
fn embedding(options: &mut WriteOptions) -> Embedding {
    let mut embeddings = std::mem::take(&mut options.embeddings);
    embeddings.pop().unwrap_or_default()
}

fn weigh_update(update: &ArtifactUpdate) -> usize {
    let ArtifactUpdate {
        id: _,
        path: _,
        title,
        content,
        metadata,
        expected_version: _,
    } = update;
    let title = match title {
        Some(TitleChange::Given(title)) => Some(title.as_str()),
        Some(TitleChange::Generated) | None => None,
    };
    let content = match content {
        None => 0,
        Some(ContentChange::Replace(content)) => content.len(),
        Some(ContentChange::Edits(edits)) => edits
            .iter()
            .map(|edit| match edit {
                Edit::Replace { old, new } => old.len() + new.len(),
                Edit::Insert {
                    after_line: _,
                    text,
                } => text.len(),
            })
            .sum(),
    };
    let metadata: Option<&Metadata> = metadata.as_ref();
    weigh::artifact(title, content, metadata)
}
