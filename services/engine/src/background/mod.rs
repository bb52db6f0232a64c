//! Background work.
//!
//! - `backfill` embeds entries that were stored without vectors.
//! - `summaries` writes the summaries of entries.
//! - `sealing` adds checksums to rows without one.
//! - `compaction` removes old changes from the feed, and old lines from the audit log.
//! - `reembed` switches to another embedding model. It runs on the operator's command.
//! - `pauses` are the pauses after failures.

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
