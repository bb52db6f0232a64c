//! Embeds the texts of a write before its transaction.

use std::time::Duration;

use context_model::Result;
use context_providers::{ProviderError, Role};
use context_store::{Embedding, call};
use futures::StreamExt as _;

use super::Embeddings;
use super::active_model::awaited;
use super::texts::{SplitTexts, split};
use crate::access::Admitted;
use crate::config::OnFailure;

/// Maximum time that a write waits for its vectors. After that, the missing ones are created in the background.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum time that a write waits for the first response of a provider since the start of the service.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// One part in this many of the call's remaining time is reserved for the write itself.
const WRITE_SHARE: u32 = 10;
/// Maximum number of chunks of a text for which a write waits. A small model needs some seconds for this many. Longer
/// texts are embedded in the background.
const MAX_WRITE_CHUNKS: usize = 400;
/// Number of chunks that a write embeds at a time. When its time is over, only the pieces in flight are lost.
const PIECE_CHUNKS: usize = 16;
/// Number of pieces in flight. The model is never idle between two of them, and the writes of several callers take
/// turns.
const PIECES_IN_FLIGHT: usize = 3;

/// Part of the reply when the vectors are created later.
const PENDING: &str = "are pending and will be created in the background";

/// The vectors of a write's items.
#[derive(Debug, Default)]
pub(crate) struct WriteEmbeddings {
    /// One for each item. Empty if no model is in use, no item has a new text, or the write is a repetition.
    pub items: Vec<Embedding>,
    /// For each item, whether its vectors are missing and will be created in the background. May be empty if none are.
    pub pending: Vec<bool>,
}

impl WriteEmbeddings {
    /// Whether any vectors will be created in the background.
    pub fn is_pending(&self) -> bool {
        self.pending.contains(&true)
    }
}

impl Embeddings {
    /// Embeds the texts of a write, in order, as many as the time of the call allows. Nothing is embedded if no model
    /// is in use, or for a repeated write, which stores nothing.
    ///
    /// Texts that are too long to wait for are pending, even with `EMBEDDING_ON_FAILURE=fail`: their length is no
    /// failure of the provider, and a retry would not help. The same holds for the texts of a batch with more than
    /// [`MAX_WRITE_CHUNKS`] chunks that have no vectors when the time is over.
    ///
    /// # Errors
    /// The provider's errors, with `EMBEDDING_ON_FAILURE=fail`.
    pub async fn embed_write(
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
        let time = || {
            call::time_left().map_or(WRITE_TIMEOUT, |left| {
                (left - left / WRITE_SHARE).min(WRITE_TIMEOUT)
            })
        };
        // If the provider does not respond within this time, its state remains as it is.
        let _ =
            tokio::time::timeout(time().min(FIRST_RESPONSE_TIMEOUT), self.first_response()).await;
        let pending = texts.iter().map(Option::is_some).collect();
        let fails = self.config.on_failure == OnFailure::Fail;
        let active = match self.model() {
            Ok(active) => active,
            Err(reason) if self.is_awaited() && fails => {
                return Err(awaited(reason));
            }
            Err(_) if self.is_awaited() => {
                return Ok(WriteEmbeddings {
                    items: Vec::new(),
                    pending,
                });
            }
            Err(_) => return Ok(WriteEmbeddings::default()),
        };
        let mut embeddings = WriteEmbeddings {
            items: vec![Embedding::Later; texts.len()],
            pending,
        };
        let mut is_long = false;
        let embedding = async {
            let texts = split(&active, texts).await?;
            is_long = texts.chunk_count() > MAX_WRITE_CHUNKS;
            let pieces = texts.into_pieces(PIECE_CHUNKS, MAX_WRITE_CHUNKS);
            let active = &*active;
            let embed = |(first, piece): (usize, SplitTexts)| async move {
                (first, piece.embed(active, Role::Document).await)
            };
            let mut pieces = futures::stream::iter(pieces)
                .map(embed)
                .buffered(PIECES_IN_FLIGHT);
            let mut refused = None;
            while let Some((first, piece)) = pieces.next().await {
                match piece {
                    Ok(piece) => {
                        for (index, embedding) in (first..).zip(piece) {
                            embeddings.items[index] = embedding;
                            embeddings.pending[index] = false;
                        }
                    }
                    // If the failure may pass, the other pieces would only wait and fail too. With
                    // EMBEDDING_ON_FAILURE=fail the write fails anyway.
                    Err(error) if error.is_retryable() || fails => return Err(error),
                    Err(error) => refused = Some(error),
                }
            }
            refused.map_or(Ok(()), Err)
        };
        let outcome = tokio::time::timeout(time(), embedding).await;
        let error = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) if is_long => None,
            Err(_) => Some(ProviderError::unavailable("it took too long")),
        };
        let waiting = embeddings
            .pending
            .iter()
            .filter(|pending| **pending)
            .count();
        match error {
            Some(error) if fails => return Err(active.error(error)),
            Some(error) => tracing::warn!(
                error = %error,
                entries = waiting,
                "Entries are stored without vectors, which will be created in the background"
            ),
            None if waiting > 0 => tracing::debug!(
                entries = waiting,
                "Long texts are stored without vectors, which will be created in the background"
            ),
            None => {}
        }
        Ok(embeddings)
    }

    /// Wakes the worker that creates pending vectors. Call it after the commit.
    pub fn wake_worker(&self) {
        self.wake.notify_one();
    }
}

/// The reply's message for a write of one entry. If its vectors are pending, it says so.
pub(crate) fn with_pending_note(message: String, pending: bool) -> String {
    if pending {
        format!("{message}; embeddings {PENDING}")
    } else {
        message
    }
}

/// The reply's message for a batch. It says how many entries wait for their vectors.
pub(crate) fn with_pending_count(message: String, entries: usize) -> String {
    match entries {
        0 => message,
        1 => format!("{message}; the embeddings of 1 entry {PENDING}"),
        entries => format!("{message}; the embeddings of {entries} entries {PENDING}"),
    }
}
