//! Counts refusals and writes them in batches, at most once a second: those of authenticated
//! callers to the audit log, those of unauthenticated ones to the service's log.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use context_model::{Reason, Timestamp};
use context_store::{Denial, OwnerId, Store};

use super::caller::Caller;
use crate::clock::Clock;
use crate::lock::locked;

/// Interval at which counted refusals are written.
const EVERY: Duration = Duration::from_secs(1);
/// Pause after a failure to write. On a standby every write fails.
const RETRY: Duration = Duration::from_secs(60);
/// Maximum number of audit lines that wait to be written.
const MAX_WAITING: usize = 10_000;
/// How long writing the last lines may take when the service stops.
const LAST_LINES: Duration = Duration::from_secs(5);

/// Counts refusals and writes them.
pub(super) struct Refusals {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    counted: Mutex<Counted>,
    /// Held while lines are written, so that shutdown waits for them.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Counted {
    /// The refusals of authenticated callers, by owner, key and reason.
    authenticated: HashMap<(OwnerId, String, Reason), Line>,
    unauthenticated: u64,
    /// Refusals of authenticated callers that were dropped because too many lines waited.
    lost: i64,
    /// Whether a task is scheduled to write the counts.
    scheduled: bool,
}

impl Counted {
    fn is_empty(&self) -> bool {
        self.authenticated.is_empty() && self.unauthenticated == 0
    }
}

/// One line of the audit log, for repeated refusals.
struct Line {
    at: Timestamp,
    operation: String,
    attempts: i64,
}

impl Refusals {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            clock,
            counted: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
        }
    }

    /// Counts a refusal of an authenticated caller.
    pub fn count_authenticated(self: &Arc<Self>, caller: &Caller, operation: &str, reason: Reason) {
        let Some(key_id) = caller.key_id.clone() else {
            return;
        };
        let line = Line {
            at: self.clock.now(),
            operation: operation.to_owned(),
            attempts: 1,
        };
        locked(&self.counted).add((caller.owner.clone(), key_id, reason), line);
        self.schedule();
    }

    /// Counts a refusal of a caller without valid credentials.
    pub fn count_unauthenticated(self: &Arc<Self>) {
        locked(&self.counted).unauthenticated += 1;
        self.schedule();
    }

    fn schedule(self: &Arc<Self>) {
        if std::mem::replace(&mut locked(&self.counted).scheduled, true) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let pause = if this.write().await { EVERY } else { RETRY };
                tokio::time::sleep(pause).await;
                let mut counted = locked(&this.counted);
                if counted.is_empty() {
                    counted.scheduled = false;
                    return;
                }
            }
        });
    }

    /// Writes everything counted so far; for shutdown.
    pub async fn flush(&self) {
        let write_all = async {
            loop {
                self.write().await;
                if locked(&self.counted).authenticated.is_empty() {
                    return;
                }
                tokio::time::sleep(EVERY).await;
            }
        };
        if tokio::time::timeout(LAST_LINES, write_all).await.is_err() {
            tracing::error!(
                "Refusals may be missing from the audit log: the last ones could not be written in time"
            );
        }
    }

    /// Writes what was counted. Returns false if some lines could not be written and wait for the next attempt.
    async fn write(&self) -> bool {
        let _writing = self.writing.lock().await;
        let (authenticated, unauthenticated, lost) = {
            let mut counted = locked(&self.counted);
            (
                std::mem::take(&mut counted.authenticated),
                std::mem::take(&mut counted.unauthenticated),
                std::mem::take(&mut counted.lost),
            )
        };
        if unauthenticated > 0 {
            tracing::warn!(
                requests = unauthenticated,
                "Refused requests without a valid key or token"
            );
        }
        if lost > 0 {
            tracing::error!(
                refusals = lost,
                "Refusals are missing from the audit log: too many waited to be written"
            );
        }
        let keys = self.store.keys();
        let (mut unwritten, mut failure) = (0_u64, None);
        for ((owner, key_id, reason), line) in authenticated {
            let Line {
                at,
                operation,
                attempts,
            } = line;
            let denial = Denial {
                at,
                key_id,
                operation,
                reason: reason.as_str().to_owned(),
                attempts,
            };
            if let Err(error) = keys.record_denial(&owner, denial.clone()).await {
                unwritten += 1;
                failure = Some(error);
                let Denial {
                    at,
                    key_id,
                    operation,
                    reason: _,
                    attempts,
                } = denial;
                locked(&self.counted).add(
                    (owner, key_id, reason),
                    Line {
                        at,
                        operation,
                        attempts,
                    },
                );
            }
        }
        // One warning in all: on a full disk thousands of lines can fail.
        if let Some(error) = &failure {
            tracing::warn!(%error, lines = unwritten, "Could not write refusals to the audit log; will retry");
        }
        failure.is_none()
    }
}

impl Counted {
    fn add(&mut self, key: (OwnerId, String, Reason), line: Line) {
        let is_full = self.authenticated.len() >= MAX_WAITING;
        match self.authenticated.entry(key) {
            Entry::Occupied(mut counted) => {
                let counted = counted.get_mut();
                counted.attempts = counted.attempts.saturating_add(line.attempts);
                if line.at >= counted.at {
                    counted.at = line.at;
                    counted.operation = line.operation;
                }
            }
            Entry::Vacant(_) if is_full => self.lost = self.lost.saturating_add(line.attempts),
            Entry::Vacant(place) => _ = place.insert(line),
        }
    }
}
