//! The vectors of a write: made before its transaction, or later in the background.

use std::time::Duration;

use context_model::Result;
use context_providers::ProviderError;
use context_store::Embedding;

use super::Embeddings;
use super::active_model::provider_error;
use super::texts::embed;
use crate::access::Admitted;
use crate::config::OnFailure;

/// How long a write waits for its vectors; after that they are made in the background.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Chunks that a write waits for at most: some seconds of a small model.
const WRITE_CHUNKS: usize = 400;

/// What is said of an entry whose vectors come later.
const PENDING: &str = "embeddings are pending and follow in the background";

/// The vectors of a write's items.
#[derive(Debug, Default)]
pub(crate) struct WriteEmbeddings {
    /// One for each item.
    pub items: Vec<Embedding>,
    /// Whether some could have been made and were not.
    pub pending: bool,
}

impl Embeddings {
    /// The vectors of a write's texts. Without a model there are none, nor for a write that is
    /// repeated: it stores nothing.
    ///
    /// # Errors
    /// The provider's, with `EMBEDDING_ON_FAILURE=fail`.
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

    /// The message of a write that was made; when vectors come later it says so, and what makes them is woken.
    pub fn stored_message(&self, message: String, pending: bool) -> String {
        if !pending {
            return message;
        }
        self.wake.notify_one();
        format!("{message}; {PENDING}")
    }
}
