//! Collects the outcomes of a batch's items, with or without `atomic`.

use context_store::{ErrorByMessage, ItemOutcome, StoreError, StoredBatch};

use crate::pg::failure::Failure;

/// Collects the items' outcomes. With `atomic`, the first rejected item is the error, and the transaction undoes the
/// items before it. Without it, the rejection is that item's outcome.
///
/// An item must be rejected before its first write, so that it has nothing to undo.
pub(crate) struct Outcomes {
    atomic: bool,
    items: Vec<Result<ItemOutcome, Box<ErrorByMessage>>>,
}

impl Outcomes {
    pub fn new(atomic: bool, items: usize) -> Self {
        Self {
            atomic,
            items: Vec::with_capacity(items),
        }
    }

    /// Records the next item's outcome.
    ///
    /// # Errors
    /// The error that ends the batch.
    pub fn add(&mut self, outcome: Result<ItemOutcome, Failure>) -> Result<(), Failure> {
        match outcome {
            Ok(outcome) => self.items.push(Ok(outcome)),
            Err(Failure::Rejected(StoreError::Rejected(error))) if self.atomic => {
                return Err(Failure::Rejected(StoreError::Item {
                    index: self.items.len(),
                    error,
                }));
            }
            Err(Failure::Rejected(StoreError::Rejected(error))) => {
                self.items.push(Err(Box::new(ErrorByMessage(error))))
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    pub fn finish(self) -> StoredBatch {
        StoredBatch { items: self.items }
    }
}
