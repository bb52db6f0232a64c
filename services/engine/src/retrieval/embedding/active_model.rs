//! The embedding model in use, and checks of its provider's responses.

use std::sync::Arc;
use std::time::Duration;

use context_model::{Error, Reason, Result};
use context_providers::{Embedder, ProviderError, QueryVectors};
use context_store::{EmbeddingModel, call};

use super::pace::Pace;
use super::token_cache::TokenCache;

/// Maximum time that a search waits for the vector of its query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// A model whose vectors the service stores: the one in use or, during a move to another model, the new one.
pub(crate) struct ActiveModel {
    pub embedder: Arc<dyn Embedder>,
    pub model: EmbeddingModel,
    /// Whether token vectors are stored with the chunk vectors and read for reranking.
    pub stores_tokens: bool,
    /// Whether token vectors of recent texts are cached for reranking.
    pub caches_tokens: bool,
    /// The token vectors of recent texts, and the vectors of recent sentences. `None` with a provider over HTTP, or if
    /// the cache has no room.
    pub token_cache: Option<TokenCache>,
    /// How fast the provider encodes texts for reranking and for snippets.
    pub pace: Pace,
}

/// Converts a provider's model to the store's type.
pub(crate) fn model_of(embedder: &dyn Embedder) -> EmbeddingModel {
    let found = embedder.model();
    EmbeddingModel {
        identity: found.identity(),
        dimensions: u32::try_from(found.dimensions).unwrap_or(u32::MAX),
    }
}

/// How long a caller should wait before it retries, if the provider did not say.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error of an operation that needs semantic search.
pub(crate) fn unavailable(reason: &str) -> Error {
    Error::new(
        Reason::FeatureUnavailable,
        format!("semantic search is not available: {reason}"),
    )
}

/// The error of an operation that needs a provider that has not responded since the start. `reason` is a sentence.
pub(crate) fn awaited(reason: String) -> Error {
    Error::new(Reason::ProviderUnavailable, reason).with_retry_after(RETRY_AFTER)
}

impl ActiveModel {
    /// Embeds the query. The result includes token vectors if the provider returns them in the same response.
    ///
    /// # Errors
    /// `PROVIDER_UNAVAILABLE` when the provider does not respond in time; the provider's errors.
    pub async fn embed_query(&self, query: &str) -> Result<QueryVectors> {
        let embedding = self.embedder.embed_query(query.to_owned());
        let QueryVectors { vector, tokens } = tokio::time::timeout(query_time(), embedding)
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("it took too long")))
            .map_err(|error| self.error(error))?;
        let mut vectors =
            checked(vec![vector], 1, self.model.dimensions).map_err(|error| self.error(error))?;
        let vector = vectors
            .pop()
            .ok_or_else(|| self.error(wrong("no vector")))?;
        Ok(QueryVectors { vector, tokens })
    }

    /// The error of an operation whose embedding failed.
    pub fn error(&self, error: ProviderError) -> Error {
        let provider = match self.embedder.address() {
            Some(address) => format!("the embedding provider at {address}"),
            None => "the embedding model".to_owned(),
        };
        let message = error.sentence(&provider);
        match error {
            ProviderError::Unavailable { retry_after, .. } => {
                Error::new(Reason::ProviderUnavailable, message)
                    .with_retry_after(retry_after.unwrap_or(RETRY_AFTER))
            }
            ProviderError::Refused(_) | ProviderError::Malformed(_) => {
                Error::new(Reason::FeatureUnavailable, message)
            }
        }
    }
}

/// How long a query waits for its vector. A quarter of the time of the call is left for the searches without it.
fn query_time() -> Duration {
    call::time_left().map_or(QUERY_TIMEOUT, |left| (left - left / 4).min(QUERY_TIMEOUT))
}

fn wrong(what: &str) -> ProviderError {
    ProviderError::Malformed(what.to_owned())
}

/// Checks a provider's vectors and scales them to length 1.
///
/// # Errors
/// When the number of vectors is not `count`, or a vector is zero, is not finite or has the wrong number of dimensions.
pub(super) fn checked(
    mut vectors: Vec<Vec<f32>>,
    count: usize,
    dimensions: u32,
) -> Result<Vec<Vec<f32>>, ProviderError> {
    if vectors.len() != count {
        return Err(wrong(
            "the number of vectors differs from the number of texts",
        ));
    }
    for vector in &mut vectors {
        if u32::try_from(vector.len()) != Ok(dimensions) {
            return Err(wrong("a vector does not have the model's dimensions"));
        }
        let length = vector
            .iter()
            .map(|value| f64::from(*value) * f64::from(*value))
            .sum::<f64>()
            .sqrt();
        if !length.is_finite() || length < 1e-12 {
            return Err(wrong("a vector is zero or not finite"));
        }
        vector
            .iter_mut()
            .for_each(|value| *value = (f64::from(*value) / length) as f32);
    }
    Ok(vectors)
}
