//! Writes summaries in the background. A write only queues its entry; it neither waits for a
//! summary nor fails because of one. Entries without a summary are found in the database, so a
//! restart loses none.

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

use super::pauses::{FAILURES_IN_A_ROW, MAX_PAUSE, pauses};
use crate::config::{SummaryConfig, Switch};
use crate::coverage::percentage;
use crate::error::store_error;
use crate::lock::{self, locked};
use crate::read;

/// Maximum number of entries in the queue. If more wait, the database is scanned instead.
const MAX_QUEUED: usize = 1_024;
/// Number of entries that a scan reads at a time.
const ENTRIES: u32 = 8;
/// How often all entries are scanned while the queue is empty. A scan also retries entries that the model refused.
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
    Entry(OwnerId, i64),
    /// A scan of all entries.
    All,
    Nothing,
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

    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        if std::mem::take(&mut waiting.more) {
            // The scan of all entries includes them.
            waiting.entries.clear();
            return Next::All;
        }
        waiting
            .entries
            .pop_front()
            .map_or(Next::Nothing, |(owner, id)| Next::Entry(owner, id))
    }

    /// Writes waiting summaries for as long as the future is polled.
    pub async fn summarize(&self) {
        let (mut backoff, mut resume) = (pauses(), None);
        loop {
            let woken = self.wake.notified();
            let outcome = match (self.why_none(), self.summarizer()) {
                (None, Some(summarizer)) => match self.next() {
                    Next::Entry(owner, id) => self.summarize_entry(&*summarizer, owner, id).await,
                    Next::All => self.summarize_all(&*summarizer, &mut resume).await,
                    Next::Nothing => {
                        if tokio::time::timeout(INTERVAL, woken).await.is_err() {
                            self.schedule_scan();
                        }
                        continue;
                    }
                },
                _ => {
                    woken.await;
                    continue;
                }
            };
            match outcome {
                Ok(()) => backoff = pauses(),
                Err(retry_after) => {
                    self.schedule_scan();
                    let pause = retry_after.or(backoff.next()).unwrap_or(MAX_PAUSE);
                    tokio::time::sleep(pause.min(MAX_PAUSE)).await;
                }
            }
        }
    }

    /// Writes the summaries of all entries after `resume` that lack one. An entry on which the provider fails is
    /// skipped. Too many in a row, or an unavailable provider, end the scan. The next one continues after them, from
    /// `resume`, so that they do not keep later entries waiting.
    ///
    /// # Errors
    /// The provider or the database is unavailable, or entries were skipped. The value is the pause that the provider
    /// asks for, if any.
    async fn summarize_all(
        &self,
        summarizer: &dyn Summarizer,
        resume: &mut Option<ScanCursor>,
    ) -> Result<(), Option<Duration>> {
        let (least, most) = (
            self.config.min_content_length.max(1),
            to_u32(summarizer.max_chars()),
        );
        let mut after = resume.take();
        // A resumed scan follows one that skipped entries.
        let (mut skipped, mut failed_in_a_row) = (after.is_some(), 0);
        loop {
            let page = self
                .store
                .summaries()
                .unsummarized(after.as_ref(), least, most, ENTRIES)
                .await
                .map_err(|error| {
                    tracing::debug!(error = %error, "Could not read entries without summaries");
                    None
                })?;
            for entry in page.entries {
                match self.add_summary(summarizer, entry).await {
                    Ok(()) => failed_in_a_row = 0,
                    // An unavailable provider usually returns a time for the retry. Otherwise it may fail on this entry.
                    Err(Failed::Provider(None)) => {
                        (skipped, failed_in_a_row) = (true, failed_in_a_row + 1)
                    }
                    Err(Failed::Provider(retry_after)) => {
                        *resume = page.next;
                        return Err(retry_after);
                    }
                    // It would fail for the other entries too, after a summary was made for each.
                    Err(Failed::Database) => {
                        *resume = after;
                        return Err(None);
                    }
                }
            }
            after = page.next;
            if failed_in_a_row > FAILURES_IN_A_ROW {
                *resume = after;
                return Err(None);
            }
            if after.is_none() {
                return if skipped { Err(None) } else { Ok(()) };
            }
        }
    }

    /// Writes the summary of one entry, if it exists and still lacks one.
    ///
    /// # Errors
    /// As [`Self::summarize_all`].
    async fn summarize_entry(
        &self,
        summarizer: &dyn Summarizer,
        owner: OwnerId,
        id: i64,
    ) -> Result<(), Option<Duration>> {
        let text_chars = Some(to_u32(summarizer.max_chars()));
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
            .await
            .map_err(|_| None)?;
        match found.entries.into_iter().next() {
            Some(entry)
                if entry.damage.is_none()
                    && entry.summary.is_empty()
                    && self.needs_summary(&entry.text) =>
            {
                let unsummarized = Unsummarized {
                    owner,
                    id,
                    version: entry.version,
                    text: entry.text,
                };
                match self.add_summary(summarizer, unsummarized).await {
                    Ok(()) => Ok(()),
                    Err(Failed::Provider(retry_after)) => Err(retry_after),
                    Err(Failed::Database) => Err(None),
                }
            }
            _ => Ok(()),
        }
    }

    /// Writes the summary of an entry and stores it.
    ///
    /// # Errors
    /// What failed. An entry that the provider refuses for good stays without a summary, and is no error.
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
                tracing::warn!(error = %error, entry.id = id, "Could not summarize an entry; it stays without a summary");
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
