//! Writes the artifacts of a copy so that they equal those of the source.

use std::collections::HashSet;

use context_model::{ArtifactId, fold};
use context_store::rules::artifact::{NewVersion, ReadVersion};
use context_store::{CopiedArtifact, Embedding};
use diesel::prelude::*;

use super::{documents, read, write};
use crate::failure::Failure;
use crate::schema::{artifact_texts, artifact_versions, artifacts};
use crate::transaction::Transaction;

/// Stores an artifact as the source has it, with the versions that the copy lacks.
pub(crate) fn store(
    transaction: &mut Transaction<'_>,
    copied: &CopiedArtifact,
) -> Result<(), Failure> {
    let CopiedArtifact { artifact, versions } = copied;
    let id = ArtifactId::parse(&artifact.id)?;
    let (owner, key) = (transaction.owner.owner, artifact.id.as_str());
    free_path(transaction, artifact.path.as_deref(), key)?;
    let Some(first) = versions.first() else {
        write::write_path(transaction, owner, key, artifact.path.as_deref())?;
        return Ok(());
    };
    diesel::delete(
        artifact_versions::table
            .filter(artifact_versions::owner.eq(owner))
            .filter(artifact_versions::artifact_id.eq(key))
            .filter(artifact_versions::version.ge(first.version)),
    )
    .execute(transaction.conn)?;
    let before = read::unchecked_version(transaction.conn, owner, &id, Some(first.version - 1))?;
    let mut before = before.as_ref().map(ReadVersion::state);
    for version in versions {
        let new = NewVersion::copied(
            id,
            artifact.created_at,
            artifact.path.clone(),
            version.clone(),
            before.as_ref(),
        );
        write::insert_version(transaction, key, &new)?;
        if version.version == artifact.version {
            store_current(transaction, key, &new)?;
        }
        before = Some(new.state);
    }
    Ok(())
}

/// Makes this version the current one.
fn store_current(
    transaction: &mut Transaction<'_>,
    key: &str,
    current: &NewVersion,
) -> Result<(), Failure> {
    let owner = transaction.owner.owner;
    diesel::replace_into(artifacts::table)
        .values((
            artifacts::owner.eq(owner),
            artifacts::artifact_id.eq(key),
            artifacts::created_at.eq(current.created_at.micros()),
            artifacts::version.eq(current.version),
            artifacts::path.eq(&current.path),
        ))
        .execute(transaction.conn)?;
    diesel::delete(
        artifact_texts::table
            .filter(artifact_texts::owner.eq(owner))
            .filter(artifact_texts::artifact_id.eq(key)),
    )
    .execute(transaction.conn)?;
    diesel::insert_into(artifact_texts::table)
        .values((
            artifact_texts::owner.eq(owner),
            artifact_texts::artifact_id.eq(key),
            artifact_texts::title.eq(fold(&current.state.title)),
            artifact_texts::content.eq(fold(&current.state.content)),
        ))
        .execute(transaction.conn)?;
    documents::remove(transaction, &current.id)?;
    documents::insert(transaction, current, &Embedding::Later)
}

/// Removes this path from any other artifact of the copy. The source has already moved or deleted that artifact, and
/// the copy learns this from a later change.
fn free_path(
    transaction: &mut Transaction<'_>,
    path: Option<&str>,
    key: &str,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    diesel::update(
        artifacts::table
            .filter(artifacts::owner.eq(transaction.owner.owner))
            .filter(artifacts::path.eq(path))
            .filter(artifacts::artifact_id.ne(key)),
    )
    .set(artifacts::path.eq(None::<String>))
    .execute(transaction.conn)?;
    Ok(())
}

/// Deletes an artifact, if it exists.
pub(crate) fn delete(transaction: &mut Transaction<'_>, id: &str) -> Result<(), Failure> {
    let id = ArtifactId::parse(id)?;
    let owner = transaction.owner.owner;
    if read::current_version(transaction.conn, owner, &id)?.is_some() {
        write::delete(transaction, id)?;
    }
    Ok(())
}

/// Deletes all artifacts except these.
pub(crate) fn delete_others(
    transaction: &mut Transaction<'_>,
    kept: &HashSet<String>,
) -> Result<(), Failure> {
    let ids: Vec<String> = artifacts::table
        .filter(artifacts::owner.eq(transaction.owner.owner))
        .select(artifacts::artifact_id)
        .load(transaction.conn)?;
    ids.iter()
        .filter(|id| !kept.contains(*id))
        .try_for_each(|id| delete(transaction, id))
}
