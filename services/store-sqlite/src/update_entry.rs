//! Updating one entry.

use context_model::{ContentType, EntryUpdate, Error, Metadata, MetadataChange, NewImage};
use context_store::seal::{self, Checked, EntrySeal, Part};
use context_store::{Embedding, ItemOutcome};
use diesel::prelude::*;

use crate::entries::{self, EntryRow, parse_metadata, parse_source, parse_tags, tags_json};
use crate::failure::Failure;
use crate::full_text::FullTextChange;
use crate::images;
use crate::indexable::Indexable;
use crate::neighbours::Place;
use crate::schema::entries as table;
use crate::tags;
use crate::threads::{self, text_hash};
use crate::transaction::{ChangeKind, Transaction};
use crate::vectors;

/// Applies the update. Everything that can refuse it comes before the first write.
///
/// `indexable` is the new text, if there is one.
pub(crate) fn update(
    transaction: &mut Transaction<'_>,
    update: &EntryUpdate,
    indexable: Option<&Indexable>,
    embedding: &Embedding,
) -> Result<ItemOutcome, Failure> {
    let EntryUpdate {
        id,
        text,
        metadata,
        tags: new_tags,
        images: new_images,
        expected_version,
    } = update;
    let id = *id;
    let row_id = transaction
        .owner
        .row_id(id)
        .ok_or_else(|| Error::context_not_found(id))?;
    let Some(stored) = entries::find(transaction.conn, row_id)? else {
        return Err(Error::context_not_found(id).into());
    };
    if let Some(expected) = *expected_version
        && expected != stored.version
    {
        return Err(Error::version_mismatch(id, expected, stored.version).into());
    }
    let metadata = match metadata {
        None => None,
        Some(MetadataChange::Replace(metadata)) => Some(metadata.clone()),
        Some(MetadataChange::Patch(patch)) => {
            if let Checked::Damaged(part @ (Part::Metadata | Part::Checksum)) =
                seal::check_entry(&stored.content(), false)
            {
                return Err(seal::refuse_context(id, part).into());
            }
            let before =
                Metadata::from_stored(parse_metadata(&stored.metadata).map_err(Failure::Rejected)?);
            Some(before.patched(patch)?)
        }
    };
    let source = parse_source(&stored.source).map_err(Failure::Rejected)?;
    let old_tags = parse_tags(&stored.tags).map_err(Failure::Rejected)?;

    let version = stored.version + 1;
    // A clock that stands still or steps back must not hide an update.
    let updated_at = transaction.now.micros().max(stored.updated_at + 1);
    let tags_now = match new_tags {
        None => old_tags,
        Some(tags) => {
            let tags = tags.as_slice();
            tags::remove(
                transaction,
                row_id,
                old_tags
                    .iter()
                    .filter(|tag| tags.binary_search(tag).is_err()),
            )?;
            tags::add(
                transaction,
                row_id,
                tags.iter()
                    .filter(|tag| old_tags.binary_search(tag).is_err()),
            )?;
            tags.to_vec()
        }
    };
    let image_count = match new_images {
        None => stored.image_count,
        Some(given) => replace_images(transaction, row_id, &stored, given)?,
    };
    let metadata_json = metadata.as_ref().map(Metadata::to_json);
    let seal =
        EntrySeal::next(&stored.content(), text.as_deref(), metadata_json.as_deref()).to_bytes(id);
    // One statement whatever is given: SQLite writes the whole row anyway. Metadata apart, for the sake of its indexes.
    diesel::update(table::table.find(row_id))
        .set((
            table::version.eq(version),
            table::updated_at.eq(updated_at),
            table::text.eq(text.as_deref().unwrap_or(&stored.text)),
            table::tags.eq(tags_json(&tags_now)),
            table::image_count.eq(image_count),
            // Of another text.
            table::summary.eq(if text.is_some() {
                ""
            } else {
                stored.summary.as_str()
            }),
            table::seal.eq(&seal[..]),
        ))
        .execute(transaction.conn)?;
    if let (Some(metadata), Some(json)) = (metadata, metadata_json) {
        diesel::update(table::table.find(row_id))
            .set((
                table::metadata.eq(json),
                table::metadata_folded.eq(metadata.to_folded_json()),
            ))
            .execute(transaction.conn)?;
    }
    if text.is_some() {
        vectors::replace(transaction, row_id, embedding)?;
    }
    let multimodal_change = i64::from(image_count > 0) - i64::from(stored.image_count > 0);
    update_thread(transaction, &stored, id, text.as_deref(), multimodal_change)?;
    if text.is_some() || new_tags.is_some() || multimodal_change != 0 {
        let owner = transaction.owner.owner;
        let place = Place {
            owner,
            thread_id: &stored.thread_id,
            created_at: stored.created_at,
            row_id,
        };
        let context = transaction.neighbours.of_old(transaction.conn, &place)?;
        if text.is_some() {
            transaction.neighbour_changed(&place)?;
        }
        transaction.full_text(FullTextChange::Delete { owner, row_id });
        transaction.full_text(FullTextChange::Insert {
            owner,
            row_id,
            context,
            text: indexable
                .cloned()
                .unwrap_or_else(|| Indexable::plain(text.as_deref().unwrap_or(&stored.text))),
            thread_id: stored.thread_id.clone(),
            source,
            content_type: ContentType::of(usize::from(image_count > 0)),
            tags: tags_now,
        });
    }
    transaction.changed(ChangeKind::Update, id, &stored.thread_id, version)?;
    Ok(ItemOutcome {
        id,
        version,
        duplicate: false,
    })
}

fn replace_images(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    stored: &EntryRow,
    given: &[NewImage],
) -> Result<i64, Failure> {
    let count = i64::try_from(given.len()).unwrap_or(i64::MAX);
    let owner = transaction.owner.owner;
    images::delete(transaction.conn, owner, row_id)?;
    images::insert(transaction.conn, owner, row_id, given)?;
    transaction.owner.image_count += count - stored.image_count;
    Ok(count)
}

/// Keeps the thread's count of entries with images, and what recognises a retransmit of its newest entry.
fn update_thread(
    transaction: &mut Transaction<'_>,
    stored: &EntryRow,
    id: i64,
    text: Option<&str>,
    multimodal_change: i64,
) -> Result<(), Failure> {
    let owner = transaction.owner.owner;
    transaction.owner.multimodal_count += multimodal_change;
    if multimodal_change == 0 && text.is_none() {
        return Ok(());
    }
    let Some(mut thread) = threads::find(transaction.conn, owner, &stored.thread_id)? else {
        return Ok(());
    };
    thread.multimodal_count += multimodal_change;
    if let Some(text) = text
        && thread.last_id == id
    {
        thread.last_hash = text_hash(text);
    }
    thread.update(transaction.conn)?;
    Ok(())
}
