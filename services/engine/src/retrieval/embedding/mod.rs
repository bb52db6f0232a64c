//! The embedding model in use, if there is one, and what is embedded with it.

mod active_model;
mod texts;
mod write;

pub(crate) use active_model::{ActiveModel, model_of, provider_error, unavailable};
pub(crate) use texts::embed;
pub(crate) use write::WriteEmbeddings;

use std::sync::{Arc, RwLock};

use context_model::Result;
use context_providers::Embedder;
use context_store::{EmbeddingModel, ModelUse, Store};
use tokio::sync::Notify;

use super::reranker::CurrentReranker;
use crate::config::{EmbeddingConfig, RerankConfig, Switch};
use crate::error::store_error;
use crate::lock;

/// The embedding model in use, if there is one.
pub(crate) struct Embeddings {
    store: Arc<dyn Store>,
    config: EmbeddingConfig,
    rerank: RerankConfig,
    reranker: Arc<CurrentReranker>,
    state: RwLock<State>,
    /// Wakes what embeds entries that wait.
    wake: Notify,
}

enum State {
    /// There is no model, for this reason.
    Off(String),
    /// There is one once the provider answers.
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
        }
    }

    fn set(&self, state: State) {
        *lock::write(&self.state) = state;
    }

    /// Embeds with this provider from now on, unless the database holds vectors of another model.
    ///
    /// # Errors
    /// The store's.
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

    /// A model whose vectors are stored, and those of tokens too when they are wanted and of use.
    pub fn activate(&self, embedder: Arc<dyn Embedder>, model: EmbeddingModel) -> ActiveModel {
        let stores_tokens =
            self.rerank.store_tokens && self.why_tokens_are_of_no_use(&*embedder).is_none();
        ActiveModel {
            embedder,
            model,
            stores_tokens,
        }
    }

    fn why_tokens_are_of_no_use(&self, embedder: &dyn Embedder) -> Option<&'static str> {
        if self.rerank.enabled == Switch::False {
            Some("reranking is off")
        } else if self.reranker.get().is_some() {
            Some("a reranker is configured that reads texts")
        } else if !embedder.has_token_vectors() {
            Some("this embedding provider gives no vectors of tokens")
        } else {
            None
        }
    }

    /// Why RERANK_STORE_TOKENS has no effect; `None` when it has one, is off, or there is no model.
    pub fn why_no_stored_tokens(&self) -> Option<&'static str> {
        if !self.rerank.store_tokens {
            return None;
        }
        let active = self.model().ok()?;
        self.why_tokens_are_of_no_use(&*active.embedder)
    }

    /// Says why there is no embedder.
    pub fn without_embedder(&self, reason: String) {
        self.set(State::Off(reason));
    }

    /// Says that the embedder does not answer yet.
    pub fn awaiting_embedder(&self, reason: String) {
        self.set(State::Awaited(reason));
    }

    /// Whether the provider is configured and did not answer yet.
    pub fn is_awaited(&self) -> bool {
        self.config.enabled != Switch::False
            && matches!(&*lock::read(&self.state), State::Awaited(_))
    }

    /// The model in use, or why semantic search does not work.
    pub fn model(&self) -> Result<Arc<ActiveModel>, String> {
        if self.config.enabled == Switch::False {
            return Err("switched off by ENABLE_SEMANTIC_SEARCH=false".to_owned());
        }
        match &*lock::read(&self.state) {
            State::Active(active) => Ok(Arc::clone(active)),
            State::Off(reason) | State::Awaited(reason) => Err(reason.clone()),
        }
    }

    /// Waits until entries may wait for their vectors that did not before.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}
