//! Embedding in the background what was stored without vectors: while the provider was away, before there was a model,
//! or because a text was too long to wait for. Entries without vectors are found in the database, so nothing is
//! forgotten over a restart.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use context_model::Error;
use context_providers::ProviderError;
use context_store::{Embedding, LateEmbedding, OwnerId, Unembedded, VectorStore};

use crate::Engine;
use crate::embed::embed;
use crate::meaning::{self, Ready};

/// Entries read at a time.
pub(crate) const ENTRIES: u32 = 16;
/// How long to wait after a failure, doubled each time, and the most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often all entries are looked at when nothing is known to wait: what was refused is tried again then.
const INTERVAL: Duration = Duration::from_secs(600);
/// How often the store may look after its vectors.
const MAINTENANCE: Duration = Duration::from_secs(30);

/// How a look at all entries ended.
enum Pass {
    /// Everything that could be embedded is.
    Done,
    /// There is no model.
    Off,
    /// The provider or the database is away.
    Failed(Option<Duration>),
}

impl Engine {
    /// Embeds what waits and keeps vectors in good order, as long as the returned future is polled. Does nothing while
    /// there is no model.
    pub async fn backfill(&self) {
        tokio::join!(self.embed_waiting(), self.maintain_vectors());
    }

    async fn maintain_vectors(&self) {
        loop {
            if let Ok((_, vectors)) = self.meaning()
                && let Err(error) = vectors.maintain().await
            {
                tracing::warn!(error = %error, "The vectors could not be looked after; it is tried again");
            }
            tokio::time::sleep(MAINTENANCE).await;
        }
    }

    async fn embed_waiting(&self) {
        let (mut pause, mut at_once) = (FIRST_PAUSE, ENTRIES);
        loop {
            let rest = match self.pass(at_once).await {
                Pass::Done => {
                    (pause, at_once) = (FIRST_PAUSE, ENTRIES);
                    INTERVAL
                }
                Pass::Off => INTERVAL,
                Pass::Failed(retry_after) => {
                    let rest = retry_after.unwrap_or(pause).min(LONGEST_PAUSE);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    // Perhaps so many take too long, or the provider fails at one of them.
                    at_once = (at_once / 2).max(1);
                    // Stores that fail meanwhile must not shorten it.
                    tokio::time::sleep(rest).await;
                    continue;
                }
            };
            tokio::select! {
                () = self.meaning.wake.notified() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    async fn pass(&self, at_once: u32) -> Pass {
        let Ok((ready, vectors)) = self.meaning() else { return Pass::Off };
        let (mut after, mut embedded, mut passed_over) = (None, 0, None);
        loop {
            let page = match vectors.unembedded(&ready.model, after.as_ref(), at_once).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(error = %error, "Entries without vectors cannot be read now");
                    return Pass::Failed(None);
                }
            };
            match slice(&ready, vectors, page.entries).await {
                Ok(done) => embedded += done.taken,
                // Those behind it need not wait for one that the provider fails at.
                Err(failure) if at_once == 1 && passed_over.is_none() => {
                    tracing::debug!(error = %failure.error, "An entry keeps waiting for its vectors");
                    passed_over = Some(failure.retry_after);
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
        passed_over.map_or(Pass::Done, Pass::Failed)
    }
}

/// What became of some entries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slice {
    /// So many took their vectors.
    pub taken: u64,
    /// So many the model refused.
    pub refused: u64,
}

/// The provider or the database is away.
#[derive(Debug)]
pub(crate) struct Failure {
    pub error: Error,
    /// When the provider wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// Embeds some entries.
///
/// # Errors
/// The provider or the database is away.
pub(crate) async fn slice(ready: &Arc<Ready>, vectors: &dyn VectorStore, entries: Vec<Unembedded>) -> Result<Slice, Failure> {
    let mut done = Slice::default();
    if entries.is_empty() {
        return Ok(done);
    }
    let texts = entries.iter().map(|entry| Some(entry.text.clone())).collect();
    let embeddings = match embed(ready, texts, usize::MAX).await {
        Ok(embeddings) => embeddings,
        Err(error @ ProviderError::Unavailable { retry_after, .. }) => {
            return Err(Failure { error: meaning::provider_error(error), retry_after });
        }
        // One of them cannot be embedded; the others can, alone.
        Err(error) if entries.len() > 1 => {
            tracing::debug!(error = %error, "Entries are embedded one by one");
            for entry in entries {
                let Slice { taken, refused } = Box::pin(slice(ready, vectors, vec![entry])).await?;
                done.taken += taken;
                done.refused += refused;
            }
            return Ok(done);
        }
        Err(error) => {
            tracing::warn!(error = %error, entry.id = entries[0].id, "An entry cannot be embedded");
            return Ok(Slice { taken: 0, refused: 1 });
        }
    };
    let mut of_owner: HashMap<OwnerId, Vec<LateEmbedding>> = HashMap::new();
    for (entry, embedding) in entries.into_iter().zip(embeddings) {
        if let Embedding::Now(embedded) = embedding {
            of_owner.entry(entry.owner).or_default().push(LateEmbedding { id: entry.id, version: entry.version, embedded });
        }
    }
    for (owner, embeddings) in of_owner {
        let taken = vectors.add_embeddings(&owner, embeddings).await;
        done.taken += taken.map_err(|error| Failure { error: crate::store_error(error), retry_after: None })?;
    }
    Ok(done)
}
