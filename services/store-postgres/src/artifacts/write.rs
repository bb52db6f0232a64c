//! Creating, changing, restoring and deleting artifacts. Each write to an existing artifact first locks its row. Before
//! that, a write that sets or moves paths takes the lock of `lock_paths`.

use std::sync::Arc;

use context_model::{ArtifactId, ArtifactPath, ArtifactUpdate, Error, NewArtifact, fold};
use context_store::rules::artifact::{self, ArtifactOutcome, NewVersion, ReadVersion, Updated};
use context_store::rules::path;
use context_store::{ArtifactRestore, ChangeKind};
use diesel::prelude::*;

use super::{documents, read};
use crate::columns::JsonText;
use crate::fts::Language;
use crate::pg::dsl::{PipelineDsl as _, fixed};
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::schema::{artifact_texts, artifact_versions, artifacts};
use crate::transaction::{Transaction, Writing};

/// An artifact to create.
pub(crate) struct Create {
    pub id: ArtifactId,
    pub new: NewArtifact,
    pub language: Arc<Language>,
}

impl Writing for Create {
    type Outcome = ArtifactOutcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<ArtifactOutcome, Failure> {
        let first = NewVersion::first(self.id, self.new.clone(), transaction.now);
        if first.path.is_some() {
            lock_paths(transaction, PathLock::Sets).await?;
        }
        require_free(transaction, first.path.as_deref(), &self.id).await?;
        let (owner, key) = (transaction.owner.as_str(), self.id.to_string());
        diesel::insert_into(artifacts::table)
            .values((
                artifacts::owner_id.eq(owner),
                artifacts::artifact_id.eq(&key),
                artifacts::created_at.eq(first.created_at.micros()),
                artifacts::version.eq(first.version),
                artifacts::path.eq(&first.path),
            ))
            .send(transaction.conn)
            .await?;
        diesel::insert_into(artifact_texts::table)
            .values((
                artifact_texts::owner_id.eq(owner),
                artifact_texts::artifact_id.eq(&key),
                artifact_texts::title.eq(fold(&first.state.title)),
                artifact_texts::content.eq(fold(&first.state.content)),
            ))
            .send(transaction.conn)
            .await?;
        insert_version(transaction, &key, &first).await?;
        documents::write(transaction, &first, &self.language).await?;
        transaction.changed_artifact(ChangeKind::Create, key, first.version);
        Ok(first.into_outcome())
    }
}

/// A change of an artifact.
pub(crate) struct Update {
    pub update: ArtifactUpdate,
    pub language: Arc<Language>,
}

impl Writing for Update {
    type Outcome = ArtifactOutcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<ArtifactOutcome, Failure> {
        let Self { update, language } = self;
        if update.path.is_some() {
            lock_paths(transaction, PathLock::Sets).await?;
        }
        let current = current(transaction, &update.id, update.expected_version).await?;
        let (version, path_before) = (current.version, current.path.clone());
        let path = artifact::path_after(&current, update);
        if path != path_before {
            require_free(transaction, path.as_deref(), &update.id).await?;
        }
        match artifact::update(current, update, transaction.now)? {
            Updated::Version(next) => {
                store_next(transaction, next, ChangeKind::Update, language).await
            }
            Updated::Unchanged {
                outcome,
                title_given,
            } => {
                if let Some(given) = title_given {
                    let owner = transaction.owner.as_str();
                    let row =
                        artifact_versions::table.find((owner, update.id.to_string(), version));
                    fixed!(diesel::update(row).set(artifact_versions::title_given.eq(given)))
                        .send(transaction.conn)
                        .await?;
                }
                if path != path_before {
                    let key = update.id.to_string();
                    write_path(transaction, &key, path.as_deref()).await?;
                    transaction.changed_artifact(ChangeKind::Update, key, version);
                }
                Ok(outcome)
            }
        }
    }
}

/// Restores an earlier version as a new one.
pub(crate) struct Restore {
    pub restore: ArtifactRestore,
    pub language: Arc<Language>,
}

impl Writing for Restore {
    type Outcome = ArtifactOutcome;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<ArtifactOutcome, Failure> {
        let ArtifactRestore {
            id,
            version,
            expected_version,
        } = &self.restore;
        let current = current(transaction, id, *expected_version).await?;
        let owner = transaction.owner;
        let wanted = read::unchecked_version(transaction.conn, owner, id, Some(*version)).await?;
        let next = artifact::restore(&current, wanted, &self.restore, transaction.now)?;
        store_next(transaction, next, ChangeKind::Restore, &self.language).await
    }
}

/// An artifact to delete.
pub(crate) struct Delete(pub ArtifactId);

impl Writing for Delete {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let current = current(transaction, &self.0, None).await?;
        delete(transaction, &self.0, current.version).await?;
        Ok(1)
    }
}

/// Moves the artifacts at and below a path.
pub(crate) struct MoveAll {
    pub from: ArtifactPath,
    pub to: ArtifactPath,
}

impl Writing for MoveAll {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let Self { from, to } = self;
        lock_paths(transaction, PathLock::Moves).await?;
        let found = read::lock_placed(transaction.conn, transaction.owner, from).await?;
        let in_the_way = read::in_the_way(transaction.conn, transaction.owner, from, to).await?;
        let moves = path::moves(found, in_the_way.as_deref(), from, to)?;
        // All paths are removed first, because an artifact may get the path that another one has now.
        for (artifact, _) in &moves {
            write_path(transaction, &artifact.id.to_string(), None).await?;
        }
        for (artifact, path) in &moves {
            let key = artifact.id.to_string();
            write_path(transaction, &key, Some(path.as_str())).await?;
            transaction.changed_artifact(ChangeKind::Update, key, artifact.version);
        }
        Ok(moves.len() as u64)
    }
}

/// Deletes the artifacts at and below a path.
pub(crate) struct DeleteAll(pub ArtifactPath);

impl Writing for DeleteAll {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let found = read::lock_placed(transaction.conn, transaction.owner, &self.0).await?;
        let found = path::not_too_many(found)?;
        for artifact in &found {
            delete(transaction, &artifact.id, artifact.version).await?;
        }
        Ok(found.len() as u64)
    }
}

/// Deletes an artifact that is locked, and all rows that belong to it.
async fn delete(
    transaction: &mut Transaction<'_>,
    id: &ArtifactId,
    version: i64,
) -> Result<(), Failure> {
    let key = id.to_string();
    let (owner, conn) = (transaction.owner.as_str(), &mut *transaction.conn);
    let versions = artifact_versions::table
        .filter(artifact_versions::owner_id.eq(owner))
        .filter(artifact_versions::artifact_id.eq(&key));
    diesel::delete(versions).send(conn).await?;
    diesel::delete(artifact_texts::table.find((owner, &key)))
        .send(conn)
        .await?;
    diesel::delete(artifacts::table.find((owner, &key)))
        .send(conn)
        .await?;
    documents::remove(transaction, id).await?;
    transaction.changed_artifact(ChangeKind::Delete, key, version);
    Ok(())
}

/// What a write does with paths.
enum PathLock {
    /// It sets one, as others may do at the same time.
    Sets,
    /// It moves some. What is in the way of the move must not change until it ends.
    Moves,
}

/// Makes the owner's moves wait for each other and for the writes that set a path. The unique index cannot: two moves
/// that make a path a file and a directory write two different paths. A write takes this lock before it locks a row.
async fn lock_paths(transaction: &mut Transaction<'_>, lock: PathLock) -> Result<(), Failure> {
    let owner = vec![Bind::text(transaction.owner.as_str())];
    let lock = match lock {
        PathLock::Sets => {
            "SELECT pg_advisory_xact_lock_shared(hashtextextended('artifact paths of ' || ?, 0))"
        }
        PathLock::Moves => {
            "SELECT pg_advisory_xact_lock(hashtextextended('artifact paths of ' || ?, 0))"
        }
    };
    sql::send(transaction.conn, Fragment::prepared(lock, owner)).await?;
    Ok(())
}

async fn write_path(
    transaction: &mut Transaction<'_>,
    key: &str,
    path: Option<&str>,
) -> Result<(), Failure> {
    let row = artifacts::table.find((transaction.owner.as_str(), key));
    fixed!(diesel::update(row).set(artifacts::path.eq(path)))
        .send(transaction.conn)
        .await?;
    Ok(())
}

/// Locks the artifact and returns its current version, damaged or not. It must be the expected version.
async fn current(
    transaction: &mut Transaction<'_>,
    id: &ArtifactId,
    expected: Option<i64>,
) -> Result<ReadVersion, Failure> {
    artifacts::table
        .find((transaction.owner.as_str(), id.to_string()))
        .select(artifacts::version)
        .for_update()
        .send(transaction.conn)
        .await?;
    let found = read::unchecked_version(transaction.conn, transaction.owner, id, None).await?;
    Ok(artifact::current(id, found, expected)?)
}

async fn store_next(
    transaction: &mut Transaction<'_>,
    next: NewVersion,
    operation: ChangeKind,
    language: &Language,
) -> Result<ArtifactOutcome, Failure> {
    let (owner, key) = (transaction.owner.as_str(), next.id.to_string());
    let version = diesel::update(artifacts::table.find((owner, &key))).set((
        artifacts::version.eq(next.version),
        artifacts::path.eq(&next.path),
    ));
    fixed!(version).send(transaction.conn).await?;
    if next.has_other_texts() {
        let texts = diesel::update(artifact_texts::table.find((owner, &key))).set((
            artifact_texts::title.eq(fold(&next.state.title)),
            artifact_texts::content.eq(fold(&next.state.content)),
        ));
        fixed!(texts).send(transaction.conn).await?;
    }
    insert_version(transaction, &key, &next).await?;
    documents::write(transaction, &next, language).await?;
    transaction.changed_artifact(operation, key, next.version);
    Ok(next.into_outcome())
}

/// Checks that no other artifact has this path. Two concurrent writes may both pass this check. The unique index then
/// rejects the later one.
async fn require_free(
    transaction: &mut Transaction<'_>,
    path: Option<&str>,
    id: &ArtifactId,
) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let found = read::at_path(transaction.conn, transaction.owner, path).await?;
    match found.is_some_and(|other| other != *id) {
        true => Err(Error::path_taken(Some(path)).into()),
        false => Ok(()),
    }
}

async fn insert_version(
    transaction: &mut Transaction<'_>,
    key: &str,
    new: &NewVersion,
) -> Result<(), Failure> {
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
            artifact_versions::owner_id.eq(transaction.owner.as_str()),
            artifact_versions::artifact_id.eq(key),
            artifact_versions::version.eq(version),
            artifact_versions::at.eq(at.micros()),
            artifact_versions::title_given.eq(state.title_given),
            artifact_versions::changes.eq(changes),
            artifact_versions::title.eq(&state.title),
            artifact_versions::metadata.eq(JsonText(metadata)),
            artifact_versions::content.eq(&state.content),
            artifact_versions::seal.eq(&seal[..]),
        ))
        .send(transaction.conn)
        .await?;
    Ok(())
}
