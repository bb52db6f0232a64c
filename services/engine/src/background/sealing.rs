//! Giving checksums in the background to rows that have none: from before there were any, and of services from before.

use std::time::Duration;

use super::Background;

/// Between two steps, so that sealing takes a small part of what the database can do.
const PAUSE: Duration = Duration::from_millis(10);
/// After a failure, and before all rows are seen again: an older service may run beside this one.
const RETRY: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_secs(6 * 3600);

impl Background {
    /// Gives checksums to rows that have none, as long as the returned future is polled.
    pub async fn seal(&self) {
        let seals = self.store.seals();
        let (mut after, mut sealed) = (None, 0);
        loop {
            let rest = match seals.seal(after.as_ref()).await {
                Ok(page) => {
                    sealed += page.sealed;
                    after = page.next;
                    if after.is_some() { PAUSE } else { INTERVAL }
                }
                Err(error) => {
                    tracing::debug!(error = %error, "Rows cannot get checksums now");
                    RETRY
                }
            };
            if after.is_none() && sealed > 0 {
                tracing::info!(rows = sealed, "Rows from before checksums have them now");
                sealed = 0;
            }
            tokio::time::sleep(rest).await;
        }
    }
}
