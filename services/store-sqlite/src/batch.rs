//! The meaning of `atomic` for the items of a batch.

use context_store::{ErrorByMessage, ItemOutcome, StoreError, StoredBatch};

use crate::failure::Failure;
use crate::transaction::Transaction;

/// Applies the items in order. If `atomic`, the first rejection is returned as the error, and the request's savepoint
/// undoes the earlier items. Otherwise the rejection becomes the outcome of its item.
///
/// `apply` must reject an item before its first write, so that a rejected item leaves nothing to undo.
pub(crate) fn apply<I>(
    transaction: &mut Transaction<'_>,
    items: &[I],
    atomic: bool,
    mut apply: impl FnMut(&mut Transaction<'_>, usize, &I) -> Result<ItemOutcome, Failure>,
) -> Result<StoredBatch, Failure> {
    let mut outcomes = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match apply(transaction, index, item) {
            Ok(outcome) => outcomes.push(Ok(outcome)),
            Err(Failure::Rejected(StoreError::Rejected(error))) if atomic => {
                return Err(Failure::Rejected(StoreError::Item { index, error }));
            }
            Err(Failure::Rejected(StoreError::Rejected(error))) => {
                outcomes.push(Err(Box::new(ErrorByMessage(error))))
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(StoredBatch { items: outcomes })
}
