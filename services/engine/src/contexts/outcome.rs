//! Turns the outcomes of a write into replies.

use context_model::{BatchReply, BatchResult, Error, Reason, Result};
use context_store::{
    ErrorByMessage, ItemError, ItemOutcome, OwnerId, Store, StoreError, StoredBatch, Written,
};

use crate::error::store_error;
use crate::read;

type ItemResult = std::result::Result<ItemOutcome, ItemError>;

/// The error of a write of one entry. It has no item index.
pub(super) fn one_item(error: StoreError) -> Error {
    match error {
        StoreError::Item { index: _, error } => error,
        other => store_error(other),
    }
}

/// The outcome of a write of one entry, and the revision after the write.
///
/// # Errors
/// The item's error.
pub(super) fn single(written: Written<StoredBatch>) -> Result<(ItemOutcome, i64)> {
    let Written {
        outcome: StoredBatch { mut items },
        revision,
    } = written;
    match items.pop() {
        Some(Ok(outcome)) => Ok((outcome, revision)),
        Some(Err(error)) => Err(error.0),
        None => Err(Error::new(
            Reason::Internal,
            "internal error; the store returned no outcome",
        )),
    }
}

/// The outcomes of all `total` items of a batch, in the order of the request. `failed` are the items that failed before
/// the write. The stored outcome of a repeated request includes them.
pub(super) fn in_order(
    stored: Vec<ItemResult>,
    failed: Vec<(usize, Error)>,
    total: usize,
) -> Vec<ItemResult> {
    let mut items = stored;
    if items.len() < total {
        for (index, error) in failed {
            let index = items.len().min(index);
            items.insert(index, Err(Box::new(ErrorByMessage(error))));
        }
        // An older version stored the outcome without the items that failed then, and others may fail now.
        items.truncate(total);
    }
    items
}

/// Builds the reply of a batch. `updated_fields` and `id_of` take the index of an item.
pub(super) fn batch_reply(
    items: Vec<ItemResult>,
    revision: i64,
    verb: &str,
    updated_fields: impl Fn(usize) -> Option<Vec<String>>,
    id_of: impl Fn(usize) -> Option<i64>,
) -> BatchReply {
    let total = items.len();
    let items = items.into_iter().enumerate();
    let results: Vec<BatchResult> = items
        .map(|(index, item)| match item {
            Ok(outcome) => BatchResult {
                index: index as i64,
                success: true,
                context_id: Some(outcome.id),
                error: None,
                updated_fields: updated_fields(index),
                duplicate: outcome.duplicate,
            },
            Err(error) => BatchResult {
                index: index as i64,
                success: false,
                context_id: id_of(index),
                error: Some(error.0.message),
                updated_fields: None,
                duplicate: false,
            },
        })
        .collect();
    let succeeded = results.iter().filter(|r| r.success).count();
    let repeated = match results.iter().filter(|r| r.duplicate).count() {
        0 => String::new(),
        1 => {
            "; 1 of them repeats the newest entry of its thread and was not stored again".to_owned()
        }
        more => format!(
            "; {more} of them repeat the newest entries of their threads and were not stored again"
        ),
    };
    let message = format!("{verb} {succeeded} of {total} contexts{repeated}");
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

/// The outcome of a batch without valid items and without an idempotency key. The revision comes from the owner's
/// statistics, because no read of the store returns only the revision.
///
/// # Errors
/// The store's errors.
pub(super) async fn nothing_written(
    store: &dyn Store,
    owner: &OwnerId,
) -> Result<Written<StoredBatch>> {
    let statistics = store
        .statistics(owner, None, read::at(None))
        .await
        .map_err(store_error)?;
    Ok(Written {
        outcome: StoredBatch { items: Vec::new() },
        revision: statistics.revision,
    })
}
