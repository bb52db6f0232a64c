//! Moving to another embedding model while searches go on: its vectors are gathered beside those in use, and take their
//! place when every entry has some. Interrupted, it goes on where it was.

use std::sync::Arc;
use std::time::Duration;

use context_model::{Error, Reason, Result};
use context_providers::Embedder;
use context_store::{MoveState, Moved, VectorStore};

use super::Background;
use super::backfill::{ENTRIES, slice};
use crate::error::store_error;
use crate::retrieval::{ActiveModel, model_of, unavailable};

/// How often a provider or a database that is away is tried again, and how long to wait first; then twice as long each
/// time, up to the longest.
const ATTEMPTS: u32 = 10;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Entries that are stored during the last pass over all of them may wait when the vectors change places. Each pass that did
/// not suffice allows so many times more, so that a busy database does not put it off for ever.
const MORE: u64 = 8;
/// How long to leave others the entries that they are embedding.
const BETWEEN_PASSES: Duration = Duration::from_millis(200);

/// How far a move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reembedding {
    /// Entries that have vectors of the new model.
    pub embedded: i64,
    /// Entries that there were at the beginning.
    pub entries: i64,
}

/// How a move ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reembedded {
    /// The database had the vectors of this model in use already.
    Before,
    /// They are in use now. So many entries could not be embedded.
    Now {
        /// Entries that the model refused.
        refused: u64,
    },
}

impl Background {
    /// Embeds every entry with this provider, then searches and embeds with it. Meanwhile everything goes on with what is
    /// in use. `progress` is called now and then.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` when the database cannot hold vectors or another move began meanwhile; `STORE_UNAVAILABLE` when
    /// the provider stays away, and the store's errors: the same again then goes on where it was.
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
            "Moving to another embedding model"
        );
        progress(state);
        let active = Arc::new(self.embeddings.activate(Arc::clone(&embedder), model));
        let mut tolerated = 0;
        loop {
            let refused = pass(&active, vectors, &mut state, &progress).await?;
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
                        "Moved to another embedding model"
                    );
                    return Ok(Reembedded::Now { refused });
                }
                Moved::Waiting => {
                    tolerated = (tolerated + 1) * MORE;
                    tokio::time::sleep(BETWEEN_PASSES).await;
                }
                Moved::NotBegun => {
                    return Err(Error::new(
                        Reason::FeatureUnavailable,
                        "a move to yet another embedding model was begun meanwhile",
                    ));
                }
            }
        }
    }
}

/// Embeds everything that has no vectors of the model yet, and says how many entries it refused.
async fn pass(
    active: &Arc<ActiveModel>,
    vectors: &dyn VectorStore,
    state: &mut Reembedding,
    progress: &(impl Fn(Reembedding) + Send),
) -> Result<u64> {
    let (mut after, mut refused, mut failures) = (None, 0, 0);
    loop {
        let page = async {
            let page = vectors
                .unembedded(&active.model, after.as_ref(), ENTRIES)
                .await
                .map_err(|error| (store_error(error), None))?;
            let done = slice(active, vectors, page.entries)
                .await
                .map_err(|failure| (failure.error, failure.retry_after))?;
            Ok::<_, (Error, Option<Duration>)>((page.next, done))
        };
        match page.await {
            Ok((next, done)) => {
                failures = 0;
                refused += done.refused;
                state.embedded += i64::try_from(done.taken).unwrap_or(0);
                progress(*state);
                after = next;
                if after.is_none() {
                    return Ok(refused);
                }
            }
            Err((error, _)) if failures >= ATTEMPTS => return Err(error),
            Err((error, retry_after)) => {
                tracing::warn!(error = %error, "The move to another embedding model waits");
                let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(failures));
                failures += 1;
                tokio::time::sleep(retry_after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
            }
        }
    }
}
