//! Embeds the texts of a write before its transaction.

use std::time::Duration;

use context_model::Result;
use context_providers::ProviderError;
use context_store::Embedding;

use super::Embeddings;
use super::active_model::awaited;
use super::texts::split;
use crate::access::Admitted;
use crate::config::OnFailure;

/// Maximum time that a write waits for its vectors. After that, they are created in the background.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of chunks for which a write waits. A small model needs some seconds for this many. Texts of more
/// chunks are embedded in the background.
const MAX_WRITE_CHUNKS: usize = 400;

/// Part of the reply when the vectors are created later.
const PENDING: &str = "embeddings are pending and will be created in the background";

/// The vectors of a write's items.
#[derive(Debug, Default)]
pub(crate) struct WriteEmbeddings {
    /// One for each item. Empty if no model is in use, no item has a new text, or the write is a repetition.
    pub items: Vec<Embedding>,
    /// Whether vectors are missing and will be created in the background.
    pub pending: bool,
}

impl Embeddings {
    /// Embeds the texts of a write. Nothing is embedded if no model is in use, or for a repeated write, which stores
    /// nothing. Texts that are too long to wait for are pending, also with `EMBEDDING_ON_FAILURE=fail`: their length is
    /// no failure of the provider, and a retry would not help.
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
                return Err(awaited(reason));
            }
            Err(_) => {
                return Ok(WriteEmbeddings {
                    items: Vec::new(),
                    pending: self.is_awaited(),
                });
            }
        };
        let pending = WriteEmbeddings {
            items: vec![Embedding::Later; texts.len()],
            pending: true,
        };
        let embedding = async {
            let texts = split(&active, texts).await?;
            if texts.chunk_count() > MAX_WRITE_CHUNKS {
                return Ok(None);
            }
            texts.embed(&active).await.map(Some)
        };
        let outcome = tokio::time::timeout(WRITE_TIMEOUT, embedding)
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("it took too long")));
        match outcome {
            Ok(Some(items)) => Ok(WriteEmbeddings {
                items,
                pending: false,
            }),
            Ok(None) => {
                tracing::debug!(
                    "Long texts are stored without vectors, which will be created in the background"
                );
                Ok(pending)
            }
            Err(error) if self.config.on_failure == OnFailure::Fail => Err(active.error(error)),
            Err(error) => {
                tracing::warn!(
                    error = %error,
                    "Entries are stored without vectors, which will be created in the background"
                );
                Ok(pending)
            }
        }
    }

    /// Wakes the worker that creates pending vectors. Call it after the commit.
    pub fn wake_worker(&self) {
        self.wake.notify_one();
    }
}

/// The reply's message. If vectors are pending, it says so.
pub(crate) fn with_pending_note(message: String, pending: bool) -> String {
    if pending {
        format!("{message}; {PENDING}")
    } else {
        message
    }
}
