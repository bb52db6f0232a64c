//! Storing, updating and fetching entries.

use context_model::{
    BatchReply, BatchResult, Entry, EntryUpdate, Error, GetContextByIdsReply,
    GetContextByIdsRequest, Limits, Metadata, MetadataChange, NewEntry, Operation, Result,
    StoreContextBatchRequest, StoreContextReply, StoreContextRequest, UpdateContextBatchRequest,
    UpdateContextReply, UpdateContextRequest, Violations,
};
use context_store::{ItemOutcome, RowSelection, StoredBatch, StoredEntry, Usage, Written, seal};

use crate::embed::Embeddings;
use crate::quota::Admitted;
use crate::{Caller, Engine, WriteContext, quota, validate};

impl Engine {
    /// Stores one entry. A repetition of the thread's newest entry makes no second one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `SCOPE_MISSING` without `write`; the store's errors.
    pub async fn store_context(
        &self,
        caller: &Caller,
        request: StoreContextRequest,
        write: WriteContext,
    ) -> Result<StoreContextReply> {
        caller.require(Operation::StoreContext)?;
        let mut options = self.write_options(caller, "store_context", &request, &write)?;
        let entry = validate::entry(request, &self.config.limits, &mut 0)?;
        caller.require_thread(&entry.thread_id)?;
        let admitted = self.admit(caller, &options, 1, of_entry(&entry)).await?;
        let wants_summary = self.wants_summary(&entry.text);
        let Embeddings { items, pending } = self
            .embed_new(admitted, || vec![Some(entry.text.clone())])
            .await?;
        options.embeddings = items;
        let thread_id = entry.thread_id.as_str().to_owned();
        let written = self
            .store
            .store_contexts(&caller.owner, vec![entry], true, options)
            .await
            .map_err(one_item)?;
        let (
            ItemOutcome {
                id,
                version,
                duplicate,
            },
            revision,
        ) = single(written)?;
        if wants_summary && !duplicate {
            self.awaits_summary(caller, id);
        }
        let message = if duplicate {
            format!(
                "Context {id} is the thread's newest entry and says the same; no second one was stored"
            )
        } else {
            self.stored_message(format!("Stored context {id}"), pending)
        };
        Ok(StoreContextReply {
            success: true,
            context_id: id,
            thread_id,
            message,
            version,
            revision,
            duplicate,
        })
    }

    /// Stores up to 100 entries in one transaction.
    ///
    /// # Errors
    /// As [`store_context`](Self::store_context); with `atomic` the first bad item is the error, named by its index.
    pub async fn store_context_batch(
        &self,
        caller: &Caller,
        request: StoreContextBatchRequest,
        write: WriteContext,
    ) -> Result<BatchReply> {
        caller.require(Operation::StoreContextBatch)?;
        let mut options = self.write_options(caller, "store_context_batch", &request, &write)?;
        let StoreContextBatchRequest { entries, atomic } = request;
        let atomic = atomic.unwrap_or(true);
        batch_size(entries.len(), "entries")?;
        let mut total = 0;
        let entries = entries.into_iter().map(|entry| {
            let entry = validate::entry(entry, &self.config.limits, &mut total)?;
            caller.require_thread(&entry.thread_id)?;
            Ok(entry)
        });
        let Checked { items, failed } = Checked::new(entries, atomic, "entries")?;
        let usage = items.iter().map(of_entry);
        let bytes = usage.fold(0_u64, |sum, usage| sum.saturating_add(usage.bytes));
        let admitted = self
            .admit(
                caller,
                &options,
                items.len(),
                Usage {
                    entries: items.len() as u64,
                    artifacts: 0,
                    bytes,
                },
            )
            .await?;
        let want_summaries: Vec<bool> = items
            .iter()
            .map(|entry| self.wants_summary(&entry.text))
            .collect();
        let embeddings = self
            .embed_new(admitted, || {
                items.iter().map(|entry| Some(entry.text.clone())).collect()
            })
            .await?;
        options.embeddings = embeddings.items;
        let written = if items.is_empty() {
            self.nothing_written(caller).await?
        } else {
            self.store
                .store_contexts(&caller.owner, items, atomic, options)
                .await
                .map_err(|e| e.into_error("entries"))?
        };
        self.await_summaries(caller, &want_summaries, &written.outcome);
        let mut reply = batch_reply(written, failed, "Stored", |_| None, |_| None);
        reply.message = self.stored_message(reply.message, embeddings.pending);
        Ok(reply)
    }

    /// Changes one entry.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `CONTEXT_NOT_FOUND`; `VERSION_MISMATCH`; `SCOPE_MISSING` without
    /// `write`; the store's errors.
    pub async fn update_context(
        &self,
        caller: &Caller,
        request: UpdateContextRequest,
        write: WriteContext,
    ) -> Result<UpdateContextReply> {
        caller.require(Operation::UpdateContext)?;
        let mut options = self.write_options(caller, "update_context", &request, &write)?;
        let update = validate::update(request, &self.config.limits, &mut 0)?;
        self.reached(caller, &[update.id]).await?.check(update.id)?;
        let admitted = self
            .admit(
                caller,
                &options,
                1,
                Usage {
                    entries: 0,
                    artifacts: 0,
                    bytes: of_update(&update),
                },
            )
            .await?;
        let wants_summary = update
            .text
            .as_deref()
            .is_some_and(|text| self.wants_summary(text));
        let Embeddings { items, pending } = self
            .embed_new(admitted, || vec![update.text.clone()])
            .await?;
        options.embeddings = items;
        let updated_fields = update.updated_fields();
        let written = self
            .store
            .update_contexts(&caller.owner, vec![update], true, options)
            .await
            .map_err(one_item)?;
        let (
            ItemOutcome {
                id,
                version,
                duplicate: _,
            },
            revision,
        ) = single(written)?;
        if wants_summary {
            self.awaits_summary(caller, id);
        }
        let message = self.stored_message(
            format!("Updated {} of context {id}", updated_fields.join(", ")),
            pending,
        );
        Ok(UpdateContextReply {
            success: true,
            context_id: id,
            updated_fields,
            message,
            version,
            revision,
        })
    }

    /// Changes up to 100 entries in one transaction.
    ///
    /// # Errors
    /// As [`update_context`](Self::update_context); with `atomic` the first bad item is the error, named by its index.
    pub async fn update_context_batch(
        &self,
        caller: &Caller,
        request: UpdateContextBatchRequest,
        write: WriteContext,
    ) -> Result<BatchReply> {
        caller.require(Operation::UpdateContextBatch)?;
        let mut options = self.write_options(caller, "update_context_batch", &request, &write)?;
        let UpdateContextBatchRequest { updates, atomic } = request;
        let atomic = atomic.unwrap_or(true);
        batch_size(updates.len(), "updates")?;
        let ids: Vec<i64> = updates.iter().map(|update| update.context_id).collect();
        let mut total = 0;
        let reached = self.reached(caller, &ids).await?;
        let updates = updates.into_iter().map(|update| {
            let update = validate::update(update, &self.config.limits, &mut total)?;
            reached.check(update.id)?;
            Ok(update)
        });
        let Checked { items, failed } = Checked::new(updates, atomic, "updates")?;
        let bytes = items.iter().map(of_update).fold(0, u64::saturating_add);
        let admitted = self
            .admit(
                caller,
                &options,
                items.len(),
                Usage {
                    entries: 0,
                    artifacts: 0,
                    bytes,
                },
            )
            .await?;
        let want_summaries: Vec<bool> = items
            .iter()
            .map(|update| {
                update
                    .text
                    .as_deref()
                    .is_some_and(|text| self.wants_summary(text))
            })
            .collect();
        let embeddings = self
            .embed_new(admitted, || {
                items.iter().map(|update| update.text.clone()).collect()
            })
            .await?;
        options.embeddings = embeddings.items;
        let fields: Vec<Vec<String>> = items
            .iter()
            .map(context_model::EntryUpdate::updated_fields)
            .collect();
        let written = if items.is_empty() {
            self.nothing_written(caller).await?
        } else {
            self.store
                .update_contexts(&caller.owner, items, atomic, options)
                .await
                .map_err(|e| e.into_error("updates"))?
        };
        self.await_summaries(caller, &want_summaries, &written.outcome);
        let mut reply = batch_reply(
            written,
            failed,
            "Updated",
            |stored| fields.get(stored).cloned(),
            |index| ids.get(index).copied(),
        );
        reply.message = self.stored_message(reply.message, embeddings.pending);
        Ok(reply)
    }

    /// Entries in full, newest first; unknown ids are skipped.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `STORAGE_CORRUPT` naming the entries that are not what was stored, without which the others can be had; `RESULT_TOO_LARGE`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn get_context_by_ids(
        &self,
        caller: &Caller,
        request: GetContextByIdsRequest,
    ) -> Result<GetContextByIdsReply> {
        caller.require(Operation::GetContextByIds)?;
        let GetContextByIdsRequest {
            context_ids,
            include_images,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let ids = validate::ids(context_ids, Limits::MAX_GET, "context_ids", &mut violations);
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let ids = self.reached(caller, &ids).await?.of(ids);
        let selection = RowSelection {
            images: include_images.unwrap_or(true),
            text_chars: None,
            explain: false,
            max_bytes: self.max_reply_bytes(),
            memory: caller.memory.clone(),
        };
        let page = self
            .store
            .get_contexts(&caller.owner, ids, selection, Self::read(min_revision))
            .await
            .map_err(crate::store_error)?;
        refuse_damaged(&page.entries)?;
        Ok(GetContextByIdsReply {
            result: page.entries.into_iter().map(full_entry).collect(),
            revision: page.revision,
        })
    }

    /// The embeddings of a write's texts; none for one that is repeated, which stores nothing.
    async fn embed_new(
        &self,
        admitted: Admitted,
        texts: impl FnOnce() -> Vec<Option<String>>,
    ) -> Result<Embeddings> {
        match admitted {
            Admitted::New => self.embed(texts()).await,
            Admitted::Repeated => Ok(Embeddings::default()),
        }
    }

    /// Notes which items of a batch wait for summaries.
    fn await_summaries(&self, caller: &Caller, wanted: &[bool], batch: &StoredBatch) {
        for (item, _) in batch
            .items
            .iter()
            .zip(wanted)
            .filter(|(_, wanted)| **wanted)
        {
            if let Ok(ItemOutcome {
                id,
                version: _,
                duplicate: false,
            }) = item
            {
                self.awaits_summary(caller, *id);
            }
        }
    }

    /// The outcome of a batch of which no item was worth sending to the store.
    async fn nothing_written(&self, caller: &Caller) -> Result<Written<StoredBatch>> {
        let statistics = self
            .store
            .statistics(&caller.owner, Self::read(None))
            .await
            .map_err(crate::store_error)?;
        Ok(Written {
            outcome: StoredBatch { items: Vec::new() },
            revision: statistics.revision,
        })
    }

    /// Bytes of text and images in one reply: what is left of the largest message after base64 and JSON.
    pub(crate) fn max_reply_bytes(&self) -> u64 {
        let message = self.config.limits.max_message_bytes() as u64;
        (message - 16 * 1024 * 1024) * 10 / 14
    }
}

/// The items of a batch that obey the rules, with their places, and those that do not.
struct Checked<T> {
    items: Vec<T>,
    failed: Vec<(usize, Error)>,
}

impl<T> Checked<T> {
    fn new(items: impl Iterator<Item = Result<T>>, atomic: bool, field: &str) -> Result<Self> {
        let mut checked = Self {
            items: Vec::new(),
            failed: Vec::new(),
        };
        for (index, item) in items.enumerate() {
            match item {
                Ok(item) => checked.items.push(item),
                Err(error) if atomic => return Err(error.in_item(&format!("{field}[{index}]"))),
                Err(error) => checked.failed.push((index, error)),
            }
        }
        Ok(checked)
    }
}

fn batch_size(len: usize, field: &str) -> Result<()> {
    let mut violations = Violations::default();
    validate::count(len, Limits::MAX_BATCH, field, "items", &mut violations);
    violations.finish(())
}

/// Puts the outcomes of the store and the items that never reached it back into the order of the request.
fn batch_reply(
    written: Written<StoredBatch>,
    failed: Vec<(usize, Error)>,
    verb: &str,
    updated_fields: impl Fn(usize) -> Option<Vec<String>>,
    id_of: impl Fn(usize) -> Option<i64>,
) -> BatchReply {
    let Written {
        outcome: StoredBatch { items },
        revision,
    } = written;
    let total = items.len() + failed.len();
    let mut failed = failed.into_iter().peekable();
    let mut stored = items.into_iter().enumerate();
    let mut results = Vec::with_capacity(total);
    for index in 0..total {
        let failure = |error: Error| BatchResult {
            index: index as i64,
            success: false,
            context_id: id_of(index),
            error: Some(error.message),
            updated_fields: None,
        };
        let result = match failed.next_if(|(at, _)| *at == index) {
            Some((_, error)) => failure(error),
            None => match stored.next() {
                Some((at, Ok(outcome))) => BatchResult {
                    index: index as i64,
                    success: true,
                    context_id: Some(outcome.id),
                    error: None,
                    updated_fields: updated_fields(at),
                },
                Some((_, Err(error))) => failure(error.0),
                None => break,
            },
        };
        results.push(result);
    }
    let succeeded = results.iter().filter(|r| r.success).count();
    let message = format!("{verb} {succeeded} of {total} contexts");
    BatchReply {
        success: succeeded == total,
        total: total as i64,
        succeeded: succeeded as i64,
        failed: (total - succeeded) as i64,
        results,
        message,
        revision,
    }
}

/// What an entry adds to what its owner has.
fn of_entry(entry: &NewEntry) -> Usage {
    let NewEntry {
        text,
        metadata,
        images,
        ..
    } = entry;
    Usage {
        entries: 1,
        artifacts: 0,
        bytes: quota::bytes(
            text,
            metadata.as_ref().map(Metadata::as_object),
            images.as_deref(),
        ),
    }
}

/// The bytes that an update adds, at most.
fn of_update(update: &EntryUpdate) -> u64 {
    let EntryUpdate {
        text,
        metadata,
        images,
        ..
    } = update;
    let metadata = metadata.as_ref().map(|change| match change {
        MetadataChange::Replace(metadata) => metadata.as_object(),
        MetadataChange::Patch(patch) => patch,
    });
    quota::bytes(
        text.as_deref().unwrap_or_default(),
        metadata,
        images.as_deref(),
    )
}

/// The error of a single call: it has no index to name.
fn one_item(error: context_store::StoreError) -> Error {
    match error {
        context_store::StoreError::Item { index: _, error } => error,
        other => crate::store_error(other),
    }
}

fn single(written: Written<StoredBatch>) -> Result<(ItemOutcome, i64)> {
    let Written {
        outcome: StoredBatch { mut items },
        revision,
    } = written;
    match items.pop() {
        Some(Ok(outcome)) => Ok((outcome, revision)),
        Some(Err(error)) => Err(error.0),
        None => Err(Error::new(
            context_model::Reason::Internal,
            "internal error; the store gave no outcome",
        )),
    }
}

/// Leaving a damaged entry out would say that it does not exist.
fn refuse_damaged(entries: &[StoredEntry]) -> Result<()> {
    let mut damaged = entries.iter().filter_map(|entry| {
        entry
            .damage
            .map(|part| seal::refuse_context(entry.id, part))
    });
    let Some(mut error) = damaged.next() else {
        return Ok(());
    };
    for further in damaged {
        error.message.push_str(". Likewise, ");
        error.message.push_str(&further.message);
    }
    Err(error)
}

fn full_entry(entry: StoredEntry) -> Entry {
    let StoredEntry {
        id,
        thread_id,
        source,
        content_type,
        text,
        summary,
        metadata,
        tags,
        created_at,
        updated_at,
        version,
        images,
        damage: _,
    } = entry;
    Entry {
        id,
        thread_id,
        source,
        content_type,
        text_content: text,
        summary,
        metadata,
        tags,
        created_at,
        updated_at,
        version,
        images,
    }
}
