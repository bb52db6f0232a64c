//! The database behind the operations on the feed of changes.

use std::sync::Arc;

use context_store::Store;

/// The operations on the feed of changes.
pub struct Changes {
    pub(super) store: Arc<dyn Store>,
}

impl Changes {
    pub(crate) const fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}
