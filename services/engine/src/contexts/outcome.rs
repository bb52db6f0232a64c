//! Turns the outcomes of a write into replies.

use context_model::{BatchReply, BatchResult, Error, Reason, Result};
use context_store::{ItemOutcome, OwnerId, Store, StoreError, StoredBatch, Written};

use crate::error::store_error;
use crate::read;

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

/// Builds the reply of a batch. It lists the store's outcomes and the items that failed before the write in the order
/// of the request. `updated_fields` takes an index among the store's outcomes, and `id_of` an index among all items of
/// the request.
pub(super) fn batch_reply(
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

/// The outcome of a batch without valid items. The revision comes from the owner's statistics: the store has no cheaper
/// read of it.
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
