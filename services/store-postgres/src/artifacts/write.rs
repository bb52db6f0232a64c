//! Creating, changing, restoring and deleting artifacts. Each write first locks the artifact's row.

use context_model::{ArtifactId, ArtifactUpdate, NewArtifact, fold};
use context_store::ArtifactRestore;
use context_store::rules::artifact::{self, ArtifactOutcome, NewVersion, ReadVersion, Updated};

use super::read;
use crate::failure::Failure;
use crate::sql::{self, Bind, Fragment};
use crate::transaction::{ChangeKind, Transaction, Writing};

/// An artifact to create.
pub(crate) struct Create {
    pub id: ArtifactId,
    pub new: NewArtifact,
}

impl Writing for Create {
    type Outcome = ArtifactOutcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<ArtifactOutcome, Failure> {
        let first = NewVersion::first(self.id, self.new.clone(), transaction.now);
        let (owner, key) = (transaction.owner.as_str(), self.id.to_string());
        let insert = "WITH texts AS (INSERT INTO context.artifact_texts (owner_id, artifact_id, title, content) VALUES (?, ?, ?, ?)) \
                      INSERT INTO context.artifacts (owner_id, artifact_id, created_at, version) VALUES (?, ?, ?, ?)";
        let binds = vec![
            Bind::text(owner),
            Bind::text(&key),
            Bind::text(fold(&first.state.title)),
            Bind::text(fold(&first.state.content)),
            Bind::text(owner),
            Bind::text(&key),
            Bind::Int(first.created_at.micros()),
            Bind::Int(first.version),
        ];
        sql::execute(transaction.conn, Fragment::prepared(insert, binds)).await?;
        insert_version(transaction, &key, &first).await?;
        transaction.changed_artifact(ChangeKind::Create, key, first.version);
        Ok(first.into_outcome())
    }
}

/// A change of an artifact.
pub(crate) struct Update(pub ArtifactUpdate);

impl Writing for Update {
    type Outcome = ArtifactOutcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<ArtifactOutcome, Failure> {
        let Self(update) = self;
        let current = current(transaction, &update.id, update.expected_version).await?;
        let version = current.version;
        match artifact::update(current, update, transaction.now)? {
            Updated::Version(next) => store_next(transaction, next, ChangeKind::Update).await,
            Updated::Unchanged {
                outcome,
                title_given,
            } => {
                if let Some(given) = title_given {
                    let change = "UPDATE context.artifact_versions SET title_given = ? \
                                  WHERE owner_id = ? AND artifact_id = ? AND version = ?";
                    let binds = vec![
                        Bind::Bool(given),
                        Bind::text(transaction.owner.as_str()),
                        Bind::text(update.id.to_string()),
                        Bind::Int(version),
                    ];
                    sql::execute(transaction.conn, Fragment::prepared(change, binds)).await?;
                }
                Ok(outcome)
            }
        }
    }
}

/// An earlier version to make a new one of.
pub(crate) struct Restore(pub ArtifactRestore);

impl Writing for Restore {
    type Outcome = ArtifactOutcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<ArtifactOutcome, Failure> {
        let ArtifactRestore {
            id,
            version,
            expected_version,
        } = &self.0;
        let current = current(transaction, id, *expected_version).await?;
        let owner = transaction.owner;
        let wanted = read::unchecked_version(transaction.conn, owner, id, Some(*version)).await?;
        let next = artifact::restore(&current, wanted, &self.0, transaction.now)?;
        store_next(transaction, next, ChangeKind::Restore).await
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
) -> Result<ReadVersion, Failure> {
    let lock = "SELECT 1 FROM context.artifacts WHERE owner_id = ? AND artifact_id = ? FOR UPDATE";
    let binds = vec![
        Bind::text(transaction.owner.as_str()),
        Bind::text(id.to_string()),
    ];
    sql::execute(transaction.conn, Fragment::prepared(lock, binds)).await?;
    let found = read::unchecked_version(transaction.conn, transaction.owner, id, None).await?;
    Ok(artifact::current(id, found, expected)?)
}

async fn store_next(
    transaction: &mut Transaction<'_>,
    next: NewVersion,
    operation: ChangeKind,
) -> Result<ArtifactOutcome, Failure> {
    let (owner, key) = (transaction.owner.as_str(), next.id.to_string());
    let change = "UPDATE context.artifacts SET version = ? WHERE owner_id = ? AND artifact_id = ?";
    let binds = vec![Bind::Int(next.version), Bind::text(owner), Bind::text(&key)];
    sql::execute(transaction.conn, Fragment::prepared(change, binds)).await?;
    if next.has_other_texts() {
        let change = "UPDATE context.artifact_texts SET title = ?, content = ? WHERE owner_id = ? AND artifact_id = ?";
        let binds = vec![
            Bind::text(fold(&next.state.title)),
            Bind::text(fold(&next.state.content)),
            Bind::text(owner),
            Bind::text(&key),
        ];
        sql::execute(transaction.conn, Fragment::prepared(change, binds)).await?;
    }
    insert_version(transaction, &key, &next).await?;
    transaction.changed_artifact(operation, key, next.version);
    Ok(next.into_outcome())
}

async fn insert_version(
    transaction: &mut Transaction<'_>,
    key: &str,
    new: &NewVersion,
) -> Result<(), Failure> {
    let NewVersion {
        id: _,
        created_at: _,
        version,
        at,
        state,
        metadata,
        changes,
        seal,
    } = new;
    let insert = "INSERT INTO context.artifact_versions \
                  (owner_id, artifact_id, version, at, title_given, changes, title, metadata, content, seal) \
                  VALUES (?, ?, ?, ?, ?, ?, ?, ?::json, ?, ?)";
    let binds = vec![
        Bind::text(transaction.owner.as_str()),
        Bind::text(key),
        Bind::Int(*version),
        Bind::Int(at.micros()),
        Bind::Bool(state.title_given),
        Bind::texts(changes),
        Bind::text(&state.title),
        Bind::text(metadata),
        Bind::text(&state.content),
        Bind::Bytes(seal),
    ];
    sql::execute(transaction.conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}
