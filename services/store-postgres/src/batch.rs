//! What `atomic` means for the items of a batch.

use context_store::{ErrorByMessage, ItemOutcome, StoreError, StoredBatch};

use crate::pg::failure::Failure;

/// Collects what became of the items. With `atomic` the first refusal is the error, and the transaction undoes the
/// items before it; without it the refusal is that item's outcome.
///
/// An item must be refused before its first write, so that a refused item has nothing to undo.
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

    /// Takes the next item's outcome.
    ///
    /// # Errors
    /// What ends the batch.
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
