//! Stores, updates, fetches and deletes context entries, and lists their threads, tags, metadata fields and days.
//!
//! Most files are named after the one kind of operation that they have. `overview` lists metadata fields and days. The
//! others are shared: `batch` and `outcome` have the common steps of writes, and `reached` checks which entries a
//! caller may access.

mod batch;
mod delete;
mod get;
mod outcome;
mod overview;
mod reached;
mod store;
mod tags;
mod threads;
mod update;

pub(crate) use get::full_entry;

use std::sync::Arc;

use context_model::Limits;
use context_store::Store;

use crate::access::Writes;
use crate::background::Summaries;
use crate::retrieval::Embeddings;

/// The operations on context entries and their threads, except the searches.
pub struct Contexts {
    store: Arc<dyn Store>,
    limits: Limits,
    writes: Arc<Writes>,
    /// Embeds new texts.
    embeddings: Arc<Embeddings>,
    /// Queues entries for a summary.
    summaries: Arc<Summaries>,
}

impl Contexts {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        limits: Limits,
        writes: Arc<Writes>,
        embeddings: Arc<Embeddings>,
        summaries: Arc<Summaries>,
    ) -> Self {
        Self {
            store,
            limits,
            writes,
            embeddings,
            summaries,
        }
    }
}
