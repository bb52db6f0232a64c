//! Background work: late embeddings, summaries, checksums, re-embedding.

mod backfill;
mod compaction;
mod pauses;
mod reembed;
mod sealing;
mod summaries;

pub use compaction::ChangesConfig;
pub use reembed::{Reembedded, Reembedding};
pub use summaries::Summaries;

use std::sync::Arc;

use context_store::Store;

use crate::config::SummaryConfig;
use crate::retrieval::Embeddings;

/// The background tasks. Each runs for as long as its future is polled.
pub struct Background {
    /// The summaries of entries.
    pub summaries: Arc<Summaries>,
    store: Arc<dyn Store>,
    embeddings: Arc<Embeddings>,
}

impl Background {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        embeddings: Arc<Embeddings>,
        summaries: SummaryConfig,
    ) -> Self {
        Self {
            summaries: Arc::new(Summaries::new(store.clone(), summaries)),
            store,
            embeddings,
        }
    }
}
