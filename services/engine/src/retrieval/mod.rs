//! The four searches, and the models they use.
//!
//! Each search validates its request and converts its filters to one `Filter`.
//!
//! - `filter_search` returns the newest entries that match the filter. A page takes one read of the store.
//! - `full_text` returns the entries that match a query best. With reranking it uses `ranked`. Without reranking, a
//!   page takes one read.
//! - `semantic` and `hybrid` choose their retrievers: full-text, semantic or both. `ranked` then gets the ids that each
//!   retriever finds, best first, from the store. It reranks them and reads the entries of the page at the ranking's
//!   revision. Before reranking, `fusion` combines the two rankings of a hybrid search.
//! - `rerank` compares the texts of the best candidates with the query, with a reranker or by `late_interaction`. Late
//!   interaction also uses the preceding `turns` of an entry, if they are candidates themselves.
//! - `relevance` says how likely an entry is about the query at all.
//! - `evidence` finds the part of a long text that answers the query. `sentences` compares the sentences of the text
//!   with the query for this.
//! - `long_query` selects the terms of a query that has too many for the full-text retriever.
//! - `documents` reads artifacts, which ranked searches treat as entries.
//! - `hits` converts entries to results, and `truncate` shortens their texts.
//! - `status` says which searches work, for `get_statistics`.
//! - `embedding` holds the embedding model in use and creates the vectors of stored texts. `reranker` holds the
//!   configured reranker.

mod documents;
mod embedding;
mod evidence;
mod filter_search;
mod full_text;
mod fusion;
mod hits;
mod hybrid;
mod late_interaction;
mod long_query;
mod ranked;
mod relevance;
mod rerank;
mod reranker;
mod semantic;
mod sentences;
mod status;
mod truncate;
mod turns;

pub(crate) use embedding::{
    ActiveModel, Embeddings, WriteEmbeddings, embed, model_of, unavailable, with_pending_count,
    with_pending_note,
};
pub(crate) use truncate::truncate;

use std::sync::Arc;

use context_model::Result;
use context_providers::{Embedder, Reranker};
use context_store::Store;
use context_text::{Analyzer, Language};

use crate::config::{EmbeddingConfig, RerankConfig, SearchConfig};
use reranker::CurrentReranker;

/// The searches on one store.
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

    /// The embedding model in use.
    pub(crate) const fn embeddings(&self) -> &Arc<Embeddings> {
        &self.embeddings
    }

    /// Uses this embedding provider from now on. If the database contains vectors of another model, semantic search
    /// stays off and reports this. Vectors of two models are never mixed.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn use_embedder(&self, embedder: Arc<dyn Embedder>) -> Result<()> {
        self.embeddings.use_embedder(embedder).await
    }

    /// Switches embedding off. `reason` appears in the errors of semantic search.
    pub fn without_embedder(&self, reason: impl Into<String>) {
        self.embeddings.without_embedder(reason.into());
    }

    /// Records that the embedding provider is tried for the first time. Writes wait some seconds for the outcome.
    /// `reason` appears in the errors of semantic search.
    pub fn trying_embedder(&self, reason: impl Into<String>) {
        self.embeddings.trying_embedder(reason.into());
    }

    /// Records that the embedding provider does not respond yet. Entries stored meanwhile get their vectors later.
    /// `reason` appears in the errors of semantic search.
    pub fn awaiting_embedder(&self, reason: impl Into<String>) {
        self.embeddings.awaiting_embedder(reason.into());
    }

    /// Why semantic search is unavailable. `None` when it is available.
    #[must_use]
    pub fn why_no_semantic_search(&self) -> Option<String> {
        self.embeddings.model().err()
    }

    /// Why RERANK_STORE_TOKENS has no effect. `None` when it has an effect, when it is off, or when no model is in use.
    #[must_use]
    pub fn why_no_stored_tokens(&self) -> Option<&'static str> {
        self.embeddings.why_no_stored_tokens()
    }

    /// Uses this reranker from now on, instead of late interaction.
    pub fn use_reranker(&self, reranker: Arc<dyn Reranker>) {
        self.reranker.set(reranker);
    }
}
