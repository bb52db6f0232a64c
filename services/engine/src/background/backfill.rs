//! Embedding in the background what was stored without vectors: while the provider was away, before there was a model,
//! or because a text was too long to wait for. Entries without vectors are found in the database, so nothing is
//! forgotten over a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use context_model::Error;
use context_providers::ProviderError;
use context_store::{Embedding, LateEmbedding, OwnerId, Unembedded, VectorStore};

use super::Background;
use crate::error::store_error;
use crate::retrieval::{ActiveModel, embed, provider_error};

/// Entries read at a time.
pub(super) const ENTRIES: u32 = 16;
/// How long to wait after a failure, doubled each time, and the most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Entries passed over in a row, at most, because the provider fails at them.
const FAILURES_IN_A_ROW: u32 = 8;
/// How often all entries are read when nothing is known to wait: what was refused is tried again then.
const INTERVAL: Duration = Duration::from_secs(600);
/// How often the store may look after its vectors.
const MAINTENANCE: Duration = Duration::from_secs(30);

/// How a pass over all entries ended.
enum Pass {
    /// Everything that could be embedded is.
    Done,
    /// There is no model.
    Off,
    /// The provider or the database is away.
    Failed(Option<Duration>),
}

impl Background {
    /// Embeds what waits and keeps vectors in good order, as long as the returned future is polled. Does nothing while
    /// there is no model.
    pub async fn backfill(&self) {
        tokio::join!(self.embed_waiting(), self.maintain_vectors());
    }

    async fn maintain_vectors(&self) {
        loop {
            if self.embeddings.model().is_ok()
                && let Err(error) = self.store.vectors().maintain().await
            {
                tracing::warn!(error = %error, "The vectors could not be looked after; it is tried again");
            }
            tokio::time::sleep(MAINTENANCE).await;
        }
    }

    async fn embed_waiting(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let rest = match self.pass().await {
                Pass::Done => {
                    pause = FIRST_PAUSE;
                    INTERVAL
                }
                Pass::Off => INTERVAL,
                Pass::Failed(retry_after) => {
                    let rest = retry_after.unwrap_or(pause).min(LONGEST_PAUSE);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    // Stores that fail meanwhile must not shorten it.
                    tokio::time::sleep(rest).await;
                    continue;
                }
            };
            tokio::select! {
                () = self.embeddings.woken() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    async fn pass(&self) -> Pass {
        let Ok(active) = self.embeddings.model() else {
            return Pass::Off;
        };
        let vectors = self.store.vectors();
        let (mut after, mut embedded) = (None, 0);
        let mut at_once = ENTRIES;
        let (mut done_in_a_row, mut failed_in_a_row, mut passed_over) = (0, 0, 0);
        loop {
            let page = match vectors
                .unembedded(&active.model, after.as_ref(), at_once)
                .await
            {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(error = %error, "Entries without vectors cannot be read now");
                    return Pass::Failed(None);
                }
            };
            match slice(&active, vectors, page.entries).await {
                Ok(done) => {
                    embedded += done.taken;
                    (done_in_a_row, failed_in_a_row) = (done_in_a_row + 1, 0);
                    if done_in_a_row == ENTRIES {
                        (at_once, done_in_a_row) = ((at_once * 2).min(ENTRIES), 0);
                    }
                }
                // A provider that is away soon says when to ask again. Perhaps so many take too long, or it fails at one of them.
                Err(failure) if failure.retry_after.is_none() && at_once > 1 => {
                    tracing::debug!(error = %failure.error, at_once, "Fewer entries are embedded at once");
                    (at_once, done_in_a_row) = (at_once / 2, 0);
                    continue;
                }
                Err(failure)
                    if failure.retry_after.is_none() && failed_in_a_row < FAILURES_IN_A_ROW =>
                {
                    tracing::debug!(error = %failure.error, "An entry keeps waiting for its vectors, and those behind it do not");
                    (done_in_a_row, failed_in_a_row, passed_over) =
                        (0, failed_in_a_row + 1, passed_over + 1);
                }
                Err(failure) => {
                    tracing::debug!(error = %failure.error, "Entries keep waiting for their vectors");
                    return Pass::Failed(failure.retry_after);
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        if embedded > 0 {
            tracing::info!(entries = embedded, "Embedded entries that waited for it");
        }
        if passed_over > 0 {
            Pass::Failed(None)
        } else {
            Pass::Done
        }
    }
}

/// What became of some entries.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slice {
    /// So many took their vectors.
    pub taken: u64,
    /// So many the model refused.
    pub refused: u64,
}

/// The provider or the database is away.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: Error,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// Embeds some entries.
///
/// # Errors
/// The provider or the database is away.
pub(super) async fn slice(
    active: &Arc<ActiveModel>,
    vectors: &dyn VectorStore,
    entries: Vec<Unembedded>,
) -> Result<Slice, Failure> {
    let mut done = Slice::default();
    if entries.is_empty() {
        return Ok(done);
    }
    let texts = entries
        .iter()
        .map(|entry| Some(entry.text.clone()))
        .collect();
    let embeddings = match embed(active, texts, usize::MAX).await {
        Ok(embeddings) => embeddings,
        Err(error @ ProviderError::Unavailable { retry_after, .. }) => {
            return Err(Failure {
                error: provider_error(error),
                retry_after,
            });
        }
        // One of them cannot be embedded; the others can, alone.
        Err(error) if entries.len() > 1 => {
            tracing::debug!(error = %error, "Entries are embedded one by one");
            for entry in entries {
                let Slice { taken, refused } =
                    Box::pin(slice(active, vectors, vec![entry])).await?;
                done.taken += taken;
                done.refused += refused;
            }
            return Ok(done);
        }
        Err(error) => {
            tracing::warn!(error = %error, entry.id = entries[0].id, "An entry cannot be embedded");
            return Ok(Slice {
                taken: 0,
                refused: 1,
            });
        }
    };
    let mut of_owner: HashMap<OwnerId, Vec<LateEmbedding>> = HashMap::new();
    for (entry, embedding) in entries.into_iter().zip(embeddings) {
        if let Embedding::Now(embedded) = embedding {
            of_owner
                .entry(entry.owner)
                .or_default()
                .push(LateEmbedding {
                    id: entry.id,
                    version: entry.version,
                    embedded,
                });
        }
    }
    for (owner, embeddings) in of_owner {
        let taken = vectors.add_embeddings(&owner, embeddings).await;
        done.taken += taken.map_err(|error| Failure {
            error: store_error(error),
            retry_after: None,
        })?;
    }
    Ok(done)
}
