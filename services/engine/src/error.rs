//! Converts store errors to the errors of operations.

use context_model::Error;
use context_store::StoreError;

/// Converts a store error. An error about one item of a batch names it `items[n]`.
pub(crate) fn store_error(error: StoreError) -> Error {
    error.into_error("items")
}
