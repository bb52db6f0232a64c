//! Storing one entry, and the rule that collapses retransmits.

use context_model::{ContentType, NewEntry};
use context_store::seal::EntrySeal;
use context_store::{Embedding, ItemOutcome, clock};
use diesel::prelude::*;

use crate::entries::{self, tags_json};
use crate::failure::Failure;
use crate::full_text::FullTextChange;
use crate::images;
use crate::indexable::Indexable;
use crate::neighbours::Place;
use crate::schema::entries as table;
use crate::tags;
use crate::threads::{self, Newest, ThreadRow, text_hash};
use crate::transaction::{ChangeKind, Transaction};
use crate::vectors;

/// Stores the entry, or finds that it repeats the thread's newest one. `gist` is what its text contributes to those after it.
pub(crate) fn store(
    transaction: &mut Transaction<'_>,
    entry: &NewEntry,
    indexable: &Indexable,
    gist: &str,
    embedding: &Embedding,
) -> Result<ItemOutcome, Failure> {
    let NewEntry {
        thread_id,
        source,
        text,
        images: given_images,
        metadata,
        tags: given_tags,
    } = entry;
    let (owner, thread_id) = (transaction.owner.owner, thread_id.as_str());
    let hash = text_hash(text);
    let thread = threads::find(transaction.conn, owner, thread_id)?;
    if let Some(thread) = &thread
        && thread.last_source == source.as_str()
        && thread.last_hash == hash
        && let Some(version) = repeats(transaction, thread.last_id, entry)?
    {
        return Ok(ItemOutcome {
            id: thread.last_id,
            version,
            duplicate: true,
        });
    }

    let given_images = given_images.as_deref().unwrap_or_default();
    let given_tags = given_tags
        .as_ref()
        .map(context_model::Tags::as_slice)
        .unwrap_or_default();
    let (id, row_id) = transaction.new_row_id().map_err(Failure::Rejected)?;
    let created_at = clock::created_at(
        transaction.now,
        thread.as_ref().map_or(i64::MIN, |thread| thread.last_entry),
    );
    let multimodal = !given_images.is_empty();
    let image_count = i64::try_from(given_images.len()).unwrap_or(i64::MAX);
    let (json, folded) = metadata.as_ref().map_or_else(
        || ("{}".to_owned(), "{}".to_owned()),
        |metadata| (metadata.to_json(), metadata.to_folded_json()),
    );

    let seal = EntrySeal::of(1, text, &json).to_bytes(id);
    let is_new = thread.is_none();
    let before = thread
        .as_ref()
        .and_then(|thread| transaction.owner.row_id(thread.last_id));
    let newest = Newest {
        id,
        source: *source,
        multimodal,
        created_at,
        hash,
    };
    let thread = ThreadRow::with_newest(thread, owner, thread_id, &newest);
    if is_new {
        thread.insert(transaction.conn)?;
    } else {
        thread.update(transaction.conn)?;
    }
    diesel::insert_into(table::table)
        .values((
            table::row_id.eq(row_id),
            table::owner.eq(owner),
            table::id.eq(id),
            table::thread_id.eq(thread_id),
            table::source.eq(source.as_str()),
            table::image_count.eq(image_count),
            table::version.eq(1),
            table::created_at.eq(created_at),
            table::updated_at.eq(created_at),
            table::tags.eq(tags_json(given_tags)),
            table::summary.eq(""),
            table::metadata.eq(json),
            table::metadata_folded.eq(folded),
            table::text.eq(text),
            table::seal.eq(&seal[..]),
        ))
        .execute(transaction.conn)?;
    tags::add(transaction, row_id, given_tags)?;
    images::insert(transaction.conn, owner, row_id, given_images)?;
    vectors::insert(transaction, row_id, embedding)?;
    let place = Place {
        owner,
        thread_id,
        created_at,
        row_id,
    };
    let context = transaction
        .neighbours
        .of_new(transaction.conn, &place, before, |_| gist.to_owned())?;
    transaction.full_text(FullTextChange::Insert {
        owner,
        row_id,
        text: indexable.clone(),
        context,
        thread_id: thread_id.to_owned(),
        source: *source,
        content_type: ContentType::of(given_images.len()),
        tags: given_tags.to_vec(),
    });
    transaction.changed(ChangeKind::Create, id, thread_id, 1)?;

    let counts = &mut transaction.owner;
    counts.entry_count += 1;
    match source {
        context_model::Source::User => counts.user_count += 1,
        context_model::Source::Agent => counts.agent_count += 1,
    }
    counts.multimodal_count += i64::from(multimodal);
    counts.image_count += image_count;
    counts.thread_count += i64::from(is_new);
    Ok(ItemOutcome {
        id,
        version: 1,
        duplicate: false,
    })
}

/// The version of the thread's newest entry when `entry` repeats it: the same text, and everything else that is given
/// equals what is stored. That source and hash are the same is known.
fn repeats(
    transaction: &mut Transaction<'_>,
    last_id: i64,
    entry: &NewEntry,
) -> Result<Option<i64>, Failure> {
    let NewEntry {
        thread_id: _,
        source: _,
        text,
        images: given_images,
        metadata,
        tags,
    } = entry;
    let Some(row_id) = transaction.owner.row_id(last_id) else {
        return Ok(None);
    };
    let Some(stored) = entries::find(transaction.conn, row_id)? else {
        return Ok(None);
    };
    if stored.text != *text {
        return Ok(None);
    }
    if let Some(tags) = tags
        && entries::parse_tags(&stored.tags).map_err(Failure::Rejected)? != tags.as_slice()
    {
        return Ok(None);
    }
    if let Some(metadata) = metadata
        && entries::parse_metadata(&stored.metadata).map_err(Failure::Rejected)?
            != *metadata.as_object()
    {
        return Ok(None);
    }
    if let Some(given) = given_images
        && !images::same(transaction.conn, transaction.owner.owner, row_id, given)
            .map_err(Failure::Rejected)?
    {
        return Ok(None);
    }
    Ok(Some(stored.version))
}
