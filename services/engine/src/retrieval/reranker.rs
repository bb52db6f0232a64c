//! The reranker in use, when one is configured.

use std::sync::{Arc, RwLock};

use context_providers::Reranker;

use crate::lock;

/// The reranker in use; empty while results are reranked by late interaction or not at all.
#[derive(Default)]
pub(crate) struct CurrentReranker(RwLock<Option<Arc<dyn Reranker>>>);

impl CurrentReranker {
    pub fn set(&self, reranker: Arc<dyn Reranker>) {
        *lock::write(&self.0) = Some(reranker);
    }

    pub fn get(&self) -> Option<Arc<dyn Reranker>> {
        lock::read(&self.0).clone()
    }
}
