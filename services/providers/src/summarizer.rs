use async_trait::async_trait;

use crate::ProviderError;

/// Writes summaries of texts.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// The provider.
    fn provider(&self) -> &'static str;

    /// The model's name.
    fn model(&self) -> &str;

    /// Maximum number of characters that the model reads. Longer texts are truncated.
    fn max_chars(&self) -> usize;

    /// A summary of a text, in the text's language. Not blank, at most 20 000 characters, without U+0000.
    ///
    /// # Errors
    /// [`ProviderError`].
    async fn summarize(&self, text: &str) -> Result<String, ProviderError>;
}
