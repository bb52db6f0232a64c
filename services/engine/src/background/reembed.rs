//! Switches to another embedding model while searches continue. The new vectors are stored next to
//! those in use, and replace them once every entry has new ones, except entries that cannot be
//! embedded and a few that were just stored. An interrupted switch continues where it stopped.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use context_model::{Error, Reason, Result};
use context_providers::Embedder;
use context_store::{MoveState, Moved, VectorStore};

use super::Background;
use super::backfill::{ENTRIES, Failure, embed_batch, probe, refuses_every_text};
use super::pauses::FAILURES_IN_A_ROW;
use crate::error::store_error;
use crate::retrieval::{ActiveModel, model_of, unavailable};

/// The pauses before an unavailable provider or database is tried again: 500 ms, doubled each time
/// up to 30 s, ten times at most.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(500))
    .with_max_delay(MAX_PAUSE)
    .with_max_times(10);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Some entries that were stored during the last scan may still lack vectors when the sets are switched. The number
/// that is tolerated grows by this factor after each scan that left more, so that a busy database does not delay the
/// switch forever.
const TOLERANCE_GROWTH: u64 = 8;
/// Pause between scans, so that other services can finish the entries that they are embedding.
const BETWEEN_SCANS: Duration = Duration::from_millis(200);

/// The progress of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reembedding {
    /// Entries with vectors of the new model.
    pub embedded: i64,
    /// Entries at the start of the switch.
    pub entries: i64,
}

/// How a switch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reembedded {
    /// The vectors of this model were already in use.
    Before,
    /// The new vectors are now in use.
    Now {
        /// Number of entries that could not be embedded. The log names them.
        refused: u64,
    },
}

impl Background {
    /// Embeds every entry with this provider, then uses it for searches and new entries. Until then
    /// the current model stays in use. `progress` is called at the start and after each batch.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` if the database cannot store vectors, another switch was started in the
    /// meantime, or the provider refuses every text; `PROVIDER_UNAVAILABLE` if the provider stays
    /// unavailable; the store's errors. A repeated call continues where this one stopped.
    pub async fn reembed(
        &self,
        embedder: Arc<dyn Embedder>,
        progress: impl Fn(Reembedding) + Send,
    ) -> Result<Reembedded> {
        let model = model_of(&*embedder);
        let vectors = self.store.vectors();
        let mut state = match vectors.begin_move(&model).await.map_err(store_error)? {
            MoveState::Impossible(reason) => return Err(unavailable(&reason)),
            MoveState::Done => {
                self.embeddings.use_embedder(embedder).await?;
                return Ok(Reembedded::Before);
            }
            MoveState::Begun { embedded, entries } => Reembedding { embedded, entries },
        };
        tracing::info!(
            model = model.identity,
            state.embedded,
            state.entries,
            "Switching to another embedding model"
        );
        progress(state);
        let active = Arc::new(self.embeddings.activate(Arc::clone(&embedder), model));
        let mut tolerated = 0;
        loop {
            let refused = scan(&active, vectors, &mut state, &progress).await?;
            match vectors
                .finish_move(&active.model, refused + tolerated)
                .await
                .map_err(store_error)?
            {
                Moved::Done => {
                    self.embeddings.use_embedder(embedder).await?;
                    tracing::info!(
                        model = active.model.identity,
                        refused,
                        "Switched to another embedding model"
                    );
                    return Ok(Reembedded::Now { refused });
                }
                Moved::Waiting => {
                    tolerated = (tolerated + 1) * TOLERANCE_GROWTH;
                    tokio::time::sleep(BETWEEN_SCANS).await;
                }
                Moved::NotBegun => {
                    return Err(Error::new(
                        Reason::FeatureUnavailable,
                        "a switch to another embedding model was started meanwhile",
                    ));
                }
            }
        }
    }
}

/// Embeds every entry that has no vectors of the model yet. Returns how many entries could not be embedded: the model
/// refused them, or the provider fails on them. After the switch the background worker tries them again.
async fn scan(
    active: &Arc<ActiveModel>,
    vectors: &dyn VectorStore,
    state: &mut Reembedding,
    progress: &(impl Fn(Reembedding) + Send),
) -> Result<u64> {
    let (mut after, mut refused, mut pauses) = (None, 0, PAUSES.build());
    let (mut at_once, mut failed_in_a_row) = (ENTRIES, 0);
    // Whether the provider responded after it had failed on the next entry.
    let mut has_responded = false;
    loop {
        let page = vectors
            .unembedded(&active.model, after.as_ref(), at_once)
            .await;
        let (next, first, outcome) = match page {
            Ok(page) => {
                let first = page.entries.first();
                let first = first.map(|entry| (entry.entry_id(), entry.artifact_id.clone()));
                (
                    page.next,
                    first,
                    embed_batch(active, vectors, page.entries).await,
                )
            }
            Err(error) => (None, None, Err(Failure::of_store(error))),
        };
        let failure = match outcome {
            Ok(done) => {
                // Otherwise the rest of the entries would count as refused, and the switch would delete the vectors in
                // use.
                if done.refused > 0
                    && let Some(error) = refuses_every_text(active).await
                {
                    return Err(active.error(error));
                }
                pauses = PAUSES.build();
                (at_once, failed_in_a_row) = ((at_once * 2).min(ENTRIES), 0);
                has_responded = false;
                refused += done.refused;
                state.embedded += i64::try_from(done.embedded).unwrap_or(0);
                progress(*state);
                after = next;
                if after.is_none() {
                    return Ok(refused);
                }
                continue;
            }
            Err(failure) => failure,
        };
        let Failure { error, retry_after } = failure;
        let is_of_provider = error.reason == Reason::ProviderUnavailable;
        // The batch may be too large, or the provider fails on one entry in it.
        let is_batch = at_once > 1;
        if is_of_provider {
            at_once = (at_once / 2).max(1);
        }
        let may_be_down = retry_after.is_some() || failed_in_a_row >= FAILURES_IN_A_ROW;
        if !is_of_provider || may_be_down {
            let Some(pause) = pauses.next() else {
                return Err(error);
            };
            tracing::warn!(error = %error, "The switch to another embedding model is waiting to retry");
            tokio::time::sleep(retry_after.unwrap_or(pause).min(MAX_PAUSE)).await;
        }
        if !is_of_provider || is_batch {
            continue;
        }
        if may_be_down {
            let responded_before = has_responded;
            has_responded = probe(active).await.is_ok();
            if has_responded {
                pauses = PAUSES.build();
            }
            // The provider may have been down, so only a failure between two responses is the entry's.
            if !(responded_before && has_responded) {
                continue;
            }
            failed_in_a_row = 0;
        }
        let (entry_id, artifact_id) = first.unwrap_or_default();
        tracing::warn!(
            error = %error,
            entry.id = entry_id,
            artifact.id = artifact_id,
            "Skipped an entry or artifact that could not be embedded"
        );
        has_responded = false;
        failed_in_a_row += 1;
        refused += 1;
        after = next;
        if after.is_none() {
            // A provider that embeds nothing is no model to switch to.
            return if state.embedded > 0 {
                Ok(refused)
            } else {
                Err(error)
            };
        }
    }
}
