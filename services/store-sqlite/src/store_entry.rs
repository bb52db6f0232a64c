//! Storing one entry.

use context_model::{ContentType, Metadata, NewEntry, NewImage, Source};
use context_store::rules::counts::EntryCounts;
use context_store::rules::retransmit;
use context_store::rules::thread::{NewestEntry, ThreadState, text_hash};
use context_store::seal::EntrySeal;
use context_store::{ChangeKind, Embedding, ItemOutcome};
use diesel::prelude::*;

use crate::context_window::EntryPosition;
use crate::entries::{self, tags_json};
use crate::failure::Failure;
use crate::full_text::FullTextChange;
use crate::images;
use crate::indexable::Indexable;
use crate::schema::entries as table;
use crate::tags;
use crate::threads;
use crate::transaction::Transaction;
use crate::vectors;

/// Stores the entry, or detects that it repeats the thread's newest one. `keywords` are the context keywords of its
/// text.
pub(crate) fn store(
    transaction: &mut Transaction<'_>,
    entry: &NewEntry,
    indexable: &Indexable,
    keywords: &str,
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
    let found = threads::find(transaction.conn, owner, thread_id)?;
    let is_new = found.is_none();
    let mut thread = found.unwrap_or_else(|| ThreadState::empty(thread_id));
    if let Some(id) = thread.may_be_repeated_by(*source, hash)
        && let Some(version) = repeats(transaction, id, entry)?
    {
        return Ok(ItemOutcome {
            id,
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
    let created_at = thread.created_at(transaction.now, id);
    let image_count = i64::try_from(given_images.len()).unwrap_or(i64::MAX);
    let before = match is_new {
        true => None,
        false => transaction.owner.row_id(thread.last_id),
    };
    thread.add(&NewestEntry {
        id,
        source: *source,
        image_count,
        created_at,
        hash,
    });
    if is_new {
        threads::insert(transaction.conn, owner, &thread)?;
    } else {
        threads::update(transaction.conn, owner, &thread)?;
    }
    let row = NewRow {
        id,
        row_id,
        thread_id,
        source: *source,
        version: 1,
        created_at,
        updated_at: created_at,
        text,
        metadata: metadata.as_ref(),
        tags: given_tags,
        images: given_images,
    };
    insert_row(transaction, &row)?;
    vectors::insert(transaction, row_id, embedding)?;
    let position = EntryPosition {
        owner,
        thread_id,
        created_at,
        row_id,
    };
    let context =
        transaction
            .context_windows
            .of_new(transaction.conn, &position, *source, before, |_| {
                keywords.to_owned()
            })?;
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
    transaction.changed_entry(ChangeKind::Create, id, thread_id, *source, 1)?;
    transaction
        .owner
        .count(EntryCounts::of_entry(*source, image_count));
    transaction.owner.thread_count += i64::from(is_new);
    Ok(ItemOutcome {
        id,
        version: 1,
        duplicate: false,
    })
}

/// An entry to insert.
pub(crate) struct NewRow<'e> {
    pub id: i64,
    pub row_id: i64,
    pub thread_id: &'e str,
    pub source: Source,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub text: &'e str,
    pub metadata: Option<&'e Metadata>,
    pub tags: &'e [String],
    pub images: &'e [NewImage],
}

/// Inserts an entry's row, its tags and its images.
pub(crate) fn insert_row(transaction: &mut Transaction<'_>, row: &NewRow<'_>) -> QueryResult<()> {
    let owner = transaction.owner.owner;
    let (json, folded) = row.metadata.map_or_else(
        || ("{}".to_owned(), "{}".to_owned()),
        |metadata| (metadata.to_json(), metadata.to_folded_json()),
    );
    let seal = EntrySeal::of(row.version, row.text, &json).to_bytes(row.id);
    diesel::insert_into(table::table)
        .values((
            table::row_id.eq(row.row_id),
            table::owner.eq(owner),
            table::id.eq(row.id),
            table::thread_id.eq(row.thread_id),
            table::source.eq(row.source.as_str()),
            table::image_count.eq(i64::try_from(row.images.len()).unwrap_or(i64::MAX)),
            table::version.eq(row.version),
            table::created_at.eq(row.created_at),
            table::updated_at.eq(row.updated_at),
            table::tags.eq(tags_json(row.tags)),
            table::summary.eq(""),
            table::metadata.eq(json),
            table::metadata_folded.eq(folded),
            table::text.eq(row.text),
            table::seal.eq(&seal[..]),
        ))
        .execute(transaction.conn)?;
    tags::add(transaction, row.row_id, row.tags)?;
    images::insert(transaction.conn, owner, row.row_id, row.images)
}

/// The version of the thread's newest entry if `entry` repeats it. Source and hash are known to be equal.
fn repeats(
    transaction: &mut Transaction<'_>,
    newest: i64,
    entry: &NewEntry,
) -> Result<Option<i64>, Failure> {
    let Some(row_id) = transaction.owner.row_id(newest) else {
        return Ok(None);
    };
    let Some(stored) = entries::find(transaction.conn, row_id)? else {
        return Ok(None);
    };
    let Ok(tags) = entries::parse_tags(&stored.tags) else {
        return Ok(None);
    };
    let content = retransmit::Stored {
        text: &stored.text,
        tags: &tags,
        metadata: &stored.metadata,
    };
    if !retransmit::repeats(entry, &content) {
        return Ok(None);
    }
    if let Some(given) = &entry.images {
        let images = images::of_entry(transaction.conn, transaction.owner.owner, row_id)
            .map_err(Failure::Rejected)?;
        if !retransmit::repeats_images(given, &images) {
            return Ok(None);
        }
    }
    Ok(Some(stored.version))
}
