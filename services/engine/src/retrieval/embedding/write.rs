//! Embeds the texts of a write, before its transaction or later in the background.

use std::time::Duration;

use context_model::Result;
use context_providers::ProviderError;
use context_store::Embedding;

use super::Embeddings;
use super::active_model::provider_error;
use super::texts::embed;
use crate::access::Admitted;
use crate::config::OnFailure;

/// Maximum time that a write waits for its vectors. After that, they are created in the background.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of chunks for which a write waits. A small model needs some seconds for this many.
const WRITE_CHUNKS: usize = 400;

/// Part of the reply when the vectors are created later.
const PENDING: &str = "embeddings are pending and follow in the background";

/// The vectors of a write's items.
#[derive(Debug, Default)]
pub(crate) struct WriteEmbeddings {
    /// One for each item. Empty when no model is in use.
    pub items: Vec<Embedding>,
    /// Whether vectors are missing and will be created in the background.
    pub pending: bool,
}

impl Embeddings {
    /// Embeds the texts of a write. Nothing is embedded if no model is in use, or for a repeated write, which stores
    /// nothing.
    ///
    /// # Errors
    /// The provider's errors, with `EMBEDDING_ON_FAILURE=fail`.
    pub async fn of_write(
        &self,
        admitted: Admitted,
        texts: impl FnOnce() -> Vec<Option<String>>,
    ) -> Result<WriteEmbeddings> {
        let texts = match admitted {
            Admitted::New => texts(),
            Admitted::Repeated => return Ok(WriteEmbeddings::default()),
        };
        if texts.iter().all(Option::is_none) {
            return Ok(WriteEmbeddings::default());
        }
        let active = match self.model() {
            Ok(active) => active,
            Err(reason) if self.is_awaited() && self.config.on_failure == OnFailure::Fail => {
                return Err(provider_error(ProviderError::unavailable(reason)));
            }
            Err(_) => {
                return Ok(WriteEmbeddings {
                    items: Vec::new(),
                    pending: self.is_awaited(),
                });
            }
        };
        let count = texts.len();
        let outcome = tokio::time::timeout(WRITE_TIMEOUT, embed(&active, texts, WRITE_CHUNKS))
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("it took too long")));
        match outcome {
            Ok(items) => Ok(WriteEmbeddings {
                items,
                pending: false,
            }),
            Err(error) if self.config.on_failure == OnFailure::Fail => Err(provider_error(error)),
            Err(error) => {
                tracing::warn!(error = %error, "Entries are stored without vectors; they follow in the background");
                Ok(WriteEmbeddings {
                    items: vec![Embedding::Later; count],
                    pending: true,
                })
            }
        }
    }

    /// The reply's message for a committed write. When vectors are pending, the message says so, and the worker that
    /// creates them is woken.
    pub fn stored_message(&self, message: String, pending: bool) -> String {
        if !pending {
            return message;
        }
        self.wake.notify_one();
        format!("{message}; {PENDING}")
    }
}
