//! Updating entries.

use context_model::{EntryUpdate, Error};
use context_store::rules::entry::{self, tag_changes};
use context_store::{ItemOutcome, Neighbourhood, StoredBatch};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::batch::Outcomes;
use crate::entries;
use crate::filter::folded_json;
use crate::fts::{Document, Language};
use crate::images;
use crate::neighbours::{self, Places};
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::schema::entries as table;
use crate::tags;
use crate::transaction::{ChangeKind, Transaction, Writing};

/// Updates to apply in order.
pub(crate) struct UpdateEntries {
    updates: Vec<Prepared>,
    atomic: bool,
    neighbourhood: Neighbourhood,
}

/// An update and the index of its text, made before the transaction opens.
struct Prepared {
    update: EntryUpdate,
    document: Option<Document>,
}

impl UpdateEntries {
    /// Analyzes the texts: takes time linear in them.
    pub fn new(
        updates: Vec<EntryUpdate>,
        atomic: bool,
        language: &Language,
        neighbourhood: Neighbourhood,
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
            neighbourhood,
        }
    }
}

impl Writing for UpdateEntries {
    type Outcome = StoredBatch;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<StoredBatch, Failure> {
        // An entry never moves to another thread, so what is read here stays true.
        let threads = self.threads(transaction).await?;
        transaction.lock_threads(threads).await?;
        let mut outcomes = Outcomes::new(self.atomic, self.updates.len());
        for (prepared, place) in self.updates.iter().zip(0..) {
            let outcome = update(transaction, prepared, self.neighbourhood).await;
            if let (Ok(_), Some(vectors), Some(_)) =
                (&outcome, &mut transaction.vectors, &prepared.document)
            {
                vectors.replace(prepared.update.id, transaction.embeddings.get(place));
            }
            outcomes.add(outcome)?;
        }
        Ok(outcomes.finish())
    }
}

impl UpdateEntries {
    async fn threads(&self, transaction: &mut Transaction<'_>) -> Result<Vec<String>, Failure> {
        let ids: Vec<i64> = self
            .updates
            .iter()
            .map(|prepared| prepared.update.id)
            .collect();
        let threads = table::table
            .filter(table::owner_id.eq(transaction.owner.as_str()))
            .filter(table::id.eq_any(ids))
            .select(table::thread_id)
            .distinct();
        Ok(fixed!(threads).load(transaction.conn).await?)
    }
}

/// Applies the update. Everything that can refuse it comes before the first write.
async fn update(
    transaction: &mut Transaction<'_>,
    prepared: &Prepared,
    neighbourhood: Neighbourhood,
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
        // It was stored after the threads were read: no caller can have known its id.
        return Err(Error::context_not_found(id).into());
    }
    let before = entry::Stored {
        content: stored.content(),
        updated_at: stored.updated_at,
        image_count: stored.image_count,
    };
    let merged = entry::merge(update, &before, transaction.now)?;
    let mut change = Fragment::prepared("UPDATE context.entries SET version = ", Vec::new());
    change
        .bind(Bind::Int(merged.version))
        .push(", updated_at = ")
        .bind(Bind::Int(merged.updated_at));
    change
        .push(", image_count = ")
        .bind(Bind::Int(merged.image_count))
        .push(", seal = ")
        .bind(Bind::Bytes(&merged.seal));
    if let (Some(text), Some(document)) = (text, document) {
        change
            .push(", summary = '', text = ")
            .bind(Bind::text(text))
            .push(", words = ")
            .append(document.expression());
        change.push(", words_cut = ").bind(Bind::Bool(document.cut));
    }
    if let Some((metadata, json)) = &merged.metadata {
        change
            .push(", metadata = ")
            .bind(Bind::text(json))
            .push("::json, metadata_folded = ");
        change
            .bind(Bind::text(folded_json(metadata.as_object())))
            .push("::jsonb");
    }
    if let Some(tags) = new_tags {
        change.push(", tags = ").bind(Bind::texts(tags.as_slice()));
    }
    change
        .push(" WHERE owner_id = ")
        .bind(Bind::text(owner.as_str()))
        .push(" AND id = ")
        .bind(Bind::Int(id));
    sql::execute(transaction.conn, change).await?;
    if document.is_some() {
        let place = Places {
            threads: vec![stored.thread_id.clone()],
            created_at: vec![stored.created_at],
            ids: vec![id],
        };
        neighbours::renew_after(transaction.conn, owner, &place, None, neighbourhood).await?;
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
    transaction.changed(ChangeKind::Update, id, &stored.thread_id, merged.version);
    Ok(ItemOutcome {
        id,
        version: merged.version,
        duplicate: false,
    })
}
