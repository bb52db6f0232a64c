//! Writes a database that is a copy of an owner of another service, the source. Its entries and artifacts have the ids,
//! times and versions of the source, and its owner has the source's revision.

use std::sync::atomic::Ordering;

use context_model::{
    ContentType, Entry, EntryUpdate, Error, Metadata, MetadataChange, NewImage, Reason, Tags,
    Timestamp,
};
use context_store::rules::counts::EntryCounts;
use context_store::rules::thread::{NewestEntry, ThreadState, text_hash};
use context_store::seal::EntrySeal;
use context_store::{
    Change, Copied, CopyPosition, DeleteCriteria, Embedding, Once, OwnerId, Read, Result,
    StoreError, Touched, WriteOptions, call,
};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::artifacts;
use crate::changes;
use crate::context_window::EntryPosition;
use crate::copy_mark::{self, CURSOR, OWNER};
use crate::entries::{self, EntryRow};
use crate::failure::{Failure, store_error};
use crate::full_text::FullTextChange;
use crate::indexable::Indexable;
use crate::owners::{self, id_of_row};
use crate::schema::{
    audited_changes, changes as changes_table, entries as table, owners as owners_table,
};
use crate::snapshot::Snapshot;
use crate::statement::{self, Value};
use crate::store::SqliteStore;
use crate::store_entry::{NewRow, insert_row};
use crate::transaction::Transaction;
use crate::{delete_entries, threads, update_entry};

/// The bytes that a batch counts for in the write queue. The exact size does not matter, because only one batch is
/// queued at a time.
const BATCH_BYTES: usize = 1024 * 1024;

impl SqliteStore {
    /// Whether the database is a copy.
    pub(crate) fn is_copy(&self) -> bool {
        self.is_copy.load(Ordering::Relaxed)
    }

    /// Rejects a write if the database is a copy.
    pub(crate) fn require_own(&self) -> Result<()> {
        if self.is_copy() {
            let sentence = "this service is a copy of another service, and cannot be written; write to the other service";
            return Err(Error::new(Reason::StorageReadOnly, sentence).into());
        }
        Ok(())
    }

    /// Makes an empty database the copy of an owner, under this name, or continues a copy. Returns the position that
    /// the copy has reached, or `None` if nothing has been copied yet.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` when the database has, or once had, other data, or is a copy for another owner.
    pub async fn copy_of(&self, owner: &OwnerId) -> Result<Option<CopyPosition>> {
        let owner = owner.clone();
        let position = self
            .write_without_owner(move |conn, _| begin(conn, &owner))
            .await?;
        self.is_copy.store(true, Ordering::Relaxed);
        Ok(position)
    }

    /// Writes changed entries and artifacts as the source has them now (`latest`, each at most once), the rows of the
    /// changes, and the position after them, in one transaction.
    ///
    /// # Errors
    /// [`StoreError`]. Nothing is copied then.
    pub async fn copy_changes(
        &self,
        owner: &OwnerId,
        latest: Vec<Copied>,
        changes: Vec<Change>,
        position: CopyPosition,
        now: Timestamp,
    ) -> Result<()> {
        self.copy(owner, now, move |transaction| {
            apply(transaction, &latest)?;
            for change in &changes {
                changes::insert(transaction.conn, transaction.owner.owner, change)?;
            }
            store_position(transaction, &position)
        })
        .await
    }

    /// Replaces the content of the copy by a snapshot and stores its position, in one transaction: readers see the old
    /// content until it commits.
    ///
    /// # Errors
    /// [`StoreError`]. Nothing is changed then.
    pub async fn copy_snapshot(
        &self,
        owner: &OwnerId,
        snapshot: Snapshot,
        position: CopyPosition,
        now: Timestamp,
    ) -> Result<()> {
        self.copy(owner, now, move |transaction| {
            transaction.touched = Touched::Anything;
            delete_changes(transaction)?;
            delete_others(transaction, &snapshot)?;
            for piece in snapshot.pieces() {
                let piece = piece.map_err(|error| StoreError::Internal(error.into()))?;
                apply(transaction, &piece)?;
                transaction.apply_full_text()?;
            }
            store_position(transaction, &position)
        })
        .await
    }

    async fn copy(
        &self,
        owner: &OwnerId,
        now: Timestamp,
        mut work: impl FnMut(&mut Transaction<'_>) -> std::result::Result<(), Failure> + Send + 'static,
    ) -> Result<()> {
        let options = WriteOptions {
            now,
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        let copying = move |transaction: &mut Transaction<'_>| {
            transaction.is_copying = true;
            work(transaction).map(Once)
        };
        self.write_items(owner, options, BATCH_BYTES, false, copying)
            .await
            .map(drop)
    }

    /// Waits until a copy has the revision that `read` requires. Meanwhile other operations may use the turn of this
    /// call.
    pub(crate) async fn reach(&self, owner: &OwnerId, read: Read) -> Result<()> {
        let Some(wanted) = read.min_revision.filter(|_| self.is_copy()) else {
            return Ok(());
        };
        if self.revision(owner).await? >= wanted {
            return Ok(());
        }
        let _waiting = self
            .waiting
            .try_acquire()
            .map_err(|_| StoreError::Overloaded)?;
        let mut subscription = self.notifier.subscribe(owner);
        let arrives = async {
            loop {
                subscription.begin_read();
                if self.revision(owner).await? >= wanted {
                    return Ok(());
                }
                subscription.changed().await;
            }
        };
        let waited = call::without_turn(tokio::time::timeout(read.wait, arrives)).await?;
        match waited {
            Ok(reached) => reached,
            Err(_) => {
                let revision = self.revision(owner).await?;
                let sentence = format!(
                    "`min_revision` is {wanted}, but this copy has only reached revision {revision} after {:?}",
                    read.wait
                );
                Err(Error::invalid("min_revision", sentence).into())
            }
        }
    }

    async fn revision(&self, owner: &OwnerId) -> Result<i64> {
        let name = owner.clone();
        self.points
            .read(Some(owner), move |conn| {
                let owner = owners::find(conn, &name).map_err(store_error)?;
                Ok(owner.map_or(0, |owner| owner.revision))
            })
            .await
    }
}

fn begin(
    conn: &mut SqliteConnection,
    owner: &OwnerId,
) -> std::result::Result<Option<CopyPosition>, Failure> {
    let refused = |sentence: String| Err(Error::invalid("to", sentence).into());
    match copy_mark::read(conn, OWNER)? {
        Some(name) if name == owner.as_str() => {}
        Some(name) => return refused(format!("the database is a copy for the owner `{name}`")),
        None => {
            let written = owners_table::table.filter(owners_table::revision.gt(0));
            if diesel::select(diesel::dsl::exists(written)).get_result(conn)? {
                let sentence = "the database has, or once had, entries or artifacts of its own; name another file";
                return refused(sentence.to_owned());
            }
            copy_mark::write(conn, OWNER, owner.as_str())?;
        }
    }
    let revision = owners::find(conn, owner)?.map_or(0, |owner| owner.revision);
    let cursor = copy_mark::read(conn, CURSOR)?;
    Ok(cursor.map(|cursor| CopyPosition { cursor, revision }))
}

/// Stores the position, in the same transaction as the changes up to it.
fn store_position(
    transaction: &mut Transaction<'_>,
    position: &CopyPosition,
) -> std::result::Result<(), Failure> {
    copy_mark::write(transaction.conn, CURSOR, &position.cursor)?;
    transaction.owner.revision = position.revision;
    Ok(())
}

/// Deletes the feed and the audit log from before a snapshot. The changes that follow the snapshot may have the same
/// revisions.
fn delete_changes(transaction: &mut Transaction<'_>) -> QueryResult<()> {
    let owner = transaction.owner.owner;
    diesel::delete(changes_table::table.filter(changes_table::owner.eq(owner)))
        .execute(transaction.conn)?;
    diesel::delete(audited_changes::table.filter(audited_changes::owner.eq(owner)))
        .execute(transaction.conn)?;
    Ok(())
}

/// Deletes the entries and artifacts that are not in the snapshot.
fn delete_others(
    transaction: &mut Transaction<'_>,
    snapshot: &Snapshot,
) -> std::result::Result<(), Failure> {
    let owner = transaction.owner.owner;
    let row_ids: Vec<i64> = table::table
        .filter(table::owner.eq(owner))
        .select(table::row_id)
        .load(transaction.conn)?;
    let others: Vec<i64> = row_ids
        .into_iter()
        .map(id_of_row)
        .filter(|id| !snapshot.entries.contains(id))
        .collect();
    for ids in others.chunks(1000) {
        delete(transaction, ids.to_vec())?;
        transaction.apply_full_text()?;
    }
    artifacts::copy::delete_others(transaction, &snapshot.artifacts)
}

fn delete(transaction: &mut Transaction<'_>, ids: Vec<i64>) -> std::result::Result<(), Failure> {
    let criteria = DeleteCriteria {
        ids: Some(ids),
        within: None,
        threads: None,
        source: None,
        created_before: None,
    };
    delete_entries::delete(transaction, &criteria).map(drop)
}

/// Applies changes of different entries and artifacts. Deletions come first, then entries in the order of their ids, so
/// that the newest entry of a thread is usually inserted last.
fn apply(
    transaction: &mut Transaction<'_>,
    changes: &[Copied],
) -> std::result::Result<(), Failure> {
    let (mut gone, mut entries, mut artifacts) = (Vec::new(), Vec::new(), Vec::new());
    for change in changes {
        match change {
            Copied::EntryGone(id) => gone.push(*id),
            Copied::Entry(entry) => entries.push(entry),
            Copied::ArtifactGone(id) => artifacts::copy::delete(transaction, id)?,
            Copied::Artifact(copied) => artifacts.push(copied),
        }
    }
    if !gone.is_empty() {
        delete(transaction, gone)?;
    }
    entries.sort_by_key(|entry| entry.id);
    for entry in entries {
        store(transaction, entry)?;
    }
    for copied in artifacts {
        artifacts::copy::store(transaction, copied)?;
    }
    Ok(())
}

/// Inserts or updates an entry so that it equals the source's.
fn store(transaction: &mut Transaction<'_>, entry: &Entry) -> std::result::Result<(), Failure> {
    let unreadable = |error: serde_json::Error| StoreError::Internal(error.into());
    let metadata = Metadata::from_stored(entry.metadata.to_object().map_err(unreadable)?);
    let images: Vec<NewImage> = entry
        .images
        .iter()
        .flatten()
        .map(|image| NewImage {
            data: image.data.0.clone(),
            mime_type: image
                .mime_type
                .clone()
                .unwrap_or_else(|| "image/png".to_owned()),
            metadata: image.metadata.clone().map(Metadata::from_stored),
        })
        .collect();
    let new = New {
        row_id: transaction.owner.row_id(entry.id).ok_or_else(|| {
            let sentence = format!(
                "the entry {} cannot be stored in SQLite, whose ids are below 2^40",
                entry.id
            );
            StoreError::Internal(sentence.into())
        })?,
        entry,
        metadata,
        images,
    };
    let Some(stored) = entries::find(transaction.conn, new.row_id)? else {
        return insert(transaction, &new);
    };
    // After a backup of the source's database was restored, the source can give an id to another entry.
    let is_the_same = stored.thread_id == entry.thread_id
        && stored.source == entry.source.as_str()
        && stored.created_at == entry.created_at.micros();
    if is_the_same {
        return update(transaction, &stored, &new);
    }
    delete(transaction, vec![entry.id])?;
    insert(transaction, &new)
}

/// An entry in the form in which it is stored.
struct New<'e> {
    row_id: i64,
    entry: &'e Entry,
    metadata: Metadata,
    images: Vec<NewImage>,
}

fn insert(transaction: &mut Transaction<'_>, new: &New<'_>) -> std::result::Result<(), Failure> {
    let New {
        row_id,
        entry,
        metadata,
        images,
    } = new;
    let (owner, thread_id, row_id) = (transaction.owner.owner, entry.thread_id.as_str(), *row_id);
    let created_at = entry.created_at.micros();
    let image_count = i64::try_from(images.len()).unwrap_or(i64::MAX);
    let found = threads::find(transaction.conn, owner, thread_id)?;
    let is_new = found.is_none();
    let mut thread = found.unwrap_or_else(|| ThreadState::empty(thread_id));
    let newest_before = (!is_new).then_some(thread.last_id);
    thread.add_in_order(&NewestEntry {
        id: entry.id,
        source: entry.source,
        image_count,
        created_at,
        hash: text_hash(&entry.text_content),
    });
    if is_new {
        threads::insert(transaction.conn, owner, &thread)?;
    } else {
        threads::update(transaction.conn, owner, &thread)?;
    }
    let row = NewRow {
        id: entry.id,
        row_id,
        thread_id,
        source: entry.source,
        version: entry.version,
        created_at,
        updated_at: entry.updated_at.micros(),
        text: &entry.text_content,
        metadata: Some(metadata),
        tags: &entry.tags,
        images,
    };
    insert_row(transaction, &row)?;
    let position = EntryPosition {
        owner,
        thread_id,
        created_at,
        row_id,
    };
    let context = if thread.last_id == entry.id {
        let before = newest_before.and_then(|id| transaction.owner.row_id(id));
        transaction.context_windows.of_new(
            transaction.conn,
            &position,
            entry.source,
            before,
            |windows| windows.keywords(&entry.text_content),
        )?
    } else {
        transaction.schedule_following(&position)?;
        transaction
            .context_windows
            .of_old(transaction.conn, &position, entry.source)?
    };
    transaction.full_text(FullTextChange::Insert {
        owner,
        row_id,
        text: Indexable::plain(&entry.text_content),
        context,
        thread_id: thread_id.to_owned(),
        source: entry.source,
        content_type: ContentType::of(images.len()),
        tags: entry.tags.clone(),
    });
    transaction.touched.add(thread_id);
    transaction
        .owner
        .count(EntryCounts::of_entry(entry.source, image_count));
    transaction.owner.thread_count += i64::from(is_new);
    transaction.owner.next_id = transaction.owner.next_id.max(entry.id + 1);
    Ok(())
}

/// Updates the images, and the other fields that differ, so that an entry with the same text keeps its vectors and its
/// summary.
fn update(
    transaction: &mut Transaction<'_>,
    stored: &EntryRow,
    new: &New<'_>,
) -> std::result::Result<(), Failure> {
    let entry = new.entry;
    let json = new.metadata.to_json();
    let has_same_tags = entries::parse_tags(&stored.tags).is_ok_and(|tags| tags == entry.tags);
    let image_count = i64::try_from(new.images.len()).unwrap_or(i64::MAX);
    let is_equal = stored.version == entry.version
        && stored.updated_at == entry.updated_at.micros()
        && stored.image_count == image_count
        && stored.text == entry.text_content
        && stored.metadata == json
        && has_same_tags;
    if is_equal {
        return Ok(());
    }
    let update = EntryUpdate {
        id: entry.id,
        text: (stored.text != entry.text_content).then(|| entry.text_content.clone()),
        metadata: (stored.metadata != json).then(|| MetadataChange::Replace(new.metadata.clone())),
        tags: (!has_same_tags).then(|| Tags::from_normalised(entry.tags.clone())),
        images: (stored.image_count > 0 || image_count > 0).then(|| new.images.clone()),
        expected_version: None,
    };
    let indexable = update.text.as_deref().map(Indexable::plain);
    update_entry::update(transaction, &update, indexable.as_ref(), &Embedding::Later)?;
    let seal = EntrySeal::of(entry.version, &entry.text_content, &json).to_bytes(entry.id);
    statement::execute(
        transaction.conn,
        "UPDATE entries SET version = ?, updated_at = ?, seal = ? WHERE row_id = ?",
        &[
            Value::Int(entry.version),
            Value::Int(entry.updated_at.micros()),
            Value::Blob(&seal),
            Value::Int(new.row_id),
        ],
    )?;
    Ok(())
}
