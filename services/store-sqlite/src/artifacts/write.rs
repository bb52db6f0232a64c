//! Creating, changing, restoring and deleting artifacts inside the writer's transaction.

use context_model::{
    ArtifactId, ArtifactState, ArtifactUpdate, Error, Metadata, NewArtifact, Timestamp, fold,
};
use context_store::{ArtifactRestore, Record, Recorded, StoredArtifact, seal};
use diesel::prelude::*;

use super::read::{self, VersionRow};
use crate::failure::Failure;
use crate::schema::{artifact_texts, artifact_versions, artifacts, changes};
use crate::statement::{self, Value};
use crate::transaction::Transaction;

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

/// Creates an artifact.
pub(crate) fn create(
    transaction: &mut Transaction<'_>,
    id: ArtifactId,
    new: &NewArtifact,
) -> Result<Outcome, Failure> {
    let state = ArtifactState::first(new.clone());
    let (owner, now) = (transaction.owner.owner, transaction.now);
    let key = id.to_string();
    diesel::insert_into(artifacts::table)
        .values((
            artifacts::owner.eq(owner),
            artifacts::artifact_id.eq(&key),
            artifacts::created_at.eq(now.micros()),
            artifacts::version.eq(1),
        ))
        .execute(transaction.conn)?;
    diesel::insert_into(artifact_texts::table)
        .values((
            artifact_texts::owner.eq(owner),
            artifact_texts::artifact_id.eq(&key),
            artifact_texts::title.eq(fold(&state.title)),
            artifact_texts::content.eq(fold(&state.content)),
        ))
        .execute(transaction.conn)?;
    insert_version(transaction, &key, 1, now, &state, &[])?;
    changed(transaction, "create", &key, 1)?;
    Ok(outcome(id, 1, now, now, state))
}

/// Changes an artifact.
pub(crate) fn update(
    transaction: &mut Transaction<'_>,
    update: &ArtifactUpdate,
) -> Result<Outcome, Failure> {
    let current = current(transaction, &update.id, update.expected_version)?
        .checked(&update.id)
        .map_err(Failure::Rejected)?;
    let before = current.state()?;
    let after = before.updated(update)?;
    let changes = after.changes_from(&before);
    if changes.is_empty() {
        if after.title_given != before.title_given {
            // Nobody sees a difference, but the title is to stay from now on, or to follow the content again.
            let given = Value::Int(after.title_given.into());
            let (owner, version) = (
                Value::Int(transaction.owner.owner),
                Value::Int(current.version),
            );
            let sql = "UPDATE artifact_versions SET title_given = ? WHERE owner = ? AND artifact_id = ? AND version = ?";
            statement::execute(
                transaction.conn,
                sql,
                &[given, owner, Value::Text(&update.id.to_string()), version],
            )?;
        }
        let (created_at, at) = (Timestamp(current.created_at), Timestamp(current.at));
        return Ok(outcome(update.id, current.version, created_at, at, before));
    }
    next_version(transaction, update.id, &current, after, &changes, "update")
}

/// Makes a new version out of an earlier one.
pub(crate) fn restore(
    transaction: &mut Transaction<'_>,
    restore: &ArtifactRestore,
) -> Result<Outcome, Failure> {
    let ArtifactRestore {
        id,
        version,
        expected_version,
    } = restore;
    let current = current(transaction, id, *expected_version)?;
    let Some(wanted) = read::unchecked_version(
        transaction.conn,
        transaction.owner.owner,
        id,
        Some(*version),
    )?
    else {
        return Err(Error::artifact_version_not_restorable(id, *version).into());
    };
    let state = wanted.checked(id).map_err(Failure::Rejected)?.state()?;
    // What is damaged now may be restored: all of it changes.
    let changes = match current.is_sound(id) {
        true => state.changes_from(&current.state()?),
        false => ["title", "content", "metadata"].map(str::to_owned).to_vec(),
    };
    next_version(transaction, *id, &current, state, &changes, "restore")
}

/// Deletes an artifact with everything that hangs on it.
pub(crate) fn delete(transaction: &mut Transaction<'_>, id: ArtifactId) -> Result<u64, Failure> {
    let current = current(transaction, &id, None)?;
    let (owner, key) = (transaction.owner.owner, id.to_string());
    diesel::delete(
        artifact_versions::table
            .filter(artifact_versions::owner.eq(owner))
            .filter(artifact_versions::artifact_id.eq(&key)),
    )
    .execute(transaction.conn)?;
    diesel::delete(
        artifact_texts::table
            .filter(artifact_texts::owner.eq(owner))
            .filter(artifact_texts::artifact_id.eq(&key)),
    )
    .execute(transaction.conn)?;
    diesel::delete(artifacts::table.find((owner, &key))).execute(transaction.conn)?;
    changed(transaction, "delete", &key, current.version)?;
    Ok(1)
}

/// The artifact's current version, damaged or not, which must be the expected one.
fn current(
    transaction: &mut Transaction<'_>,
    id: &ArtifactId,
    expected: Option<i64>,
) -> Result<VersionRow, Failure> {
    let Some(current) =
        read::unchecked_version(transaction.conn, transaction.owner.owner, id, None)?
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

fn next_version(
    transaction: &mut Transaction<'_>,
    id: ArtifactId,
    current: &VersionRow,
    state: ArtifactState,
    changes: &[String],
    operation: &'static str,
) -> Result<Outcome, Failure> {
    let version = current.version + 1;
    // A clock that stands still or steps back must not hide a change.
    let at = Timestamp(transaction.now.micros().max(current.at + 1));
    let (owner, key) = (transaction.owner.owner, id.to_string());
    statement::execute(
        transaction.conn,
        "UPDATE artifacts SET version = ? WHERE owner = ? AND artifact_id = ?",
        &[Value::Int(version), Value::Int(owner), Value::Text(&key)],
    )?;
    if changes.iter().any(|change| change != "metadata") {
        statement::execute(
            transaction.conn,
            "UPDATE artifact_texts SET title = ?, content = ? WHERE owner = ? AND artifact_id = ?",
            &[
                Value::Text(&fold(&state.title)),
                Value::Text(&fold(&state.content)),
                Value::Int(owner),
                Value::Text(&key),
            ],
        )?;
    }
    insert_version(transaction, &key, version, at, &state, changes)?;
    changed(transaction, operation, &key, version)?;
    Ok(outcome(
        id,
        version,
        Timestamp(current.created_at),
        at,
        state,
    ))
}

fn insert_version(
    transaction: &mut Transaction<'_>,
    key: &str,
    version: i64,
    at: Timestamp,
    state: &ArtifactState,
    changes: &[String],
) -> QueryResult<()> {
    let ArtifactState {
        title,
        title_given,
        content,
        metadata,
    } = state;
    let metadata = Metadata::from_stored(metadata.clone()).to_json();
    let seal = seal::artifact_version(key, version, title, &metadata, content);
    diesel::insert_into(artifact_versions::table)
        .values((
            artifact_versions::owner.eq(transaction.owner.owner),
            artifact_versions::artifact_id.eq(key),
            artifact_versions::version.eq(version),
            artifact_versions::at.eq(at.micros()),
            artifact_versions::title_given.eq(i64::from(*title_given)),
            artifact_versions::changes.eq(serde_json::json!(changes).to_string()),
            artifact_versions::title.eq(title),
            artifact_versions::metadata.eq(metadata),
            artifact_versions::content.eq(content),
            artifact_versions::seal.eq(&seal[..]),
        ))
        .execute(transaction.conn)?;
    Ok(())
}

/// Counts one change of an artifact and writes it down, without any of its content.
fn changed(
    transaction: &mut Transaction<'_>,
    operation: &'static str,
    key: &str,
    version: i64,
) -> QueryResult<()> {
    transaction.owner.revision += 1;
    diesel::insert_into(changes::table)
        .values((
            changes::owner.eq(transaction.owner.owner),
            changes::revision.eq(transaction.owner.revision),
            changes::at.eq(transaction.now.micros()),
            changes::operation.eq(operation),
            changes::entity.eq("artifact"),
            changes::entity_id.eq(key),
            changes::version.eq(version),
            changes::key_id.eq(transaction.key_id.as_deref()),
        ))
        .execute(transaction.conn)?;
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
