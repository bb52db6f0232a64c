//! Writes summaries in the background. A write only queues its entry; it neither waits for a
//! summary nor fails because of one. Entries without a summary are found in the database, so a
//! restart loses none.

#![expect(
    clippy::disallowed_methods,
    reason = "measures when the next scan and the next attempt are due"
)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;

use context_model::{Result, SummaryStatus, ThreadSet};
use context_providers::{ProviderError, Summarizer};
use context_store::{
    ItemOutcome, LateSummary, Memory, OwnerId, RowSelection, ScanCursor, Store, StoredBatch,
    Unsummarized,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pauses::{FAILURES_IN_A_ROW, MAX_PAUSE, pauses, remember};
use crate::config::{SummaryConfig, Switch};
use crate::coverage::percentage;
use crate::error::store_error;
use crate::lock::{self, locked};
use crate::read;

/// Maximum number of entries in the queue. If more wait, the database is scanned instead.
const MAX_QUEUED: usize = 1_024;
/// Number of entries that a scan reads at a time.
const ENTRIES: u32 = 8;
/// Pause between two scans of all entries. A scan also retries entries that the model refused.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Writes summaries of entries, and queues entries that wait for one.
pub struct Summaries {
    store: Arc<dyn Store>,
    config: SummaryConfig,
    summarizer: RwLock<Option<Arc<dyn Summarizer>>>,
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Whether the log already says that the provider does not respond.
    is_outage_logged: AtomicBool,
}

/// The queue of entries that wait for a summary.
#[derive(Default)]
struct Waiting {
    entries: VecDeque<(OwnerId, i64)>,
    /// Whether the database may hold further waiting entries.
    more: bool,
}

/// What failed while the summary of an entry was added.
enum Failed {
    /// The provider, perhaps at this entry alone. The value is the pause that it asks for, if any.
    Provider(Option<Duration>),
    Database,
}

/// The next work of the summarizer.
enum Next {
    /// The first entry of the queue.
    Entry((OwnerId, i64)),
    /// A scan of all entries.
    All,
    Nothing,
}

/// Entries on which the provider failed. They are tried again without a scan of all entries.
#[derive(Default)]
struct Skipped {
    entries: VecDeque<(OwnerId, i64)>,
    /// How many entries failed one after the other.
    in_a_row: u32,
}

impl Skipped {
    /// Records how an attempt with an entry ended.
    ///
    /// # Errors
    /// The provider or the database is unavailable, or the provider failed on too many entries in a row. The value is
    /// the pause that the provider asks for, if any.
    fn record(
        &mut self,
        entry: (OwnerId, i64),
        outcome: Result<(), Failed>,
    ) -> Result<(), Option<Duration>> {
        let Err(failed) = outcome else {
            self.in_a_row = 0;
            return Ok(());
        };
        remember(&mut self.entries, entry);
        self.in_a_row += 1;
        let retry_after = match failed {
            // An unavailable provider usually returns a time for the retry. Otherwise it may fail on this entry.
            Failed::Provider(None) if self.in_a_row <= FAILURES_IN_A_ROW => return Ok(()),
            Failed::Provider(retry_after) => retry_after,
            // It would fail for the other entries too, after a summary was made for each.
            Failed::Database => None,
        };
        self.in_a_row = 0;
        Err(retry_after)
    }
}

impl Summaries {
    pub(crate) fn new(store: Arc<dyn Store>, config: SummaryConfig) -> Self {
        Self {
            store,
            config,
            summarizer: RwLock::default(),
            waiting: Mutex::default(),
            wake: Notify::new(),
            is_outage_logged: AtomicBool::new(false),
        }
    }

    /// Uses this provider from now on.
    pub fn use_summarizer(&self, summarizer: Arc<dyn Summarizer>) {
        *lock::write(&self.summarizer) = Some(summarizer);
        self.schedule_scan();
        self.wake.notify_one();
    }

    /// Why no summaries are written; `None` if they are.
    fn why_none(&self) -> Option<String> {
        if self.config.enabled == Switch::False {
            return Some("switched off by ENABLE_SUMMARY_GENERATION=false".to_owned());
        }
        let none = "no model writes summaries: set SUMMARY_MODEL, and SUMMARY_PROVIDER unless it is Ollama";
        self.summarizer().is_none().then(|| none.to_owned())
    }

    fn summarizer(&self) -> Option<Arc<dyn Summarizer>> {
        lock::read(&self.summarizer).clone()
    }

    /// Whether this text should have a summary.
    pub(crate) fn needs_summary(&self, text: &str) -> bool {
        let least = self.config.min_content_length as usize;
        // A character has at least one byte, so the cheap test comes first.
        text.len() >= least
            && self.why_none().is_none()
            && text.chars().nth(least.saturating_sub(1)).is_some()
    }

    /// Queues an entry for a summary.
    pub(crate) fn add(&self, owner: &OwnerId, id: i64) {
        let mut waiting = self.waiting();
        if waiting.entries.len() < MAX_QUEUED {
            waiting.entries.push_back((owner.clone(), id));
        } else {
            waiting.more = true;
        }
        self.wake.notify_one();
    }

    /// Queues those entries of a batch that should get summaries.
    pub(crate) fn add_stored(&self, owner: &OwnerId, wanted: &[bool], batch: &StoredBatch) {
        let items = batch.items.iter().zip(wanted);
        for (item, _) in items.filter(|(_, wanted)| **wanted) {
            if let Ok(ItemOutcome {
                id,
                version: _,
                duplicate: false,
            }) = item
            {
                self.add(owner, *id);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        locked(&self.waiting)
    }

    fn schedule_scan(&self) {
        self.waiting().more = true;
    }

    /// The next work. A scan that has begun continues before anything else.
    fn next(&self, is_scanning: bool) -> Next {
        let mut waiting = self.waiting();
        if is_scanning {
            return Next::All;
        }
        if std::mem::take(&mut waiting.more) {
            // The scan of all entries includes them.
            waiting.entries.clear();
            return Next::All;
        }
        waiting
            .entries
            .pop_front()
            .map_or(Next::Nothing, Next::Entry)
    }

    /// Writes waiting summaries for as long as the future is polled.
    pub async fn summarize(&self) {
        let (mut backoff, mut retries) = (pauses(), pauses());
        let (mut after, mut skipped) = (None, Skipped::default());
        let (mut scan_at, mut retry_at) = (Instant::now() + INTERVAL, Instant::now());
        loop {
            let woken = self.wake.notified();
            let (None, Some(summarizer)) = (self.why_none(), self.summarizer()) else {
                woken.await;
                continue;
            };
            if after.is_none() && Instant::now() >= scan_at {
                self.schedule_scan();
            }
            let outcome = match self.next(after.is_some()) {
                Next::Entry(entry) => {
                    self.summarize_entry(&*summarizer, entry, &mut skipped)
                        .await
                }
                Next::All => {
                    if after.is_none() {
                        // The scan finds those that still wait.
                        skipped.entries.clear();
                    }
                    let outcome = self
                        .summarize_all(&*summarizer, &mut after, &mut skipped)
                        .await;
                    scan_at = Instant::now() + INTERVAL;
                    outcome
                }
                Next::Nothing if !skipped.entries.is_empty() && Instant::now() >= retry_at => {
                    let outcome = self.summarize_skipped(&*summarizer, &mut skipped).await;
                    retry_at = Instant::now() + retries.next().unwrap_or(MAX_PAUSE);
                    outcome
                }
                Next::Nothing => {
                    let until = match skipped.entries.is_empty() {
                        true => scan_at,
                        false => scan_at.min(retry_at),
                    };
                    let _ = tokio::time::timeout_at(until, woken).await;
                    continue;
                }
            };
            if skipped.entries.is_empty() {
                retries = pauses();
            }
            match outcome {
                Ok(()) if skipped.in_a_row == 0 => backoff = pauses(),
                Ok(()) => {}
                Err(retry_after) => {
                    let pause = retry_after.or(backoff.next()).unwrap_or(MAX_PAUSE);
                    tokio::time::sleep(pause.min(MAX_PAUSE)).await;
                }
            }
        }
    }

    /// Writes the summaries of all entries after `position` that lack one. An entry on which the provider fails is
    /// skipped. Too many in a row, or an unavailable provider, interrupt the scan. It continues after them, so that
    /// they do not keep later entries waiting.
    ///
    /// # Errors
    /// As [`Skipped::record`].
    async fn summarize_all(
        &self,
        summarizer: &dyn Summarizer,
        position: &mut Option<ScanCursor>,
        skipped: &mut Skipped,
    ) -> Result<(), Option<Duration>> {
        let (least, most) = (
            self.config.min_content_length.max(1),
            to_u32(summarizer.max_chars()),
        );
        loop {
            let page = self
                .store
                .summaries()
                .unsummarized(position.as_ref(), least, most, ENTRIES)
                .await
                .map_err(|error| {
                    tracing::debug!(error = %error, "Could not read entries without summaries");
                    if position.is_none() {
                        self.schedule_scan();
                    }
                    None
                })?;
            let mut outcome = Ok(());
            for unsummarized in page.entries {
                let entry = (unsummarized.owner.clone(), unsummarized.id);
                if outcome.is_err() {
                    remember(&mut skipped.entries, entry);
                    continue;
                }
                let added = self.add_summary(summarizer, unsummarized).await;
                outcome = skipped.record(entry, added);
            }
            *position = page.next;
            outcome?;
            if position.is_none() {
                return Ok(());
            }
        }
    }

    /// Tries the entries again on which the provider failed.
    ///
    /// # Errors
    /// As [`Skipped::record`].
    async fn summarize_skipped(
        &self,
        summarizer: &dyn Summarizer,
        skipped: &mut Skipped,
    ) -> Result<(), Option<Duration>> {
        skipped.in_a_row = 0;
        for _ in 0..skipped.entries.len() {
            if let Some(entry) = skipped.entries.pop_front() {
                self.summarize_entry(summarizer, entry, skipped).await?;
            }
        }
        Ok(())
    }

    /// Writes the summary of one entry, if it exists and still lacks one.
    ///
    /// # Errors
    /// As [`Skipped::record`].
    async fn summarize_entry(
        &self,
        summarizer: &dyn Summarizer,
        (owner, id): (OwnerId, i64),
        skipped: &mut Skipped,
    ) -> Result<(), Option<Duration>> {
        // Enough to see whether the text is long enough, even if the model reads less of it.
        let least = self.config.min_content_length;
        let text_chars = Some(to_u32(summarizer.max_chars()).max(least));
        let selection = RowSelection {
            images: false,
            text_chars,
            explain: false,
            max_bytes: u64::MAX,
            memory: Memory::UNCOUNTED,
        };
        let found = self
            .store
            .get_contexts(&owner, vec![id], selection, read::at(None))
            .await;
        let outcome = match found.map(|found| found.entries.into_iter().next()) {
            Ok(Some(entry))
                if entry.damage.is_none()
                    && entry.summary.is_empty()
                    && self.needs_summary(&entry.text) =>
            {
                let unsummarized = Unsummarized {
                    owner: owner.clone(),
                    id,
                    version: entry.version,
                    text: entry.text,
                };
                self.add_summary(summarizer, unsummarized).await
            }
            Ok(_) => Ok(()),
            Err(_) => Err(Failed::Database),
        };
        skipped.record((owner, id), outcome)
    }

    /// Writes the summary of an entry and stores it.
    ///
    /// # Errors
    /// What failed. An entry that the provider refuses is no error. It stays without a summary until the next scan.
    async fn add_summary(
        &self,
        summarizer: &dyn Summarizer,
        entry: Unsummarized,
    ) -> Result<(), Failed> {
        let Unsummarized {
            owner,
            id,
            version,
            text,
        } = entry;
        let summary = match summarizer.summarize(&text).await {
            Ok(summary) => {
                self.is_outage_logged.store(false, Ordering::Relaxed);
                summary
            }
            Err(ProviderError::Unavailable { what, retry_after }) => {
                if self.is_outage_logged.swap(true, Ordering::Relaxed) {
                    tracing::debug!(what, "Could not summarize entries; they keep waiting");
                } else {
                    let provider = summarizer.provider();
                    tracing::warn!("Summaries are waiting for {provider}: {what}");
                }
                return Err(Failed::Provider(retry_after));
            }
            Err(error) => {
                tracing::warn!(error = %error, entry.id = id, "Could not summarize an entry; the next attempt is within about an hour");
                return Ok(());
            }
        };
        self.store
            .summaries()
            .add_summary(
                &owner,
                LateSummary {
                    id,
                    version,
                    summary,
                },
            )
            .await
            .map(drop)
            .map_err(|error| {
                tracing::debug!(error = %error, "Could not store a summary");
                Failed::Database
            })
    }

    /// The state of the summary feature, for the owner's entries or for those in a set of threads. `total_entries` is
    /// their number.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn status(
        &self,
        owner: &OwnerId,
        within: Option<ThreadSet>,
        total_entries: i64,
    ) -> Result<SummaryStatus> {
        let reason = self.why_none();
        let summarizer = self.summarizer().filter(|_| reason.is_none());
        let summary_count = self
            .store
            .summaries()
            .summarized_entries(owner, within)
            .await
            .map_err(store_error)?;
        Ok(SummaryStatus {
            enabled: reason.is_none(),
            available: reason.is_none(),
            reason,
            provider: summarizer
                .as_ref()
                .map(|summarizer| summarizer.provider().to_owned()),
            model: summarizer
                .as_ref()
                .map(|summarizer| summarizer.model().to_owned()),
            summary_count,
            coverage_percentage: if summarizer.is_some() {
                percentage(summary_count, total_entries)
            } else {
                0.0
            },
            min_content_length: i64::from(self.config.min_content_length),
        })
    }
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
