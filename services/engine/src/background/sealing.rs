//! Adds checksums to rows without one: written before checksums existed, or by an older service.

use std::time::Duration;

use super::Background;

/// Pause between batches, so that this uses a small part of the database's capacity.
const PAUSE: Duration = Duration::from_millis(10);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// Pause before the next scan of all rows: an older service may be running and write rows without
/// checksums.
const INTERVAL: Duration = Duration::from_secs(6 * 3600);

impl Background {
    /// Adds checksums to rows that have none, for as long as the future is polled.
    pub async fn seal(&self) {
        let seals = self.store.seals();
        let (mut after, mut sealed) = (None, 0);
        loop {
            let pause = match seals.seal(after.as_ref()).await {
                Ok(page) => {
                    sealed += page.sealed;
                    after = page.next;
                    if after.is_some() { PAUSE } else { INTERVAL }
                }
                Err(error) => {
                    tracing::debug!(error = %error, "Could not add checksums; will retry");
                    RETRY
                }
            };
            if after.is_none() && sealed > 0 {
                tracing::info!(rows = sealed, "Added checksums to rows that had none");
                sealed = 0;
            }
            tokio::time::sleep(pause).await;
        }
    }
}
