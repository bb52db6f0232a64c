//! Embeds entries that were stored without vectors: the provider was down, there was no model yet,
//! or the text was too long to wait for. The entries are found in the database, so a restart loses
//! none.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how fast waiting entries are embedded, and when the next scan is due"
)]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use context_model::Error;
use context_providers::ProviderError;
use context_store::{
    Embedding, LateEmbedding, OwnerId, ScanCursor, StoreError, Unembedded, VectorStore,
};
use futures::FutureExt as _;
use tokio::time::Instant;

use super::Background;
use super::pauses::{FAILURES_IN_A_ROW, MAX_PAUSE, pauses, remember};
use crate::error::store_error;
use crate::retrieval::{ActiveModel, embed};

/// Maximum number of entries that are read and embedded at a time.
pub(super) const ENTRIES: u32 = 16;
/// Pause between two scans of all entries if no write reports a waiting entry. A scan also retries
/// entries that the model refused.
const INTERVAL: Duration = Duration::from_secs(600);
/// Interval of the store's vector maintenance.
const MAINTENANCE: Duration = Duration::from_secs(30);

/// How a scan of all entries ended.
enum ScanEnd {
    /// Every entry that can be embedded is embedded.
    Done,
    /// No model is configured.
    Off,
    /// The provider or the database is unavailable, the provider refuses every text, or entries were skipped. The value
    /// is the pause that the provider asks for, if any.
    Failed(Option<Duration>),
}

/// How far the scan of all entries has come.
struct Scan {
    /// Where it continues. `None` before it begins and after it has ended.
    after: Option<ScanCursor>,
    /// Number of entries that are embedded at a time.
    at_once: u32,
    /// The positions before the entries that it skipped. The next scan finds those of them that still wait.
    skipped: VecDeque<Option<ScanCursor>>,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            after: None,
            at_once: ENTRIES,
            skipped: VecDeque::new(),
        }
    }
}

impl Scan {
    /// How it ended, or how another attempt with the skipped entries did.
    fn end(&self) -> ScanEnd {
        if self.skipped.is_empty() {
            ScanEnd::Done
        } else {
            ScanEnd::Failed(None)
        }
    }
}

impl Background {
    /// Embeds waiting entries and maintains the vectors for as long as the future is polled. Does
    /// nothing without a model.
    pub async fn backfill(&self) {
        tokio::join!(self.embed_waiting(), self.maintain_vectors());
    }

    async fn maintain_vectors(&self) {
        loop {
            if self.embeddings.model().is_ok()
                && let Err(error) = self.store.vectors().maintain().await
            {
                tracing::warn!(error = %error, "Vector maintenance failed; will retry");
            }
            tokio::time::sleep(MAINTENANCE).await;
        }
    }

    async fn embed_waiting(&self) {
        let (mut backoff, mut scan) = (pauses(), Scan::default());
        let mut scan_at = Instant::now();
        loop {
            let is_new =
                scan.after.is_none() && (scan.skipped.is_empty() || Instant::now() >= scan_at);
            if is_new {
                scan.skipped.clear();
            }
            let end = if is_new || scan.after.is_some() {
                let end = self.scan(&mut scan).await;
                scan_at = Instant::now() + INTERVAL;
                end
            } else {
                self.embed_skipped(&mut scan).await
            };
            match end {
                ScanEnd::Done => backoff = pauses(),
                ScanEnd::Off => scan = Scan::default(),
                ScanEnd::Failed(retry_after) => {
                    self.embeddings.progress.stop();
                    let pause = retry_after.or(backoff.next()).unwrap_or(MAX_PAUSE);
                    // New entries that fail in the meantime must not shorten the pause.
                    tokio::time::sleep(pause.min(MAX_PAUSE)).await;
                    // During an interrupted scan the wake stays pending. It may be for an entry before the position.
                    if scan.after.is_none() && self.embeddings.woken().now_or_never().is_some() {
                        scan_at = Instant::now();
                    }
                    continue;
                }
            }
            tokio::select! {
                () = self.embeddings.woken() => {}
                () = tokio::time::sleep_until(scan_at) => {}
            }
        }
    }

    /// Begins or continues a scan of all entries. An entry on which the provider fails is skipped, and tried again
    /// after the scan. An unavailable provider or database interrupts the scan.
    async fn scan(&self, scan: &mut Scan) -> ScanEnd {
        let Ok(active) = self.embeddings.model() else {
            return ScanEnd::Off;
        };
        let vectors = self.store.vectors();
        let mut embedded = 0;
        let (mut done_in_a_row, mut failed_in_a_row) = (0, 0);
        let progress = &self.embeddings.progress;
        loop {
            let begun = Instant::now();
            let page = match vectors
                .unembedded(&active.model, scan.after.as_ref(), scan.at_once)
                .await
            {
                Ok(page) => page,
                Err(error) => {
                    tracing::debug!(error = %error, "Could not read entries without vectors");
                    return ScanEnd::Failed(None);
                }
            };
            match embed_batch(&active, vectors, page.entries).await {
                Ok(done) => {
                    embedded += done.embedded;
                    if done.embedded > 0 {
                        progress.record(done.embedded, begun.elapsed());
                    }
                    // Otherwise each write would make a scan try, and log, every waiting entry again.
                    if done.refused > 0
                        && let Some(error) = refuses_every_text(&active).await
                    {
                        tracing::warn!(%error, "The embedding provider refuses every text; entries keep waiting for their vectors");
                        scan.after = page.next;
                        return ScanEnd::Failed(None);
                    }
                    (done_in_a_row, failed_in_a_row) = (done_in_a_row + 1, 0);
                    // After a reduction, a larger batch is tried again.
                    if done_in_a_row == ENTRIES {
                        (scan.at_once, done_in_a_row) = ((scan.at_once * 2).min(ENTRIES), 0);
                    }
                }
                // The batch may be too large, or the provider fails on one entry in it.
                Err(failure) if scan.at_once > 1 => {
                    tracing::debug!(error = %failure.error, scan.at_once, "Reduced the number of entries embedded at a time");
                    (scan.at_once, done_in_a_row) = (scan.at_once / 2, 0);
                    if failure.retry_after.is_some() {
                        return ScanEnd::Failed(failure.retry_after);
                    }
                    continue;
                }
                Err(failure) => {
                    tracing::debug!(error = %failure.error, "Skipped an entry that could not be embedded; it keeps waiting for its vectors");
                    remember(&mut scan.skipped, scan.after.take());
                    (done_in_a_row, failed_in_a_row) = (0, failed_in_a_row + 1);
                    // The provider is down or may be, so the scan pauses. It continues after this entry, so that the
                    // entry does not keep the later ones waiting.
                    if failure.retry_after.is_some() || failed_in_a_row > FAILURES_IN_A_ROW {
                        scan.after = page.next;
                        return ScanEnd::Failed(failure.retry_after);
                    }
                }
            }
            scan.after = page.next;
            if scan.after.is_none() {
                break;
            }
        }
        if embedded > 0 {
            tracing::info!(entries = embedded, "Embedded waiting entries");
        }
        scan.end()
    }

    /// Tries the entries again that a scan skipped.
    async fn embed_skipped(&self, scan: &mut Scan) -> ScanEnd {
        let Ok(active) = self.embeddings.model() else {
            return ScanEnd::Off;
        };
        let vectors = self.store.vectors();
        let mut failed_in_a_row = 0;
        for _ in 0..scan.skipped.len() {
            let Some(before) = scan.skipped.pop_front() else {
                break;
            };
            let outcome = match vectors.unembedded(&active.model, before.as_ref(), 1).await {
                Ok(page) => embed_batch(&active, vectors, page.entries).await,
                Err(error) => Err(Failure::of_store(error)),
            };
            let Err(failure) = outcome else {
                failed_in_a_row = 0;
                continue;
            };
            tracing::debug!(error = %failure.error, "Could not embed an entry again; it keeps waiting for its vectors");
            scan.skipped.push_back(before);
            failed_in_a_row += 1;
            if failure.retry_after.is_some() || failed_in_a_row > FAILURES_IN_A_ROW {
                return ScanEnd::Failed(failure.retry_after);
            }
        }
        scan.end()
    }
}

/// The outcome for a batch of entries.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BatchOutcome {
    /// How many entries got their vectors.
    pub embedded: u64,
    /// How many entries the model refused.
    pub refused: u64,
}

/// The provider or the database is unavailable.
#[derive(Debug)]
pub(super) struct Failure {
    pub error: Error,
    /// When the provider accepts requests again, if it said so.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of the database.
    pub fn of_store(error: StoreError) -> Self {
        Self {
            error: store_error(error),
            retry_after: None,
        }
    }
}

/// Embeds a text on which the provider has no reason to fail.
///
/// # Errors
/// The provider's errors. They concern every text, and not a certain entry.
pub(super) async fn probe(active: &Arc<ActiveModel>) -> Result<(), ProviderError> {
    embed(active, vec![Some("context".to_owned())])
        .await
        .map(drop)
}

/// The error of a provider that refuses every text, for example because its quota is spent. `None` if it accepts a text
/// or does not respond.
pub(super) async fn refuses_every_text(active: &Arc<ActiveModel>) -> Option<ProviderError> {
    probe(active)
        .await
        .err()
        .filter(|error| !error.is_retryable())
}

/// Embeds a batch of entries and stores their vectors. If the model refuses some, the others are embedded.
///
/// # Errors
/// The provider or the database is unavailable.
pub(super) async fn embed_batch(
    active: &Arc<ActiveModel>,
    vectors: &dyn VectorStore,
    entries: Vec<Unembedded>,
) -> Result<BatchOutcome, Failure> {
    let mut done = BatchOutcome::default();
    if entries.is_empty() {
        return Ok(done);
    }
    let texts = entries
        .iter()
        .map(|entry| Some(entry.text.clone()))
        .collect();
    let embeddings = match embed(active, texts).await {
        Ok(embeddings) => embeddings,
        Err(error @ ProviderError::Unavailable { retry_after, .. }) => {
            return Err(Failure {
                error: active.error(error),
                retry_after,
            });
        }
        // One of the entries cannot be embedded. The others can be embedded one by one.
        Err(error) if entries.len() > 1 => {
            tracing::debug!(error = %error, "Embedding entries one by one");
            for entry in entries {
                let BatchOutcome { embedded, refused } =
                    Box::pin(embed_batch(active, vectors, vec![entry])).await?;
                done.embedded += embedded;
                done.refused += refused;
            }
            return Ok(done);
        }
        Err(error) => {
            let entry = &entries[0];
            tracing::warn!(
                error = %error,
                entry.id = entry.entry_id(),
                artifact.id = entry.artifact_id,
                "Could not embed an entry or artifact"
            );
            return Ok(BatchOutcome {
                embedded: 0,
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
        let embedded = vectors.add_embeddings(&owner, embeddings).await;
        done.embedded += embedded.map_err(Failure::of_store)?;
    }
    Ok(done)
}
