//! The common steps of storing and updating batches: check the items, embed their texts, write the valid items, and
//! build a reply with the outcome of each item.

use context_model::{BatchReply, Error, Limits, Result, Violations};
use context_store::{Embedding, StoredBatch, Written};

use super::Contexts;
use super::outcome::{batch_reply, in_order, nothing_written};
use crate::access::{Admitted, Caller};
use crate::retrieval::{WriteEmbeddings, with_pending_count};
use crate::validate;

/// The valid items of a batch, and the errors of the invalid ones with their indexes.
pub(super) struct Checked<T> {
    pub items: Vec<T>,
    pub failed: Vec<(usize, Error)>,
}

impl<T> Checked<T> {
    /// Separates valid items from invalid ones.
    ///
    /// # Errors
    /// With `atomic`, the error of the first invalid item, with its index. A repeated request gets its stored outcome
    /// instead.
    pub fn new(
        items: impl Iterator<Item = Result<T>>,
        atomic: bool,
        admitted: Admitted,
        field: &str,
    ) -> Result<Self> {
        let fails = atomic && admitted == Admitted::New;
        let mut checked = Self {
            items: Vec::new(),
            failed: Vec::new(),
        };
        for (index, item) in items.enumerate() {
            match item {
                Ok(item) => checked.items.push(item),
                Err(error) if fails => return Err(error.in_item(&format!("{field}[{index}]"))),
                Err(error) => checked.failed.push((index, error)),
            }
        }
        Ok(checked)
    }
}

/// Checks the number of items in a batch.
///
/// # Errors
/// `INVALID_ARGUMENT`.
pub(super) fn batch_size(len: usize, field: &str) -> Result<()> {
    let mut violations = Violations::default();
    validate::count(len, Limits::MAX_BATCH, field, "items", &mut violations);
    violations.finish(())
}

/// A batch that is about to be written.
pub(super) struct Batch {
    /// The field of the request that holds the items.
    pub field: &'static str,
    /// The first word of the reply's message: `Stored` or `Updated`.
    pub verb: &'static str,
    /// Number of items in the request.
    pub total: usize,
    /// The errors of the invalid items, with their indexes.
    pub failed: Vec<(usize, Error)>,
    pub texts: BatchTexts,
}

/// What the texts of a batch still need after they are written: summaries and embeddings.
pub(super) struct BatchTexts {
    /// For each valid item, whether it needs a summary. Empty for a repeated request.
    want_summaries: Vec<bool>,
    /// For each valid item, whether its vectors will be created in the background. May be empty if none are missing.
    are_pending: Vec<bool>,
}

impl Contexts {
    /// Embeds the texts of a batch. `texts` has one element for each item, `None` if the item has no new text.
    ///
    /// # Errors
    /// The provider's errors.
    pub(super) async fn embed_batch(
        &self,
        admitted: Admitted,
        texts: Vec<Option<&str>>,
    ) -> Result<(Vec<Embedding>, BatchTexts)> {
        let want_summaries = match admitted {
            Admitted::New => texts
                .iter()
                .map(|text| text.is_some_and(|text| self.summaries.needs_summary(text)))
                .collect(),
            Admitted::Repeated => Vec::new(),
        };
        let owned = || {
            texts
                .into_iter()
                .map(|text| text.map(str::to_owned))
                .collect()
        };
        let WriteEmbeddings { items, pending } =
            self.embeddings.embed_write(admitted, owned).await?;
        let texts = BatchTexts {
            want_summaries,
            are_pending: pending,
        };
        Ok((items, texts))
    }

    /// Writes a batch and builds the reply. `writing` is `None` when the batch has no valid items and no idempotency
    /// key. `updated_fields` and `id_of` take an index among the items of the request.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn write_batch(
        &self,
        caller: &Caller,
        batch: Batch,
        writing: Option<impl Future<Output = context_store::Result<Written<StoredBatch>>>>,
        updated_fields: impl Fn(usize) -> Option<Vec<String>>,
        id_of: impl Fn(usize) -> Option<i64>,
    ) -> Result<BatchReply> {
        let Batch {
            field,
            verb,
            total,
            failed,
            texts,
        } = batch;
        let written = match writing {
            Some(writing) => writing.await.map_err(|error| error.into_error(field))?,
            None => nothing_written(&*self.store, &caller.owner).await?,
        };
        self.summaries
            .add_stored(&caller.owner, &texts.want_summaries, &written.outcome);
        let items = written.outcome.items.iter().zip(&texts.are_pending);
        let pending = items
            .filter(|(item, pending)| {
                **pending && item.as_ref().is_ok_and(|written| !written.duplicate)
            })
            .count();
        let items = in_order(written.outcome.items, failed, total);
        let mut reply = batch_reply(items, written.revision, verb, updated_fields, id_of);
        if pending > 0 {
            self.embeddings.wake_worker();
        }
        reply.message = with_pending_count(reply.message, pending);
        Ok(reply)
    }
}
