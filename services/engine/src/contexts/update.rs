//! Updating entries.

use context_model::{
    BatchReply, EntryUpdate, MetadataChange, Operation, Result, UpdateContextBatchRequest,
    UpdateContextReply, UpdateContextRequest,
};
use context_store::{ItemOutcome, Read, Usage, WriteOptions};

use super::Contexts;
use super::batch::{Batch, Checked, batch_size};
use super::outcome::{one_item, single};
use crate::access::{Admitted, Caller, WriteContext, stored_bytes};
use crate::retrieval::with_pending_note;
use crate::validate;

impl Contexts {
    /// Updates one entry.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `CONTEXT_NOT_FOUND`; `VERSION_MISMATCH`; `QUOTA_EXCEEDED`;
    /// `SCOPE_MISSING` without `write`; the store's errors, and the embedding provider's with
    /// `EMBEDDING_ON_FAILURE=fail`.
    pub async fn update_context(
        &self,
        caller: &Caller,
        request: UpdateContextRequest,
        write: WriteContext,
    ) -> Result<UpdateContextReply> {
        caller.require(Operation::UpdateContext)?;
        let mut options = self
            .writes
            .options(caller, "update_context", &request, &write)?;
        let updated_fields = request.updated_fields();
        let admitted = self.writes.repetition(caller, &options).await?;
        let updates = match self.checked_update(caller, request).await {
            // The store returns the first outcome, whatever became of the entry and the limits.
            Err(_) if admitted == Admitted::Repeated => Vec::new(),
            update => vec![update?],
        };
        if admitted == Admitted::New {
            self.admit_updates(caller, &options, &updates, 1).await?;
        }
        let wants_summary = updates
            .iter()
            .filter_map(|update| update.text.as_deref())
            .any(|text| self.summaries.needs_summary(text));
        let texts = || updates.iter().map(|update| update.text.clone()).collect();
        let embeddings = self.embeddings.embed_write(admitted, texts).await?;
        let pending = embeddings.is_pending();
        options.embeddings = embeddings.items;
        let written = self
            .store
            .update_contexts(&caller.owner, updates, true, options)
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
            self.summaries.add(&caller.owner, id);
        }
        if pending {
            self.embeddings.wake_worker();
        }
        let message = format!("Updated {} of context {id}", updated_fields.join(", "));
        let message = with_pending_note(message, pending);
        Ok(UpdateContextReply {
            success: true,
            context_id: id,
            updated_fields,
            message,
            version,
            revision,
        })
    }

    /// Updates up to 100 entries in one transaction.
    ///
    /// # Errors
    /// As [`update_context`](Self::update_context). With `atomic` the call fails with the first invalid item's error,
    /// which names the item's index. Items are checked before the store looks for their entries. Otherwise the reply has
    /// each item's error.
    pub async fn update_context_batch(
        &self,
        caller: &Caller,
        request: UpdateContextBatchRequest,
        write: WriteContext,
    ) -> Result<BatchReply> {
        caller.require(Operation::UpdateContextBatch)?;
        let mut options = self
            .writes
            .options(caller, "update_context_batch", &request, &write)?;
        let UpdateContextBatchRequest { updates, atomic } = request;
        let atomic = atomic.unwrap_or(true);
        batch_size(updates.len(), "updates")?;
        let ids: Vec<i64> = updates.iter().map(|update| update.context_id).collect();
        let fields: Vec<Vec<String>> = updates
            .iter()
            .map(UpdateContextRequest::updated_fields)
            .collect();
        let admitted = self.writes.repetition(caller, &options).await?;
        let mut total = 0;
        let reached = self.reached(caller, &ids, Read::default()).await?;
        let updates = updates.into_iter().map(|update| {
            let update = validate::update(update, &self.limits, &mut total)?;
            reached.check(update.id)?;
            Ok(update)
        });
        let Checked { items, failed } = Checked::new(updates, atomic, admitted, "updates")?;
        if admitted == Admitted::New {
            self.admit_updates(caller, &options, &items, ids.len())
                .await?;
        }
        let texts = items.iter().map(|update| update.text.as_deref()).collect();
        let (embeddings, texts) = self.embed_batch(admitted, texts).await?;
        options.embeddings = embeddings;
        options.reject(&failed);
        // With a key, an empty batch is written too, so that its outcome is stored under the key.
        let writes = options.idempotency.is_some() || !items.is_empty();
        let writing = writes.then(|| {
            self.store
                .update_contexts(&caller.owner, items, atomic, options)
        });
        let batch = Batch {
            field: "updates",
            verb: "Updated",
            total: ids.len(),
            failed,
            texts,
        };
        let fields = |index: usize| fields.get(index).cloned();
        let id = |index: usize| ids.get(index).copied();
        self.write_batch(caller, batch, writing, fields, id).await
    }

    async fn checked_update(
        &self,
        caller: &Caller,
        request: UpdateContextRequest,
    ) -> Result<EntryUpdate> {
        let update = validate::update(request, &self.limits, &mut 0)?;
        self.reached(caller, &[update.id], Read::default())
            .await?
            .check(update.id)?;
        Ok(update)
    }

    /// Admits new updates. `items` is the number of items in the request, including the rejected ones.
    async fn admit_updates(
        &self,
        caller: &Caller,
        options: &WriteOptions,
        updates: &[EntryUpdate],
        items: usize,
    ) -> Result<()> {
        let bytes = updates.iter().map(added_bytes).fold(0, u64::saturating_add);
        let more = Usage {
            bytes,
            ..Usage::default()
        };
        self.writes.admit_new(caller, options, items, more).await
    }
}

/// Maximum number of bytes that an update adds to the owner's usage.
fn added_bytes(update: &EntryUpdate) -> u64 {
    let EntryUpdate {
        text,
        metadata,
        tags,
        images,
        ..
    } = update;
    let metadata = metadata.as_ref().map(|change| match change {
        MetadataChange::Replace(metadata) => metadata.as_object(),
        MetadataChange::Patch(patch) => patch,
    });
    stored_bytes(
        text.as_deref().unwrap_or_default(),
        metadata,
        tags.as_ref(),
        images.as_deref(),
    )
}
