//! The embedding model in use, if any, and the embedding of texts.

mod active_model;
mod pace;
mod progress;
mod texts;
mod token_cache;
mod write;

pub(crate) use active_model::{ActiveModel, awaited, model_of, unavailable};
pub(crate) use pace::Pace;
pub(crate) use progress::Progress;
pub(crate) use texts::embed;
pub(crate) use token_cache::{TextKey, TokenCache};
pub(crate) use write::{WriteEmbeddings, with_pending_count, with_pending_note};

use std::sync::{Arc, RwLock};

use context_model::Result;
use context_providers::Embedder;
use context_store::{EmbeddingModel, ModelUse, Store};
use tokio::sync::Notify;

use super::reranker::CurrentReranker;
use crate::config::{EmbeddingConfig, RerankConfig, Switch};
use crate::error::store_error;
use crate::lock;

/// Why late interaction is impossible with a provider.
pub(super) const NO_TOKEN_VECTORS: &str = "this embedding provider does not return token vectors";

/// The embedding model in use, if any.
pub(crate) struct Embeddings {
    store: Arc<dyn Store>,
    config: EmbeddingConfig,
    rerank: RerankConfig,
    reranker: Arc<CurrentReranker>,
    state: RwLock<State>,
    /// Wakes the worker that embeds entries without vectors.
    wake: Notify,
    /// Wakes writes that wait for the first response of the provider.
    state_changed: Notify,
    /// How fast waiting entries get their vectors.
    pub progress: Progress,
}

enum State {
    /// No model is in use. Contains the reason.
    Off(String),
    /// The provider is configured, and the first attempt to reach it is running. Contains the reason for callers that
    /// do not wait.
    Trying(String),
    /// The provider is configured but has not responded yet. Contains the reason.
    Awaited(String),
    Active(Arc<ActiveModel>),
}

impl Embeddings {
    pub fn new(
        store: Arc<dyn Store>,
        config: EmbeddingConfig,
        rerank: RerankConfig,
        reranker: Arc<CurrentReranker>,
    ) -> Self {
        Self {
            store,
            config,
            rerank,
            reranker,
            state: RwLock::new(State::Off("no embedding model is configured".to_owned())),
            wake: Notify::new(),
            state_changed: Notify::new(),
            progress: Progress::default(),
        }
    }

    fn set(&self, state: State) {
        *lock::write(&self.state) = state;
        self.state_changed.notify_waiters();
    }

    /// Uses this provider from now on, unless the database contains vectors of another model.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn use_embedder(&self, embedder: Arc<dyn Embedder>) -> Result<()> {
        let model = model_of(&*embedder);
        let state = match self
            .store
            .vectors()
            .use_model(&model)
            .await
            .map_err(store_error)?
        {
            ModelUse::Ready => State::Active(Arc::new(self.activate(embedder, model))),
            ModelUse::Impossible(reason) => State::Off(reason),
            ModelUse::Other(stored) => State::Off(format!(
                "the database holds vectors of the model `{}` ({} dimensions), and the configured one is `{}` ({}); run \
                 `context-service reembed` with the same settings to move to it, or configure the first again",
                stored.identity, stored.dimensions, model.identity, model.dimensions
            )),
        };
        self.set(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Combines the provider with its model. Token vectors are stored if RERANK_STORE_TOKENS is set and reranking reads
    /// them, and otherwise only cached in memory. Install the reranker first: a reranker that is installed later does
    /// not change what is stored.
    pub fn activate(&self, embedder: Arc<dyn Embedder>, model: EmbeddingModel) -> ActiveModel {
        let uses_tokens = self.why_tokens_are_unused(&*embedder).is_none();
        let is_local = embedder.address().is_none();
        let cache_bytes = (self.rerank.cache_mb as usize).saturating_mul(1024 * 1024);
        ActiveModel {
            embedder,
            model,
            stores_tokens: uses_tokens && self.rerank.store_tokens,
            caches_tokens: uses_tokens && cache_bytes > 0,
            // Snippets need the vectors of sentences, also without reranking.
            token_cache: (is_local && cache_bytes > 0).then(|| TokenCache::new(cache_bytes)),
            pace: Pace::default(),
        }
    }

    /// Why reranking does not read token vectors. `None` when it does.
    fn why_tokens_are_unused(&self, embedder: &dyn Embedder) -> Option<&'static str> {
        if self.rerank.enabled == Switch::False {
            Some("reranking is off")
        } else if self.reranker.get().is_some() {
            Some("a reranker is configured that reads texts")
        } else if !embedder.has_token_vectors() {
            Some(NO_TOKEN_VECTORS)
        } else {
            None
        }
    }

    /// Why RERANK_STORE_TOKENS has no effect. `None` when it has an effect, when it is off, or when no model is in use.
    pub fn why_no_stored_tokens(&self) -> Option<&'static str> {
        if !self.rerank.store_tokens {
            return None;
        }
        let active = self.model().ok()?;
        self.why_tokens_are_unused(&*active.embedder)
    }

    /// Switches embedding off. `reason` appears in the errors of semantic search.
    pub fn without_embedder(&self, reason: String) {
        self.set(State::Off(reason));
    }

    /// Records that the provider is tried for the first time. Writes wait for the outcome. `reason` appears in the
    /// errors of semantic search.
    pub fn trying_embedder(&self, reason: String) {
        self.set(State::Trying(reason));
    }

    /// Records that the provider does not respond yet. `reason` appears in the errors of semantic search.
    pub fn awaiting_embedder(&self, reason: String) {
        self.set(State::Awaited(reason));
    }

    /// Waits until the first attempt to reach the provider has succeeded or failed.
    async fn first_response(&self) {
        loop {
            let changed = self.state_changed.notified();
            if !matches!(&*lock::read(&self.state), State::Trying(_)) {
                return;
            }
            changed.await;
        }
    }

    /// Whether the provider is configured but has not responded yet.
    pub fn is_awaited(&self) -> bool {
        self.config.enabled != Switch::False
            && matches!(
                &*lock::read(&self.state),
                State::Trying(_) | State::Awaited(_)
            )
    }

    /// The model in use, or why semantic search does not work.
    pub fn model(&self) -> Result<Arc<ActiveModel>, String> {
        if self.config.enabled == Switch::False {
            return Err("switched off by ENABLE_SEMANTIC_SEARCH=false".to_owned());
        }
        match &*lock::read(&self.state) {
            State::Active(active) => Ok(Arc::clone(active)),
            State::Off(reason) | State::Trying(reason) | State::Awaited(reason) => {
                Err(reason.clone())
            }
        }
    }

    /// Waits until new entries without vectors may exist.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}
