use async_trait::async_trait;

use crate::ProviderError;

/// Scores how well texts match a query.
#[async_trait]
pub trait Reranker: Send + Sync {
    /// The provider.
    fn provider(&self) -> &'static str;

    /// The model's name.
    fn model(&self) -> &str;

    /// A score for each text, in order: 0 to 1, higher is better.
    ///
    /// # Errors
    /// [`ProviderError`].
    async fn rerank(&self, query: &str, texts: Vec<String>) -> Result<Vec<f64>, ProviderError>;
}

/// Converts a logit to a score between 0 and 1.
pub(crate) fn probability(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}
