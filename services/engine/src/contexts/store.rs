//! Storing entries.

use context_model::{
    BatchReply, Metadata, NewEntry, Operation, Result, StoreContextBatchRequest, StoreContextReply,
    StoreContextRequest,
};
use context_store::{ItemOutcome, Usage};

use super::Contexts;
use super::batch::{Batch, Checked, batch_size};
use super::outcome::{one_item, single};
use crate::access::{Admitted, Caller, WriteContext, stored_bytes};
use crate::retrieval::with_pending_note;
use crate::validate;

impl Contexts {
    /// Stores one entry. An entry that repeats the thread's newest entry is not stored again.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `QUOTA_EXCEEDED`; `SCOPE_MISSING` without `write`, or for a thread
    /// that the caller may not access; the store's errors, and the embedding provider's with
    /// `EMBEDDING_ON_FAILURE=fail`.
    pub async fn store_context(
        &self,
        caller: &Caller,
        request: StoreContextRequest,
        write: WriteContext,
    ) -> Result<StoreContextReply> {
        caller.require(Operation::StoreContext)?;
        let mut options = self
            .writes
            .options(caller, "store_context", &request, &write)?;
        let thread_id = request.thread_id.trim().to_owned();
        let admitted = self.writes.repetition(caller, &options).await?;
        let entries = match self.checked_entry(caller, request) {
            // The store returns the first outcome, whatever became of the limits.
            Err(_) if admitted == Admitted::Repeated => Vec::new(),
            entry => vec![entry?],
        };
        if admitted == Admitted::New {
            let more = of_entries(&entries);
            self.writes.admit_new(caller, &options, 1, more).await?;
        }
        let needs_summary = entries
            .iter()
            .any(|entry| self.summaries.needs_summary(&entry.text));
        let texts = || {
            entries
                .iter()
                .map(|entry| Some(entry.text.clone()))
                .collect()
        };
        let embeddings = self.embeddings.embed_write(admitted, texts).await?;
        let pending = embeddings.is_pending();
        options.embeddings = embeddings.items;
        let written = self
            .store
            .store_contexts(&caller.owner, entries, true, options)
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
        if needs_summary && !duplicate {
            self.summaries.add(&caller.owner, id);
        }
        let message = if duplicate {
            format!(
                "Context {id} is the thread's newest entry and says the same; no second one was stored"
            )
        } else {
            if pending {
                self.embeddings.wake_worker();
            }
            with_pending_note(format!("Stored context {id}"), pending)
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
    /// The errors of [`store_context`](Self::store_context). With `atomic` the call fails with the first invalid item's
    /// error, which names the item's index.
    pub async fn store_context_batch(
        &self,
        caller: &Caller,
        request: StoreContextBatchRequest,
        write: WriteContext,
    ) -> Result<BatchReply> {
        caller.require(Operation::StoreContextBatch)?;
        let mut options = self
            .writes
            .options(caller, "store_context_batch", &request, &write)?;
        let StoreContextBatchRequest { entries, atomic } = request;
        let atomic = atomic.unwrap_or(true);
        batch_size(entries.len(), "entries")?;
        let count = entries.len();
        let admitted = self.writes.repetition(caller, &options).await?;
        let mut total = 0;
        let entries = entries.into_iter().map(|entry| {
            let entry = validate::entry(entry, &self.limits, &mut total)?;
            caller.require_thread(&entry.thread_id)?;
            Ok(entry)
        });
        let Checked { items, failed } = Checked::new(entries, atomic, admitted, "entries")?;
        if admitted == Admitted::New {
            let more = of_entries(&items);
            self.writes.admit_new(caller, &options, count, more).await?;
        }
        let texts = items
            .iter()
            .map(|entry| Some(entry.text.as_str()))
            .collect();
        let (embeddings, texts) = self.embed_batch(admitted, texts).await?;
        options.embeddings = embeddings;
        options.reject(&failed);
        // With a key, an empty batch is written too, so that its outcome is stored under the key.
        let writes = options.idempotency.is_some() || !items.is_empty();
        let writing = writes.then(|| {
            self.store
                .store_contexts(&caller.owner, items, atomic, options)
        });
        let batch = Batch {
            field: "entries",
            verb: "Stored",
            total: count,
            failed,
            texts,
        };
        self.write_batch(caller, batch, writing, |_| None, |_| None)
            .await
    }

    fn checked_entry(&self, caller: &Caller, request: StoreContextRequest) -> Result<NewEntry> {
        let entry = validate::entry(request, &self.limits, &mut 0)?;
        caller.require_thread(&entry.thread_id)?;
        Ok(entry)
    }
}

/// What entries add to their owner's usage.
fn of_entries(entries: &[NewEntry]) -> Usage {
    let bytes = entries.iter().map(|entry| {
        let NewEntry {
            text,
            metadata,
            tags,
            images,
            ..
        } = entry;
        stored_bytes(
            text,
            metadata.as_ref().map(Metadata::as_object),
            tags.as_ref(),
            images.as_deref(),
        )
    });
    Usage {
        entries: entries.len() as u64,
        artifacts: 0,
        bytes: bytes.fold(0, u64::saturating_add),
    }
}
