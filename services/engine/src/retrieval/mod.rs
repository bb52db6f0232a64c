//! The searches: by filters, full text, semantic and hybrid; and the models they use.

mod embedding;
mod filter_search;
mod full_text;
mod fusion;
mod hits;
mod hybrid;
mod late_interaction;
mod ranked;
mod rerank;
mod reranker;
mod semantic;
mod status;
mod truncate;
mod turns;

pub(crate) use embedding::{
    ActiveModel, Embeddings, WriteEmbeddings, embed, model_of, provider_error, unavailable,
};
pub use truncate::truncate;

use std::sync::Arc;

use context_model::Result;
use context_providers::{Embedder, Reranker};
use context_store::Store;
use context_text::{Analyzer, Language};

use crate::config::{EmbeddingConfig, RerankConfig, SearchConfig};
use reranker::CurrentReranker;

/// The searches over one store.
pub struct Retrieval {
    store: Arc<dyn Store>,
    search: SearchConfig,
    reranking: RerankConfig,
    max_reply_bytes: u64,
    analyzer: Analyzer,
    embeddings: Arc<Embeddings>,
    reranker: Arc<CurrentReranker>,
}

impl Retrieval {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        search: SearchConfig,
        rerank: RerankConfig,
        embedding: EmbeddingConfig,
        max_reply_bytes: u64,
    ) -> Self {
        let language = Language::parse(&search.fts_language).unwrap_or(Language::Unstemmed);
        let reranker = Arc::new(CurrentReranker::default());
        Self {
            embeddings: Arc::new(Embeddings::new(
                store.clone(),
                embedding,
                rerank,
                reranker.clone(),
            )),
            store,
            search,
            reranking: rerank,
            max_reply_bytes,
            analyzer: Analyzer::new(language),
            reranker,
        }
    }

    /// What embeds texts and queries.
    pub(crate) const fn embeddings(&self) -> &Arc<Embeddings> {
        &self.embeddings
    }

    /// Embeds with this provider from now on. When the database holds vectors of another model,
    /// semantic search stays off and says so: vectors of two models are never mixed.
    ///
    /// # Errors
    /// The store's.
    pub async fn use_embedder(&self, embedder: Arc<dyn Embedder>) -> Result<()> {
        self.embeddings.use_embedder(embedder).await
    }

    /// Says why there is no embedder.
    pub fn without_embedder(&self, reason: impl Into<String>) {
        self.embeddings.without_embedder(reason.into());
    }

    /// Says that the embedder does not answer yet: what is stored meanwhile gets its vectors later.
    pub fn awaiting_embedder(&self, reason: impl Into<String>) {
        self.embeddings.awaiting_embedder(reason.into());
    }

    /// Why semantic search does not work; `None` when it does.
    #[must_use]
    pub fn why_no_semantic_search(&self) -> Option<String> {
        self.embeddings.model().err()
    }

    /// Why RERANK_STORE_TOKENS has no effect; `None` when it has one, is off, or there is no model.
    #[must_use]
    pub fn why_no_stored_tokens(&self) -> Option<&'static str> {
        self.embeddings.why_no_stored_tokens()
    }

    /// Reranks with this from now on, instead of by late interaction.
    pub fn use_reranker(&self, reranker: Arc<dyn Reranker>) {
        self.reranker.set(reranker);
    }
}
