use async_trait::async_trait;

use crate::ProviderError;

/// Writes summaries.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// Who runs it.
    fn provider(&self) -> &'static str;

    /// The model's name.
    fn model(&self) -> &str;

    /// A summary of the text, of so many tokens at most; never blank.
    ///
    /// # Errors
    /// [`ProviderError`].
    async fn summarize(&self, text: &str, max_tokens: u32) -> Result<String, ProviderError>;
}
