//! The reranker in use, if one is configured.

use std::sync::{Arc, RwLock};

use context_providers::Reranker;

use crate::lock;

/// The reranker in use. Empty while late interaction reranks the results or reranking is off.
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
