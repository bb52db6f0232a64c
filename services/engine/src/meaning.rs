//! The embedding model that the operations use, if there is one.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use context_model::{Error, Reason, Result};
use context_providers::{Embedder, ProviderError, QueryVectors, Reranker};
use context_store::{EmbeddingModel, ModelUse, VectorStore};
use tokio::sync::Notify;

use crate::{Engine, Switch};

/// How long a search waits for the vector of its query.
const QUERY_PATIENCE: Duration = Duration::from_secs(20);

/// The state of search by meaning.
pub(crate) struct Meaning {
    state: RwLock<State>,
    /// Judges results, when one is configured.
    reranker: RwLock<Option<Arc<dyn Reranker>>>,
    /// Wakes whoever embeds entries that wait.
    pub wake: Notify,
}

enum State {
    /// It does not work, for this reason.
    Off(String),
    /// It will work once the provider answers.
    Awaited(String),
    Ready(Arc<Ready>),
}

/// A model whose vectors the store keeps.
pub(crate) struct Ready {
    pub embedder: Arc<dyn Embedder>,
    pub model: EmbeddingModel,
    /// Whether the vectors of tokens are stored with those of texts, and read when results are reranked.
    pub stores_tokens: bool,
}

impl Default for Meaning {
    fn default() -> Self {
        Self {
            state: RwLock::new(State::Off("no embedding model is configured".to_owned())),
            reranker: RwLock::default(),
            wake: Notify::new(),
        }
    }
}

impl Meaning {
    fn set(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Engine {
    /// Embeds with this provider from now on. When the database holds vectors of another model, search by meaning stays
    /// off and says so: vectors of two models are never mixed.
    ///
    /// # Errors
    /// The store's.
    pub async fn use_embedder(&self, embedder: Arc<dyn Embedder>) -> Result<()> {
        let model = model_of(&*embedder);
        let state = match self.store.vectors() {
            None => State::Off("this database keeps no vectors".to_owned()),
            Some(vectors) => match vectors
                .use_model(&model)
                .await
                .map_err(crate::store_error)?
            {
                ModelUse::Ready => State::Ready(Arc::new(self.ready(embedder, model))),
                ModelUse::Impossible(reason) => State::Off(reason),
                ModelUse::Other(kept) => State::Off(format!(
                    "the database holds vectors of the model `{}` ({} dimensions), and the configured one is `{}` ({}); run \
                     `context-service reembed` with the same settings to move to it, or configure the first again",
                    kept.identity, kept.dimensions, model.identity, model.dimensions
                )),
            },
        };
        self.meaning.set(state);
        self.meaning.wake.notify_one();
        Ok(())
    }

    /// A model whose vectors are stored, and those of tokens too when they are wanted and of use.
    pub(crate) fn ready(&self, embedder: Arc<dyn Embedder>, model: EmbeddingModel) -> Ready {
        let stores_tokens =
            self.config.rerank_store_tokens && self.why_tokens_are_of_no_use(&*embedder).is_none();
        Ready {
            embedder,
            model,
            stores_tokens,
        }
    }

    fn why_tokens_are_of_no_use(&self, embedder: &dyn Embedder) -> Option<&'static str> {
        if self.config.reranking == Switch::False {
            Some("reranking is off")
        } else if self.reranker().is_some() {
            Some("a reranker is configured that reads texts")
        } else if !embedder.has_token_vectors() {
            Some("this embedding provider gives no vectors of tokens")
        } else {
            None
        }
    }

    /// Why storing vectors of tokens would be in vain; `None` when it is not, or search by meaning is off.
    #[must_use]
    pub fn why_no_stored_tokens(&self) -> Option<&'static str> {
        let (ready, _) = self.meaning().ok()?;
        self.why_tokens_are_of_no_use(&*ready.embedder)
    }

    /// Reranks with this from now on, instead of by late interaction.
    pub fn use_reranker(&self, reranker: Arc<dyn Reranker>) {
        *self
            .meaning
            .reranker
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(reranker);
    }

    pub(crate) fn reranker(&self) -> Option<Arc<dyn Reranker>> {
        self.meaning
            .reranker
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Says why there is no embedder.
    pub fn without_embedder(&self, reason: impl Into<String>) {
        self.meaning.set(State::Off(reason.into()));
    }

    /// Says that the embedder is not there yet: what is stored meanwhile gets its vectors later.
    pub fn awaiting_embedder(&self, reason: impl Into<String>) {
        self.meaning.set(State::Awaited(reason.into()));
    }

    /// Whether the provider is configured and did not answer yet.
    pub(crate) fn awaits_meaning(&self) -> bool {
        let state = self
            .meaning
            .state
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        self.config.semantic != Switch::False && matches!(&*state, State::Awaited(_))
    }

    /// The model and the vectors, or why search by meaning does not work.
    pub(crate) fn meaning(&self) -> Result<(Arc<Ready>, &dyn VectorStore), String> {
        if self.config.semantic == Switch::False {
            return Err("switched off by ENABLE_SEMANTIC_SEARCH=false".to_owned());
        }
        let state = self
            .meaning
            .state
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        match (&*state, self.store.vectors()) {
            (State::Ready(ready), Some(vectors)) => Ok((Arc::clone(ready), vectors)),
            (State::Ready(_), None) => Err("this database keeps no vectors".to_owned()),
            (State::Off(reason) | State::Awaited(reason), _) => Err(reason.clone()),
        }
    }

    /// Why search by meaning does not work; `None` when it does.
    #[must_use]
    pub fn why_no_meaning(&self) -> Option<String> {
        self.meaning().err()
    }
}

/// A provider's model as stores know it.
pub(crate) fn model_of(embedder: &dyn Embedder) -> EmbeddingModel {
    let found = embedder.model();
    EmbeddingModel {
        identity: found.identity(),
        dimensions: u32::try_from(found.dimensions).unwrap_or(u32::MAX),
    }
}

pub(crate) fn unavailable(reason: &str) -> Error {
    Error::new(
        Reason::FeatureUnavailable,
        format!("semantic search is not available: {reason}"),
    )
}

impl Ready {
    /// The query's vector, and those of its tokens where they come with it.
    pub async fn of_query(&self, query: &str) -> Result<QueryVectors> {
        let embedding = self.embedder.embed_query(query.to_owned());
        let QueryVectors { vector, tokens } = tokio::time::timeout(QUERY_PATIENCE, embedding)
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("it took too long")))
            .map_err(provider_error)?;
        let mut vectors =
            checked(vec![vector], 1, self.model.dimensions).map_err(provider_error)?;
        let vector = vectors
            .pop()
            .ok_or_else(|| provider_error(wrong("no vector")))?;
        Ok(QueryVectors { vector, tokens })
    }
}

fn wrong(what: &str) -> ProviderError {
    ProviderError::Malformed(what.to_owned())
}

/// Vectors as they were asked for, scaled to length 1 whatever the provider did.
///
/// # Errors
/// Another number of vectors, another length, or one without a direction.
pub(crate) fn checked(
    mut vectors: Vec<Vec<f32>>,
    count: usize,
    dimensions: u32,
) -> Result<Vec<Vec<f32>>, ProviderError> {
    if vectors.len() != count {
        return Err(wrong("it has another number of vectors than of texts"));
    }
    for vector in &mut vectors {
        if u32::try_from(vector.len()) != Ok(dimensions) {
            return Err(wrong("a vector has another length than the model's"));
        }
        let length = vector
            .iter()
            .map(|value| f64::from(*value) * f64::from(*value))
            .sum::<f64>()
            .sqrt();
        if !length.is_finite() || length < 1e-12 {
            return Err(wrong("a vector has no direction"));
        }
        vector
            .iter_mut()
            .for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
    Ok(vectors)
}

pub(crate) fn provider_error(error: ProviderError) -> Error {
    let message = format!("no embedding could be made: {error}");
    match error {
        ProviderError::Unavailable { retry_after, .. } => {
            Error::new(Reason::StoreUnavailable, message)
                .with_retry_after(retry_after.unwrap_or(Duration::from_secs(1)))
        }
        ProviderError::Refused(_) | ProviderError::Malformed(_) => {
            Error::new(Reason::FeatureUnavailable, message)
        }
    }
}
