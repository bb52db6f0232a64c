//! Detects when the caller of a stream loses its rights.
//!
//! One task for each key or token checks it four times a second, for all its streams together. An idle stream therefore
//! wakes only for its bookmarks. Without authentication there is no such task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use context_engine::Authenticator;
use context_model::Operation;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// How often a key is checked.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Checks the keys and tokens of all open streams.
pub struct Rights {
    /// `None` if authentication is off.
    authenticator: Option<Arc<Authenticator>>,
    /// Cancelled: the checks end.
    drain: CancellationToken,
    /// Senders by the value of the `Authorization` header.
    signals: Mutex<HashMap<String, watch::Sender<()>>>,
}

/// Tells a stream to check its caller's rights again, because a check failed.
pub struct RecheckSignal(Option<watch::Receiver<()>>);

impl Rights {
    /// Checks keys and tokens with this authenticator, until `drain` is cancelled.
    #[must_use]
    pub fn new(authenticator: Option<Arc<Authenticator>>, drain: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            authenticator,
            drain,
            signals: Mutex::default(),
        })
    }

    /// Checks the key or token in this `Authorization` header until the result is dropped.
    #[must_use]
    pub fn watch(self: &Arc<Self>, header: Option<&str>) -> RecheckSignal {
        let (Some(authenticator), Some(header)) = (&self.authenticator, header) else {
            return RecheckSignal(None);
        };
        let mut signals = self.lock();
        let signal = signals.entry(header.to_owned()).or_insert_with(|| {
            let check = Self::check(
                Arc::clone(self),
                Arc::clone(authenticator),
                header.to_owned(),
            );
            tokio::spawn(check);
            watch::Sender::default()
        });
        RecheckSignal(Some(signal.subscribe()))
    }

    /// Checks one key or token as long as it has streams.
    async fn check(self: Arc<Self>, authenticator: Arc<Authenticator>, header: String) {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.drain.cancelled() => return,
            }
            let is_valid = authenticator
                .authenticate(&header)
                .await
                .and_then(|holder| holder.caller.require(Operation::Watch))
                .is_ok();
            let mut signals = self.lock();
            match signals.get(&header) {
                Some(signal) if signal.receiver_count() > 0 => {
                    // Each stream then checks by itself: the check may also fail because the database is unavailable.
                    if !is_valid {
                        signal.send_replace(());
                    }
                }
                _ => {
                    signals.remove(&header);
                    return;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        self.signals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecheckSignal {
    /// Waits for the next signal. Never returns without authentication.
    pub async fn received(&mut self) {
        let is_received = match &mut self.0 {
            Some(signal) => signal.changed().await.is_ok(),
            None => false,
        };
        if !is_received {
            std::future::pending().await
        }
    }
}
