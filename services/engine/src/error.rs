//! The errors of a store as operations report them.

use context_model::Error;
use context_store::StoreError;

/// A store's error. One that is about an item of a list names it as one of `items`.
pub(crate) fn store_error(error: StoreError) -> Error {
    error.into_error("items")
}
