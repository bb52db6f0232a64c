//! Summaries, written in the background. A write only notes that there is something to do: it neither waits nor fails
//! for a summary. Entries without one are found in the database, so nothing is forgotten over a restart.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use context_model::{Result, SummaryStatus};
use context_providers::{ProviderError, Summarizer};
use context_store::{LateSummary, Memory, OwnerId, RowSelection, SummaryStore, Unsummarized};
use tokio::sync::Notify;

use crate::{Caller, Engine, Switch};

/// Entries that are remembered; when there are more, all are looked at.
const REMEMBERED: usize = 1_024;
/// Entries read at a time.
const ENTRIES: u32 = 8;
/// How long to wait after a failure, doubled each time, and the most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How often all entries are looked at when nothing is known to wait: what was refused is tried again then.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Who writes summaries, and what waits for one.
#[derive(Default)]
pub(crate) struct Summaries {
    summarizer: RwLock<Option<Arc<dyn Summarizer>>>,
    waiting: Mutex<Waiting>,
    wake: Notify,
}

/// What is known to wait.
#[derive(Default)]
struct Waiting {
    entries: VecDeque<(OwnerId, i64)>,
    /// Whether there may be more than that.
    more: bool,
}

enum Next {
    Entry(OwnerId, i64),
    All,
    Nothing,
}

impl Summaries {
    fn summarizer(&self) -> Option<Arc<dyn Summarizer>> {
        self.summarizer
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, owner: &OwnerId, id: i64) {
        let mut waiting = self.waiting();
        if waiting.entries.len() < REMEMBERED {
            waiting.entries.push_back((owner.clone(), id));
        } else {
            waiting.more = true;
        }
        self.wake.notify_one();
    }

    fn look_at_all(&self) {
        self.waiting().more = true;
    }

    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        if std::mem::take(&mut waiting.more) {
            // They are among all.
            waiting.entries.clear();
            return Next::All;
        }
        waiting
            .entries
            .pop_front()
            .map_or(Next::Nothing, |(owner, id)| Next::Entry(owner, id))
    }
}

impl Engine {
    /// Writes summaries with this from now on.
    pub fn use_summarizer(&self, summarizer: Arc<dyn Summarizer>) {
        *self
            .summaries
            .summarizer
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(summarizer);
        self.summaries.look_at_all();
        self.summaries.wake.notify_one();
    }

    /// Why no summaries are written; `None` when they are.
    #[must_use]
    pub fn why_no_summaries(&self) -> Option<String> {
        if self.config.summaries == Switch::False {
            return Some("switched off by ENABLE_SUMMARY_GENERATION=false".to_owned());
        }
        if self.store.summaries().is_none() {
            return Some("this database keeps no summaries".to_owned());
        }
        let none = "no model writes summaries: set SUMMARY_MODEL, and SUMMARY_PROVIDER unless it is Ollama";
        self.summaries
            .summarizer()
            .is_none()
            .then(|| none.to_owned())
    }

    /// Whether this text is to get a summary.
    pub(crate) fn wants_summary(&self, text: &str) -> bool {
        let least = self.config.summary_min_content_length as usize;
        // A character has a byte at least.
        text.len() >= least
            && self.why_no_summaries().is_none()
            && text.chars().nth(least.saturating_sub(1)).is_some()
    }

    /// Notes that an entry waits for its summary.
    pub(crate) fn awaits_summary(&self, caller: &Caller, id: i64) {
        self.summaries.add(&caller.owner, id);
    }

    /// Writes the summaries that wait, as long as the returned future is polled.
    pub async fn summarize(&self) {
        let mut pause = FIRST_PAUSE;
        loop {
            let woken = self.summaries.wake.notified();
            let outcome = match (
                self.why_no_summaries(),
                self.summaries.summarizer(),
                self.store.summaries(),
            ) {
                (None, Some(summarizer), Some(store)) => match self.summaries.next() {
                    Next::Entry(owner, id) => {
                        self.summarize_entry(&*summarizer, store, owner, id).await
                    }
                    Next::All => self.summarize_all(&*summarizer, store).await,
                    Next::Nothing => {
                        if tokio::time::timeout(INTERVAL, woken).await.is_err() {
                            self.summaries.look_at_all();
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
                Ok(()) => pause = FIRST_PAUSE,
                Err(retry_after) => {
                    self.summaries.look_at_all();
                    tokio::time::sleep(retry_after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// # Errors
    /// When to try again: the provider or the database is away.
    async fn summarize_all(
        &self,
        summarizer: &dyn Summarizer,
        store: &dyn SummaryStore,
    ) -> Result<(), Option<Duration>> {
        let (least, most) = (
            self.config.summary_min_content_length.max(1),
            small(summarizer.max_chars()),
        );
        let mut after = None;
        loop {
            let page = store
                .unsummarized(after.as_ref(), least, most, ENTRIES)
                .await
                .map_err(|error| {
                    tracing::debug!(error = %error, "Entries without summaries cannot be read now");
                    None
                })?;
            for entry in page.entries {
                add_summary(summarizer, store, entry).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// # Errors
    /// As [`Self::summarize_all`].
    async fn summarize_entry(
        &self,
        summarizer: &dyn Summarizer,
        store: &dyn SummaryStore,
        owner: OwnerId,
        id: i64,
    ) -> Result<(), Option<Duration>> {
        let text_chars = Some(small(summarizer.max_chars()));
        let selection = RowSelection {
            images: false,
            text_chars,
            explain: false,
            max_bytes: u64::MAX,
            memory: Memory::UNCOUNTED,
        };
        let found = self
            .store
            .get_contexts(&owner, vec![id], selection, Self::read(None))
            .await
            .map_err(|_| None)?;
        match found.entries.into_iter().next() {
            Some(entry)
                if entry.damage.is_none()
                    && entry.summary.is_empty()
                    && self.wants_summary(&entry.text) =>
            {
                add_summary(
                    summarizer,
                    store,
                    Unsummarized {
                        owner,
                        id,
                        version: entry.version,
                        text: entry.text,
                    },
                )
                .await
            }
            _ => Ok(()),
        }
    }

    /// The state of summaries.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn summary_status(
        &self,
        caller: &Caller,
        total_entries: i64,
    ) -> Result<SummaryStatus> {
        let reason = self.why_no_summaries();
        let summarizer = self.summaries.summarizer().filter(|_| reason.is_none());
        let summary_count = match self.store.summaries() {
            Some(store) => store
                .summarized_entries(&caller.owner)
                .await
                .map_err(crate::store_error)?,
            None => 0,
        };
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
                crate::statistics::percentage(summary_count, total_entries)
            } else {
                0.0
            },
            min_content_length: i64::from(self.config.summary_min_content_length),
        })
    }
}

/// Writes the summary of an entry and gives it to the store.
async fn add_summary(
    summarizer: &dyn Summarizer,
    store: &dyn SummaryStore,
    entry: Unsummarized,
) -> Result<(), Option<Duration>> {
    let Unsummarized {
        owner,
        id,
        version,
        text,
    } = entry;
    let summary = match summarizer.summarize(&text).await {
        Ok(summary) => summary,
        Err(ProviderError::Unavailable { what, retry_after }) => {
            tracing::debug!(what, "Entries keep waiting for their summaries");
            return Err(retry_after);
        }
        Err(error) => {
            tracing::warn!(error = %error, entry.id = id, "An entry gets no summary");
            return Ok(());
        }
    };
    store
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
            tracing::debug!(error = %error, "A summary cannot be stored now");
            None
        })
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
