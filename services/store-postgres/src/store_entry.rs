//! Storing entries.

use context_model::NewEntry;
use context_store::rules::counts::EntryCounts;
use context_store::rules::retransmit;
use context_store::rules::thread::{NewestEntry, text_hash};
use context_store::seal::EntrySeal;
use context_store::{ChangeKind, ContextWindow, ItemOutcome, StoredBatch};

use crate::batch::Outcomes;
use crate::context_window::{EntryPosition, context_of_position};
use crate::entries;
use crate::filter::folded_json;
use crate::fts::{Document, Language, words};
use crate::images;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

/// Entries to store in order.
pub(crate) struct StoreEntries {
    entries: Vec<Prepared>,
    atomic: bool,
    context_window: ContextWindow,
}

/// An entry and its search document, prepared before the transaction begins.
struct Prepared {
    entry: NewEntry,
    hash: i64,
    document: Document,
    metadata: String,
    metadata_folded: String,
}

impl StoreEntries {
    /// Analyzes the texts. Takes time linear in them.
    pub fn new(
        entries: Vec<NewEntry>,
        atomic: bool,
        language: &Language,
        context_window: ContextWindow,
    ) -> Self {
        let prepare = |entry: NewEntry| {
            let (metadata, metadata_folded) = match &entry.metadata {
                None => ("{}".to_owned(), "{}".to_owned()),
                Some(metadata) => (metadata.to_json(), folded_json(metadata.as_object())),
            };
            Prepared {
                hash: text_hash(&entry.text),
                document: Document::new(&entry.text, language),
                entry,
                metadata,
                metadata_folded,
            }
        };
        Self {
            entries: entries.into_iter().map(prepare).collect(),
            atomic,
            context_window,
        }
    }
}

impl Writing for StoreEntries {
    type Outcome = StoredBatch;

    fn new_ids(&self) -> usize {
        self.entries.len()
    }

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<StoredBatch, Failure> {
        let threads = self
            .entries
            .iter()
            .map(|prepared| prepared.entry.thread_id.as_str().to_owned())
            .collect();
        transaction.lock_or_create_threads(threads).await?;
        let mut outcomes = Outcomes::new(self.atomic, self.entries.len());
        for (prepared, index) in self.entries.iter().zip(0..) {
            let outcome = store(transaction, prepared, self.context_window).await;
            if let (
                Ok(ItemOutcome {
                    id,
                    version: _,
                    duplicate: false,
                }),
                Some(vectors),
            ) = (&outcome, &mut transaction.vectors)
            {
                vectors.add(*id, transaction.embeddings.get(index));
            }
            outcomes.add(outcome)?;
        }
        Ok(outcomes.finish())
    }
}

/// Stores the entry, or finds that it repeats the thread's newest entry.
async fn store(
    transaction: &mut Transaction<'_>,
    prepared: &Prepared,
    context_window: ContextWindow,
) -> Result<ItemOutcome, Failure> {
    let Prepared {
        entry,
        hash,
        document,
        metadata,
        metadata_folded,
    } = prepared;
    let NewEntry {
        thread_id,
        source,
        text,
        images: given_images,
        metadata: _,
        tags: given_tags,
    } = entry;
    let (thread_id, now) = (thread_id.as_str(), transaction.now);
    let newest = transaction
        .thread(thread_id)
        .and_then(|thread| thread.may_be_repeated_by(*source, *hash));
    if let Some(id) = newest
        && let Some(version) = repeats(transaction, id, entry).await?
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
    let id = transaction.new_id()?;
    let image_count = i64::try_from(given_images.len()).unwrap_or(i64::MAX);
    let created_at = transaction
        .thread(thread_id)
        .map_or(now.micros(), |thread| thread.created_at(now, id));
    if let Some(thread) = transaction.thread(thread_id) {
        thread.add(&NewestEntry {
            id,
            source: *source,
            image_count,
            created_at,
            hash: *hash,
        });
    }

    let owner = transaction.owner;
    // Raw SQL for the CTE and `unnest`: one statement for an entry and its tags.
    const SQL: &str = concat!(
        "WITH tagged AS (INSERT INTO context.entry_tags (owner_id, tag, id) SELECT ?, t.tag, ? FROM unnest(?) AS t(tag)) \
         INSERT INTO context.entries (owner_id, id, thread_id, source, image_count, version, created_at, updated_at, tags, \
         summary, metadata, metadata_folded, words_cut, text, seal, words, context) \
         SELECT ?, ?, ?, ?, ?, 1, ?, ?, ?, '', ?::json, ?::jsonb, ?, ?, ?, ",
        words!(),
        ", ",
        context_of_position!()
    );
    let seal = EntrySeal::of(1, text, metadata).to_bytes(id);
    let mut binds = vec![
        Bind::text(owner.as_str()),
        Bind::Int(id),
        Bind::texts(given_tags),
        Bind::text(owner.as_str()),
        Bind::Int(id),
        Bind::text(thread_id),
        Bind::text(source.as_str()),
        Bind::Int(image_count),
        Bind::Int(created_at),
        Bind::Int(created_at),
        Bind::texts(given_tags),
        Bind::text(metadata),
        Bind::text(metadata_folded),
        Bind::Bool(document.cut),
        Bind::text(text),
        Bind::Bytes(&seal),
    ];
    binds.extend(document.binds());
    let position = EntryPosition {
        owner,
        thread_id,
        source: *source,
        created_at,
        id,
    };
    binds.extend(position.binds(context_window));
    sql::send(transaction.conn, Fragment::prepared(SQL, binds)).await?;
    images::insert(transaction.conn, owner, id, given_images).await?;
    transaction.changed_entry(ChangeKind::Create, id, thread_id, *source, 1);
    transaction.counts += EntryCounts::of_entry(*source, image_count);
    Ok(ItemOutcome {
        id,
        version: 1,
        duplicate: false,
    })
}

/// The version of the thread's newest entry if `entry` repeats it. The caller has already compared source and hash.
async fn repeats(
    transaction: &mut Transaction<'_>,
    newest: i64,
    entry: &NewEntry,
) -> Result<Option<i64>, Failure> {
    let Some(stored) = entries::find(transaction.conn, transaction.owner, newest).await? else {
        return Ok(None);
    };
    let content = retransmit::Stored {
        text: &stored.text.0,
        tags: &stored.tags,
        metadata: &stored.metadata.0,
    };
    if !retransmit::repeats(entry, &content) {
        return Ok(None);
    }
    if let Some(given) = &entry.images {
        let images = images::of_entry(transaction.conn, transaction.owner, newest).await?;
        if !retransmit::repeats_images(given, &images) {
            return Ok(None);
        }
    }
    Ok(Some(stored.version))
}
