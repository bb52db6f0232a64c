use async_trait::async_trait;

use crate::ProviderError;

/// Judges how well texts answer a query, one by one.
#[async_trait]
pub trait Reranker: Send + Sync {
    /// Who runs it.
    fn provider(&self) -> &'static str;

    /// The model's name.
    fn model(&self) -> &str;

    /// A score for each text, in order: 0 to 1, higher is better.
    ///
    /// # Errors
    /// [`ProviderError`].
    async fn rerank(&self, query: &str, texts: Vec<String>) -> Result<Vec<f64>, ProviderError>;
}

/// The score that a logit stands for.
pub(crate) fn probability(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}
