//! The type that has the operations on the feed of changes, with the store and the reads that it uses.

use std::sync::Arc;

use context_store::Store;

use super::shared::SharedReads;

/// The operations on the feed of changes.
pub struct Changes {
    pub(super) store: Arc<dyn Store>,
    pub(super) reads: SharedReads,
}

impl Changes {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            reads: SharedReads::default(),
        }
    }
}
