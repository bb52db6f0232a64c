//! Creates, updates, restores, moves and deletes artifacts inside the writer's transaction.

use context_model::{ArtifactId, ArtifactPath, ArtifactUpdate, Error, NewArtifact, fold};
use context_store::rules::artifact::{self, ArtifactOutcome, NewVersion, ReadVersion, Updated};
use context_store::rules::path;
use context_store::{ArtifactRestore, ChangeKind, Changed, Embedding};
use diesel::prelude::*;

use super::{documents, read};
use crate::failure::Failure;
use crate::schema::{artifact_texts, artifact_versions, artifacts};
use crate::statement::{self, Value};
use crate::transaction::Transaction;

/// Creates an artifact.
pub(crate) fn create(
    transaction: &mut Transaction<'_>,
    id: ArtifactId,
    new: &NewArtifact,
    embedding: &Embedding,
) -> Result<ArtifactOutcome, Failure> {
    let first = NewVersion::first(id, new.clone(), transaction.now);
    let (owner, key) = (transaction.owner.owner, id.to_string());
    require_free(transaction, first.path.as_deref(), &id)?;
    diesel::insert_into(artifacts::table)
        .values((
            artifacts::owner.eq(owner),
            artifacts::artifact_id.eq(&key),
            artifacts::created_at.eq(first.created_at.micros()),
            artifacts::version.eq(first.version),
            artifacts::path.eq(&first.path),
        ))
        .execute(transaction.conn)?;
    diesel::insert_into(artifact_texts::table)
        .values((
            artifact_texts::owner.eq(owner),
            artifact_texts::artifact_id.eq(&key),
            artifact_texts::title.eq(fold(&first.state.title)),
            artifact_texts::content.eq(fold(&first.state.content)),
        ))
        .execute(transaction.conn)?;
    insert_version(transaction, &key, &first)?;
    documents::insert(transaction, &first, embedding)?;
    changed(transaction, ChangeKind::Create, &key, first.version)?;
    Ok(first.into_outcome())
}

/// Updates an artifact.
pub(crate) fn update(
    transaction: &mut Transaction<'_>,
    update: &ArtifactUpdate,
    embedding: &Embedding,
) -> Result<ArtifactOutcome, Failure> {
    let current = current(transaction, &update.id, update.expected_version)?;
    let (version, path_before) = (current.version, current.path.clone());
    let path = artifact::path_after(&current, update);
    if path != path_before {
        require_free(transaction, path.as_deref(), &update.id)?;
    }
    match artifact::update(current, update, transaction.now)? {
        Updated::Version(next) => store_next(transaction, next, ChangeKind::Update, embedding),
        Updated::Unchanged {
            outcome,
            title_given,
        } => {
            if let Some(given) = title_given {
                let key = update.id.to_string();
                let values = [
                    Value::Int(given.into()),
                    Value::Int(transaction.owner.owner),
                    Value::Text(&key),
                    Value::Int(version),
                ];
                let sql = "UPDATE artifact_versions SET title_given = ? \
                           WHERE owner = ? AND artifact_id = ? AND version = ?";
                statement::execute(transaction.conn, sql, &values)?;
            }
            if path != path_before {
                let (owner, key) = (transaction.owner.owner, update.id.to_string());
                write_path(transaction, owner, &key, path.as_deref())?;
                changed(transaction, ChangeKind::Update, &key, version)?;
            }
            Ok(outcome)
        }
    }
}

/// Creates a new version from an earlier one.
pub(crate) fn restore(
    transaction: &mut Transaction<'_>,
    restore: &ArtifactRestore,
    embedding: &Embedding,
) -> Result<ArtifactOutcome, Failure> {
    let ArtifactRestore {
        id,
        version,
        expected_version,
    } = restore;
    let current = current(transaction, id, *expected_version)?;
    let owner = transaction.owner.owner;
    let wanted = read::unchecked_version(transaction.conn, owner, id, Some(*version))?;
    let next = artifact::restore(&current, wanted, restore, transaction.now)?;
    store_next(transaction, next, ChangeKind::Restore, embedding)
}

/// Deletes an artifact with all its versions.
pub(crate) fn delete(transaction: &mut Transaction<'_>, id: ArtifactId) -> Result<u64, Failure> {
    let current = current(transaction, &id, None)?;
    remove(transaction, &id, current.version)?;
    Ok(1)
}

/// Deletes all rows of an artifact whose current version is this one.
fn remove(transaction: &mut Transaction<'_>, id: &ArtifactId, version: i64) -> Result<(), Failure> {
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
    documents::remove(transaction, id)?;
    changed(transaction, ChangeKind::Delete, &key, version)?;
    Ok(())
}

/// Moves the artifacts at and below a path.
pub(crate) fn move_all(
    transaction: &mut Transaction<'_>,
    from: &ArtifactPath,
    to: &ArtifactPath,
) -> Result<u64, Failure> {
    let owner = transaction.owner.owner;
    let found = read::placed(transaction.conn, owner, from)?;
    let in_the_way = read::in_the_way(transaction.conn, owner, from, to)?;
    let moves = path::moves(found, in_the_way.as_deref(), from, to)?;
    // All paths are removed first, because an artifact may get the path that another one still has.
    for (artifact, _) in &moves {
        write_path(transaction, owner, &artifact.id.to_string(), None)?;
    }
    for (artifact, path) in &moves {
        let key = artifact.id.to_string();
        write_path(transaction, owner, &key, Some(path.as_str()))?;
        changed(transaction, ChangeKind::Update, &key, artifact.version)?;
    }
    Ok(moves.len() as u64)
}

/// Deletes the artifacts at and below a path.
pub(crate) fn delete_all(
    transaction: &mut Transaction<'_>,
    path: &ArtifactPath,
) -> Result<u64, Failure> {
    let found = read::placed(transaction.conn, transaction.owner.owner, path)?;
    let found = path::not_too_many(found)?;
    for artifact in &found {
        remove(transaction, &artifact.id, artifact.version)?;
    }
    Ok(found.len() as u64)
}

/// The artifact's current version, damaged or not. It must be the expected one.
fn current(
    transaction: &mut Transaction<'_>,
    id: &ArtifactId,
    expected: Option<i64>,
) -> Result<ReadVersion, Failure> {
    let owner = transaction.owner.owner;
    let found = read::unchecked_version(transaction.conn, owner, id, None)?;
    Ok(artifact::current(id, found, expected)?)
}

fn store_next(
    transaction: &mut Transaction<'_>,
    next: NewVersion,
    kind: ChangeKind,
    embedding: &Embedding,
) -> Result<ArtifactOutcome, Failure> {
    let (owner, key) = (transaction.owner.owner, next.id.to_string());
    statement::execute(
        transaction.conn,
        "UPDATE artifacts SET version = ?, path = ? WHERE owner = ? AND artifact_id = ?",
        &[
            Value::Int(next.version),
            next.path.as_deref().map_or(Value::Null, Value::Text),
            Value::Int(owner),
            Value::Text(&key),
        ],
    )?;
    if next.has_other_texts() {
        statement::execute(
            transaction.conn,
            "UPDATE artifact_texts SET title = ?, content = ? WHERE owner = ? AND artifact_id = ?",
            &[
                Value::Text(&fold(&next.state.title)),
                Value::Text(&fold(&next.state.content)),
                Value::Int(owner),
                Value::Text(&key),
            ],
        )?;
    }
    insert_version(transaction, &key, &next)?;
    documents::update(transaction, &next, embedding)?;
    changed(transaction, kind, &key, next.version)?;
    Ok(next.into_outcome())
}

/// Checks that no other artifact has this path.
fn require_free(
    transaction: &mut Transaction<'_>,
    path: Option<&str>,
    id: &ArtifactId,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let owner = transaction.owner.owner;
    let found = read::at_path(transaction.conn, owner, path).map_err(Failure::Rejected)?;
    match found.is_some_and(|other| other != *id) {
        true => Err(Error::path_taken(Some(path)).into()),
        false => Ok(()),
    }
}

pub(super) fn write_path(
    transaction: &mut Transaction<'_>,
    owner: i64,
    key: &str,
    path: Option<&str>,
) -> QueryResult<()> {
    diesel::update(artifacts::table.find((owner, key)))
        .set(artifacts::path.eq(path))
        .execute(transaction.conn)?;
    Ok(())
}

pub(super) fn insert_version(
    transaction: &mut Transaction<'_>,
    key: &str,
    new: &NewVersion,
) -> QueryResult<()> {
    let NewVersion {
        id: _,
        created_at: _,
        path: _,
        version,
        at,
        state,
        metadata,
        changes,
        seal,
    } = new;
    diesel::insert_into(artifact_versions::table)
        .values((
            artifact_versions::owner.eq(transaction.owner.owner),
            artifact_versions::artifact_id.eq(key),
            artifact_versions::version.eq(version),
            artifact_versions::at.eq(at.micros()),
            artifact_versions::title_given.eq(i64::from(state.title_given)),
            artifact_versions::changes.eq(serde_json::json!(changes).to_string()),
            artifact_versions::title.eq(&state.title),
            artifact_versions::metadata.eq(metadata),
            artifact_versions::content.eq(&state.content),
            artifact_versions::seal.eq(&seal[..]),
        ))
        .execute(transaction.conn)?;
    Ok(())
}

/// Counts one change of an artifact and records it in the feed, without any content.
fn changed(
    transaction: &mut Transaction<'_>,
    kind: ChangeKind,
    key: &str,
    version: i64,
) -> QueryResult<()> {
    let id = key.to_owned();
    transaction.changed(kind, Changed::Artifact { id }, version)
}
