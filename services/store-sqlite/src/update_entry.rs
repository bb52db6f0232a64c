//! Updates one entry: its row, tags, images, vectors, the counts of its thread and the full-text index.

use context_model::{ContentType, EntryUpdate, Error};
use context_store::rules::entry::{self, Merged, tag_changes};
use context_store::{ChangeKind, Embedding, ItemOutcome};
use diesel::prelude::*;

use crate::context_window::EntryPosition;
use crate::entries::{self, EntryRow, parse_source, tags_json, tags_of};
use crate::failure::Failure;
use crate::full_text::FullTextChange;
use crate::images;
use crate::indexable::Indexable;
use crate::schema::entries as table;
use crate::tags;
use crate::threads;
use crate::transaction::Transaction;
use crate::vectors;

/// Applies the update. Everything that can reject it comes before the first write.
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
        metadata: _,
        tags: new_tags,
        images: new_images,
        expected_version: _,
    } = update;
    let (id, owner) = (*id, transaction.owner.owner);
    let row_id = transaction
        .owner
        .row_id(id)
        .ok_or_else(|| Error::context_not_found(id))?;
    let Some(stored) = entries::find(transaction.conn, row_id)? else {
        return Err(Error::context_not_found(id).into());
    };
    let before = entry::Stored {
        content: stored.content(),
        updated_at: stored.updated_at,
        image_count: stored.image_count,
    };
    let merged = entry::merge(update, &before, transaction.now)?;
    let source = parse_source(&stored.source)?;
    let old_tags = tags_of(transaction.conn, owner, row_id, &stored.tags)?;

    let tags_now = match new_tags {
        None => old_tags,
        Some(tags) => {
            let (gone, new) = tag_changes(&old_tags, tags.as_slice());
            tags::remove(transaction, row_id, gone)?;
            tags::add(transaction, row_id, new)?;
            tags.as_slice().to_vec()
        }
    };
    if let Some(given) = new_images {
        images::delete(transaction.conn, owner, row_id)?;
        images::insert(transaction.conn, owner, row_id, given)?;
    }
    write(
        transaction,
        row_id,
        &stored,
        &merged,
        text.as_deref(),
        &tags_now,
    )?;
    if text.is_some() {
        vectors::replace(transaction, row_id, embedding)?;
    }
    transaction.owner.count(merged.counts);
    update_thread(transaction, &stored, id, text.as_deref(), &merged)?;
    if text.is_some() || new_tags.is_some() || merged.counts.multimodal != 0 {
        let position = EntryPosition {
            owner,
            thread_id: &stored.thread_id,
            created_at: stored.created_at,
            row_id,
        };
        let context = transaction
            .context_windows
            .of_old(transaction.conn, &position, source)?;
        if text.is_some() {
            transaction.schedule_following(&position)?;
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
            content_type: ContentType::of(usize::from(merged.image_count > 0)),
            tags: tags_now,
        });
    }
    let (thread_id, version) = (&stored.thread_id, merged.version);
    transaction.changed_entry(ChangeKind::Update, id, thread_id, source, version)?;
    Ok(ItemOutcome {
        id,
        version: merged.version,
        duplicate: false,
    })
}

/// Writes the entry's row.
fn write(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    stored: &EntryRow,
    merged: &Merged,
    text: Option<&str>,
    tags: &[String],
) -> QueryResult<()> {
    // A summary belongs to its text, so a new text has none.
    let summary = match text {
        Some(_) => "",
        None => stored.summary.as_str(),
    };
    // One statement for all cases, because SQLite writes the whole row anyway. Metadata is separate because of its
    // indexes.
    diesel::update(table::table.find(row_id))
        .set((
            table::version.eq(merged.version),
            table::updated_at.eq(merged.updated_at),
            table::text.eq(text.unwrap_or(&stored.text)),
            table::tags.eq(tags_json(tags)),
            table::image_count.eq(merged.image_count),
            table::summary.eq(summary),
            table::seal.eq(&merged.seal[..]),
        ))
        .execute(transaction.conn)?;
    if let Some((metadata, json)) = &merged.metadata {
        diesel::update(table::table.find(row_id))
            .set((
                table::metadata.eq(json),
                table::metadata_folded.eq(metadata.to_folded_json()),
            ))
            .execute(transaction.conn)?;
    }
    Ok(())
}

fn update_thread(
    transaction: &mut Transaction<'_>,
    stored: &EntryRow,
    id: i64,
    text: Option<&str>,
    merged: &Merged,
) -> QueryResult<()> {
    if merged.counts.multimodal == 0 && text.is_none() {
        return Ok(());
    }
    let owner = transaction.owner.owner;
    let Some(mut thread) = threads::find(transaction.conn, owner, &stored.thread_id)? else {
        return Ok(());
    };
    thread.count(merged.counts);
    if let Some(text) = text {
        thread.text_changed(id, text);
    }
    threads::update(transaction.conn, owner, &thread)
}
