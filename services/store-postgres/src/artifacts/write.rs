//! Creating, changing, restoring and deleting artifacts. Each write first locks the artifact's row.

use context_model::{
    ArtifactId, ArtifactState, ArtifactUpdate, Error, Metadata, NewArtifact, Timestamp, fold,
};
use context_store::{ArtifactRestore, Record, Recorded, StoredArtifact, seal};

use super::read::{self, VersionRow};
use crate::failure::Failure;
use crate::sql::{self, Bind, Fragment};
use crate::transaction::{ChangeKind, Transaction, Writing};

/// What a write gives: the artifact, unless the outcome was recorded by an earlier request. The record has no content,
/// so that none survives the artifact; the version is read again instead.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub id: String,
    pub version: i64,
    pub artifact: Option<StoredArtifact>,
}

impl Recorded for Outcome {
    fn to_record(&self) -> Record {
        Record::Artifact {
            id: self.id.clone(),
            version: self.version,
        }
    }

    fn from_record(record: Record) -> Option<Self> {
        match record {
            Record::Artifact { id, version } => Some(Self {
                id,
                version,
                artifact: None,
            }),
            Record::Batch(_) | Record::Deleted(_) | Record::Once => None,
        }
    }
}

/// An artifact to create.
pub(crate) struct Create {
    pub id: ArtifactId,
    pub new: NewArtifact,
}

impl Writing for Create {
    type Outcome = Outcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Outcome, Failure> {
        let state = ArtifactState::first(self.new.clone());
        let (owner, now, key) = (
            transaction.owner.as_str(),
            transaction.now,
            self.id.to_string(),
        );
        let insert = "WITH texts AS (INSERT INTO context.artifact_texts (owner_id, artifact_id, title, content) VALUES (?, ?, ?, ?)) \
                      INSERT INTO context.artifacts (owner_id, artifact_id, created_at, version) VALUES (?, ?, ?, 1)";
        let binds = vec![
            Bind::text(owner),
            Bind::text(&key),
            Bind::text(fold(&state.title)),
            Bind::text(fold(&state.content)),
            Bind::text(owner),
            Bind::text(&key),
            Bind::Int(now.micros()),
        ];
        sql::execute(transaction.conn, Fragment::prepared(insert, binds)).await?;
        insert_version(transaction, &key, 1, now, &state, &[]).await?;
        transaction.changed_artifact(ChangeKind::Create, key, 1);
        Ok(outcome(self.id, 1, now, now, state))
    }
}

/// A change of an artifact.
pub(crate) struct Update(pub ArtifactUpdate);

impl Writing for Update {
    type Outcome = Outcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Outcome, Failure> {
        let Self(update) = self;
        let current = current(transaction, &update.id, update.expected_version)
            .await?
            .checked(&update.id)?;
        let before = current.state();
        let after = before.updated(update)?;
        let changes = after.changes_from(&before);
        if changes.is_empty() {
            if after.title_given != before.title_given {
                // Nobody sees a difference, but the title is to stay from now on, or to follow the content again.
                let change = "UPDATE context.artifact_versions SET title_given = ? WHERE owner_id = ? AND artifact_id = ? AND version = ?";
                let binds = vec![
                    Bind::Bool(after.title_given),
                    Bind::text(transaction.owner.as_str()),
                    Bind::text(update.id.to_string()),
                    Bind::Int(current.version),
                ];
                sql::execute(transaction.conn, Fragment::prepared(change, binds)).await?;
            }
            let (created_at, at) = (Timestamp(current.created_at), Timestamp(current.at));
            return Ok(outcome(update.id, current.version, created_at, at, before));
        }
        next_version(
            transaction,
            update.id,
            &current,
            after,
            &changes,
            ChangeKind::Update,
        )
        .await
    }
}

/// An earlier version to make a new one of.
pub(crate) struct Restore(pub ArtifactRestore);

impl Writing for Restore {
    type Outcome = Outcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Outcome, Failure> {
        let ArtifactRestore {
            id,
            version,
            expected_version,
        } = &self.0;
        let current = current(transaction, id, *expected_version).await?;
        let Some(wanted) =
            read::unchecked_version(transaction.conn, transaction.owner, id, Some(*version))
                .await?
        else {
            return Err(Error::artifact_version_not_restorable(id, *version).into());
        };
        let state = wanted.checked(id)?.state();
        // What is damaged now may be restored: all of it changes.
        let changes = match current.is_sound(id) {
            true => state.changes_from(&current.state()),
            false => ["title", "content", "metadata"].map(str::to_owned).to_vec(),
        };
        next_version(
            transaction,
            *id,
            &current,
            state,
            &changes,
            ChangeKind::Restore,
        )
        .await
    }
}

/// An artifact to delete with everything that hangs on it.
pub(crate) struct Delete(pub ArtifactId);

impl Writing for Delete {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let current = current(transaction, &self.0, None).await?;
        let key = self.0.to_string();
        for delete in [
            "DELETE FROM context.artifact_versions WHERE owner_id = ? AND artifact_id = ?",
            "DELETE FROM context.artifact_texts WHERE owner_id = ? AND artifact_id = ?",
            "DELETE FROM context.artifacts WHERE owner_id = ? AND artifact_id = ?",
        ] {
            let binds = vec![Bind::text(transaction.owner.as_str()), Bind::text(&key)];
            sql::execute(transaction.conn, Fragment::prepared(delete, binds)).await?;
        }
        transaction.changed_artifact(ChangeKind::Delete, key, current.version);
        Ok(1)
    }
}

/// The artifact's current version, damaged or not, locked, which must be the expected one.
async fn current(
    transaction: &mut Transaction<'_>,
    id: &ArtifactId,
    expected: Option<i64>,
) -> Result<VersionRow, Failure> {
    let lock = "SELECT 1 FROM context.artifacts WHERE owner_id = ? AND artifact_id = ? FOR UPDATE";
    let binds = vec![
        Bind::text(transaction.owner.as_str()),
        Bind::text(id.to_string()),
    ];
    sql::execute(transaction.conn, Fragment::prepared(lock, binds)).await?;
    let Some(current) =
        read::unchecked_version(transaction.conn, transaction.owner, id, None).await?
    else {
        return Err(Error::artifact_not_found(id).into());
    };
    match expected {
        Some(expected) if expected != current.version => {
            Err(Error::artifact_version_mismatch(id, expected, current.version).into())
        }
        _ => Ok(current),
    }
}

async fn next_version(
    transaction: &mut Transaction<'_>,
    id: ArtifactId,
    current: &VersionRow,
    state: ArtifactState,
    changes: &[String],
    operation: ChangeKind,
) -> Result<Outcome, Failure> {
    let version = current.version + 1;
    // A clock that stands still or steps back must not hide a change.
    let at = Timestamp(transaction.now.micros().max(current.at + 1));
    let (owner, key) = (transaction.owner.as_str(), id.to_string());
    let change = "UPDATE context.artifacts SET version = ? WHERE owner_id = ? AND artifact_id = ?";
    sql::execute(
        transaction.conn,
        Fragment::prepared(
            change,
            vec![Bind::Int(version), Bind::text(owner), Bind::text(&key)],
        ),
    )
    .await?;
    if changes.iter().any(|change| change != "metadata") {
        let change = "UPDATE context.artifact_texts SET title = ?, content = ? WHERE owner_id = ? AND artifact_id = ?";
        let binds = vec![
            Bind::text(fold(&state.title)),
            Bind::text(fold(&state.content)),
            Bind::text(owner),
            Bind::text(&key),
        ];
        sql::execute(transaction.conn, Fragment::prepared(change, binds)).await?;
    }
    insert_version(transaction, &key, version, at, &state, changes).await?;
    transaction.changed_artifact(operation, key, version);
    Ok(outcome(
        id,
        version,
        Timestamp(current.created_at),
        at,
        state,
    ))
}

async fn insert_version(
    transaction: &mut Transaction<'_>,
    key: &str,
    version: i64,
    at: Timestamp,
    state: &ArtifactState,
    changes: &[String],
) -> Result<(), Failure> {
    let ArtifactState {
        title,
        title_given,
        content,
        metadata,
    } = state;
    let metadata = Metadata::from_stored(metadata.clone()).to_json();
    let seal = seal::artifact_version(key, version, title, &metadata, content);
    let insert = "INSERT INTO context.artifact_versions \
                  (owner_id, artifact_id, version, at, title_given, changes, title, metadata, content, seal) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?::json, ?, ?)";
    let binds = vec![
        Bind::text(transaction.owner.as_str()),
        Bind::text(key),
        Bind::Int(version),
        Bind::Int(at.micros()),
        Bind::Bool(*title_given),
        Bind::texts(changes),
        Bind::text(title),
        Bind::text(metadata),
        Bind::text(content),
        Bind::Bytes(&seal),
    ];
    sql::execute(transaction.conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

fn outcome(
    id: ArtifactId,
    version: i64,
    created_at: Timestamp,
    updated_at: Timestamp,
    state: ArtifactState,
) -> Outcome {
    let ArtifactState {
        title,
        title_given: _,
        content,
        metadata,
    } = state;
    let artifact = StoredArtifact {
        id,
        title,
        content,
        metadata,
        created_at,
        updated_at,
        version,
    };
    Outcome {
        id: id.to_string(),
        version,
        artifact: Some(artifact),
    }
}
