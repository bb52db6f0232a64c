//! Updating entries.

use context_model::{EntryUpdate, Error};
use context_store::rules::entry::{self, tag_changes};
use context_store::{ChangeKind, ContextWindow, ItemOutcome, StoredBatch};

use crate::batch::Outcomes;
use crate::context_window::{self, EntryPositions};
use crate::entries;
use crate::filter::folded_json;
use crate::fts::{Document, Language, words};
use crate::images;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::tags;
use crate::transaction::{Transaction, Writing};

/// Updates to apply in order.
pub(crate) struct UpdateEntries {
    updates: Vec<Prepared>,
    atomic: bool,
    context_window: ContextWindow,
}

/// An update and its search document, prepared before the transaction begins.
struct Prepared {
    update: EntryUpdate,
    document: Option<Document>,
}

impl UpdateEntries {
    /// Analyzes the texts. Takes time linear in them.
    pub fn new(
        updates: Vec<EntryUpdate>,
        atomic: bool,
        language: &Language,
        context_window: ContextWindow,
    ) -> Self {
        let prepare = |update: EntryUpdate| Prepared {
            document: update
                .text
                .as_deref()
                .map(|text| Document::new(text, language)),
            update,
        };
        Self {
            updates: updates.into_iter().map(prepare).collect(),
            atomic,
            context_window,
        }
    }
}

impl Writing for UpdateEntries {
    type Outcome = StoredBatch;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<StoredBatch, Failure> {
        // An entry never moves to another thread, so the threads read here stay correct.
        let ids = self.updates.iter().map(|prepared| prepared.update.id);
        transaction.lock_threads_of(ids.collect()).await?;
        let mut outcomes = Outcomes::new(self.atomic, self.updates.len());
        for (prepared, index) in self.updates.iter().zip(0..) {
            let outcome = update(transaction, prepared, self.context_window).await;
            if let (Ok(_), Some(vectors), Some(_)) =
                (&outcome, &mut transaction.vectors, &prepared.document)
            {
                vectors.replace(prepared.update.id, transaction.embeddings.get(index));
            }
            outcomes.add(outcome)?;
        }
        Ok(outcomes.finish())
    }
}

/// Applies the update. Every check that can reject it comes before the first write.
async fn update(
    transaction: &mut Transaction<'_>,
    prepared: &Prepared,
    context_window: ContextWindow,
) -> Result<ItemOutcome, Failure> {
    let Prepared { update, document } = prepared;
    let EntryUpdate {
        id,
        text,
        metadata: _,
        tags: new_tags,
        images: new_images,
        expected_version: _,
    } = update;
    let (id, owner) = (*id, transaction.owner);
    let Some(stored) = entries::find(transaction.conn, owner, id).await? else {
        return Err(Error::context_not_found(id).into());
    };
    if transaction.thread(&stored.thread_id).is_none() {
        // The entry was stored after the threads were read, so no caller can have known its id.
        return Err(Error::context_not_found(id).into());
    }
    let before = entry::Stored {
        content: stored.content(),
        updated_at: stored.updated_at,
        image_count: stored.image_count,
    };
    let merged = entry::merge(update, &before, transaction.now)?;
    // Raw SQL for the casts to tsvector and JSON. One text serves every update: a field that is not given keeps its
    // value.
    const SQL: &str = concat!(
        "UPDATE context.entries SET version = ?, updated_at = ?, image_count = ?, seal = ?, \
         summary = CASE WHEN ? THEN '' ELSE summary END, text = coalesce(?, text), words = coalesce(",
        words!(),
        ", words), words_cut = coalesce(?, words_cut), metadata = coalesce(?::json, metadata), \
         metadata_folded = coalesce(?::jsonb, metadata_folded), tags = coalesce(?, tags) WHERE owner_id = ? AND id = ?"
    );
    let (document_binds, cut) = match document {
        Some(document) => (document.binds(), Some(document.cut)),
        None => (Document::no_binds(), None),
    };
    let mut binds = vec![
        Bind::Int(merged.version),
        Bind::Int(merged.updated_at),
        Bind::Int(merged.image_count),
        Bind::Bytes(&merged.seal),
        Bind::Bool(text.is_some()),
        Bind::OptionalText(text.as_deref().map(Into::into)),
    ];
    binds.extend(document_binds);
    let metadata = merged.metadata.as_ref();
    let json = metadata.map(|(_, json)| json.into());
    let folded = metadata.map(|(metadata, _)| folded_json(metadata.as_object()).into());
    let tags = new_tags.as_ref().map(|tags| {
        let tags = tags.as_slice().iter();
        tags.map(|tag| tag.as_str().into()).collect()
    });
    binds.extend([
        Bind::OptionalBool(cut),
        Bind::OptionalText(json),
        Bind::OptionalText(folded),
        Bind::OptionalList(tags),
        Bind::text(owner.as_str()),
        Bind::Int(id),
    ]);
    sql::execute(transaction.conn, Fragment::prepared(SQL, binds)).await?;
    if document.is_some() {
        let positions = EntryPositions {
            threads: vec![stored.thread_id.clone()],
            created_at: vec![stored.created_at],
            ids: vec![id],
        };
        context_window::rebuild_after(transaction.conn, owner, &positions, context_window).await?;
    }
    if let Some(tags) = new_tags {
        let (gone, new) = tag_changes(&stored.tags, tags.as_slice());
        let gone: Vec<(i64, String)> = gone.into_iter().map(|tag| (id, tag.clone())).collect();
        tags::remove(transaction.conn, owner, &gone).await?;
        tags::add(transaction.conn, owner, id, &new).await?;
    }
    if let Some(given) = new_images {
        images::delete(transaction.conn, owner, &[id]).await?;
        images::insert(transaction.conn, owner, id, given).await?;
    }
    transaction.counts += merged.counts;
    if let Some(thread) = transaction.thread(&stored.thread_id) {
        thread.count(merged.counts);
        if let Some(text) = text {
            thread.text_changed(id, text);
        }
    }
    let (thread_id, version) = (&stored.thread_id, merged.version);
    transaction.changed_entry(ChangeKind::Update, id, thread_id, stored.source.0, version);
    Ok(ItemOutcome {
        id,
        version: merged.version,
        duplicate: false,
    })
}
