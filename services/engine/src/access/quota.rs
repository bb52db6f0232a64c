//! Quotas of owners, and their usage.
//!
//! The database counts an owner's usage about once a minute; what this service admits in between
//! is added. So most writes cost no count, and writes of other services are seen within a minute.
//! Before a write is refused, the usage is counted again, at most once a second, and once after
//! each delete of this service.

#![expect(clippy::disallowed_methods, reason = "the age of counts")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use context_model::{
    ArtifactPath, Error, JsonObject, Metadata, NewImage, Reason, Result, Tags, Timestamp,
};
use context_store::{OwnerId, Store, Usage};

use crate::error::store_error;
use crate::lock::locked;

/// Maximum age of a count.
const FRESH: Duration = Duration::from_secs(60);
/// Minimum age of a count that is replaced before a write is refused.
const RECOUNT: Duration = Duration::from_secs(1);
/// Maximum number of owners whose counts are cached.
const MAX_CACHED: usize = 10_000;

/// The quotas of each owner. `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Context entries.
    pub entries: Option<u64>,
    /// Artifacts.
    pub artifacts: Option<u64>,
    /// Bytes of texts, metadata, tags, images, all versions of artifacts, their paths, and stored
    /// outcomes of requests.
    pub bytes: Option<u64>,
}

impl Quotas {
    /// Whether no quota is set.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.entries.is_none() && self.artifacts.is_none() && self.bytes.is_none()
    }

    /// Checks that an owner with the usage `has` may add `more`.
    fn check(&self, has: Usage, more: Usage) -> Result<()> {
        for (quota, has, more, what) in [
            (self.entries, has.entries, more.entries, "context entries"),
            (self.artifacts, has.artifacts, more.artifacts, "artifacts"),
            (self.bytes, has.bytes, more.bytes, "bytes"),
        ] {
            // A quota to which the write adds nothing cannot refuse it.
            if let Some(quota) = quota.filter(|quota| more > 0 && has.saturating_add(more) > *quota)
            {
                let sentence = format!(
                    "the owner has {has} of at most {quota} {what}, and this would add {more}; delete some, or ask the operator for more"
                );
                return Err(Error::new(Reason::QuotaExceeded, sentence));
            }
        }
        Ok(())
    }
}

/// Cached counts by owner.
#[derive(Debug)]
struct Counts<T>(Mutex<HashMap<OwnerId, Slot<T>>>);

/// One owner's count. Its lock makes all requests that need it wait for a single count.
type Slot<T> = Arc<tokio::sync::Mutex<Option<Count<T>>>>;

#[derive(Debug, Clone, Copy)]
struct Count<T> {
    usage: T,
    at: Instant,
    /// Whether something that it includes has been deleted.
    is_too_high: bool,
}

impl<T> Default for Counts<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Whether a write is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It is new and takes effect.
    New,
    /// A repeated request: the store returns its stored outcome and adds nothing.
    Repeated,
}

impl<T> Counts<T> {
    fn of(&self, owner: &OwnerId) -> Slot<T> {
        let mut counts = locked(&self.0);
        if counts.len() >= MAX_CACHED && !counts.contains_key(owner) {
            counts.clear();
        }
        counts.entry(owner.clone()).or_default().clone()
    }
}

/// Counts the usage of owners and refuses writes beyond their quotas.
pub(super) struct QuotaChecks {
    store: Arc<dyn Store>,
    quotas: Quotas,
    /// Quota of each owner's stored outcomes, in bytes.
    outcome_bytes: u64,
    usage: Counts<Usage>,
    outcomes: Counts<u64>,
}

impl QuotaChecks {
    pub fn new(store: Arc<dyn Store>, quotas: Quotas, outcome_bytes: u64) -> Self {
        Self {
            store,
            quotas,
            outcome_bytes,
            usage: Counts::default(),
            outcomes: Counts::default(),
        }
    }

    /// Whether any quota is set.
    pub const fn are_set(&self) -> bool {
        !self.quotas.is_none()
    }

    /// Admits one more stored outcome of `bytes` bytes. No outcome is deleted early to make room: a retry of its
    /// request would then be executed a second time.
    ///
    /// # Errors
    /// `QUOTA_EXCEEDED`; the store's errors.
    pub async fn admit_outcome(&self, owner: &OwnerId, now: Timestamp, bytes: u64) -> Result<()> {
        let quota = self.outcome_bytes;
        let slot = self.outcomes.of(owner);
        let mut cached = slot.lock().await;
        let fresh = cached.filter(|count| count.at.elapsed() < FRESH);
        let mut count = match fresh {
            Some(count) => count,
            None => self.count_outcomes(owner, now).await?,
        };
        let is_full = |count: &Count<u64>| count.usage.saturating_add(bytes) > quota;
        if is_full(&count) && count.at.elapsed() >= RECOUNT {
            count = self.count_outcomes(owner, now).await?;
        }
        let refused = is_full(&count);
        if !refused {
            count.usage = count.usage.saturating_add(bytes);
        }
        *cached = Some(count);
        if refused {
            let has = count.usage;
            let sentence = format!(
                "the stored outcomes of the owner's requests with an idempotency key have {has} of at most {quota} bytes, and each is kept \
                 for 24 hours; send fewer requests with a key, or ask the operator for more"
            );
            return Err(Error::new(Reason::QuotaExceeded, sentence));
        }
        Ok(())
    }

    async fn count_outcomes(&self, owner: &OwnerId, now: Timestamp) -> Result<Count<u64>> {
        let at = Instant::now();
        let usage = self
            .store
            .recorded_bytes(owner, now)
            .await
            .map_err(store_error)?;
        Ok(Count {
            usage,
            at,
            is_too_high: false,
        })
    }

    /// Admits a write that adds `more`.
    ///
    /// # Errors
    /// `QUOTA_EXCEEDED`; the store's errors.
    pub async fn admit_usage(&self, owner: &OwnerId, more: Usage) -> Result<()> {
        let quotas = &self.quotas;
        if quotas.is_none() {
            return Ok(());
        }
        let slot = self.usage.of(owner);
        let mut cached = slot.lock().await;
        let fresh = cached.filter(|count| count.at.elapsed() < FRESH);
        let mut count = match fresh {
            Some(count) => count,
            None => self.count(owner).await?,
        };
        let may_recount = count.is_too_high || count.at.elapsed() >= RECOUNT;
        if may_recount && quotas.check(count.usage, more).is_err() {
            count = self.count(owner).await?;
        }
        let admitted = quotas.check(count.usage, more);
        if admitted.is_ok() {
            let Usage {
                entries,
                artifacts,
                bytes,
            } = &mut count.usage;
            *entries = entries.saturating_add(more.entries);
            *artifacts = artifacts.saturating_add(more.artifacts);
            *bytes = bytes.saturating_add(more.bytes);
        }
        *cached = Some(count);
        admitted
    }

    /// Notes that data of the owner was deleted, so that the next write that would be refused counts the usage again.
    pub async fn freed(&self, owner: &OwnerId) {
        if self.quotas.is_none() {
            return;
        }
        let slot = self.usage.of(owner);
        let mut cached = slot.lock().await;
        if let Some(count) = cached.as_mut() {
            count.is_too_high = true;
        }
    }

    async fn count(&self, owner: &OwnerId) -> Result<Count<Usage>> {
        let at = Instant::now();
        let usage = self.store.usage(owner).await.map_err(store_error)?;
        Ok(Count {
            usage,
            at,
            is_too_high: false,
        })
    }

    /// The owner's usage in bytes, at most a minute old.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn owners_bytes(&self, owner: &OwnerId) -> Result<u64> {
        let slot = self.usage.of(owner);
        let mut cached = slot.lock().await;
        let count = match cached.filter(|count| count.at.elapsed() < FRESH) {
            Some(count) => count,
            None => self.count(owner).await?,
        };
        *cached = Some(count);
        Ok(count.usage.bytes)
    }
}

/// The number of bytes that an entry adds to the owner's usage.
pub(crate) fn stored_bytes(
    text: &str,
    metadata: Option<&JsonObject>,
    tags: Option<&Tags>,
    images: Option<&[NewImage]>,
) -> u64 {
    let metadata = metadata.map_or(0, json_bytes);
    let images: usize = images
        .unwrap_or_default()
        .iter()
        .map(|image| {
            let metadata = image.metadata.as_ref().map(Metadata::as_object);
            image.data.len() + metadata.map_or(0, json_bytes)
        })
        .sum();
    let tags: usize = tags.map_or(0, |tags| tags.as_slice().iter().map(String::len).sum());
    (text.len() + metadata + tags + images) as u64
}

fn json_bytes(object: &JsonObject) -> usize {
    serde_json::to_string(object).map_or(0, |text| text.len())
}

/// The number of bytes that a version of an artifact adds to the owner's usage.
pub(crate) fn version_bytes(title: &str, content: &str, metadata: &JsonObject) -> u64 {
    title.len() as u64 + stored_bytes(content, Some(metadata), None, None)
}

/// The number of bytes that an artifact's path adds to the owner's usage.
pub(crate) fn path_bytes(path: Option<&ArtifactPath>) -> u64 {
    path.map_or(0, |path| path.as_str().len() as u64)
}

#[cfg(test)]
mod tests {
    use context_model::Violations;

    use super::*;

    #[test]
    fn an_image_adds_its_bytes_and_its_metadata_and_a_tag_its_bytes() {
        let object = JsonObject::from_iter([("a".to_owned(), 1.into())]);
        let image = NewImage {
            data: vec![0; 5],
            mime_type: "image/png".to_owned(),
            metadata: Some(Metadata::from_stored(object)),
        };
        assert_eq!(stored_bytes("text", None, None, Some(&[image])), 4 + 5 + 7);
        let tags = vec!["a".to_owned(), "ä".to_owned()];
        let tags = Tags::parse(tags, "tags", &mut Violations::default());
        assert_eq!(stored_bytes("text", None, Some(&tags), None), 4 + 1 + 2);
    }

    #[test]
    fn a_version_adds_its_title_content_and_metadata() {
        let metadata = JsonObject::from_iter([("a".to_owned(), 1.into())]);
        assert_eq!(version_bytes("ä", "text", &metadata), 2 + 4 + 7);
    }

    #[test]
    fn a_quota_refuses_what_adds_to_it_and_nothing_else() {
        let quotas = Quotas {
            entries: Some(10),
            artifacts: None,
            bytes: Some(100),
        };
        let usage = |entries, bytes| Usage {
            entries,
            artifacts: 0,
            bytes,
        };
        assert!(quotas.check(usage(9, 0), usage(1, 100)).is_ok());
        assert!(quotas.check(usage(11, 0), usage(0, 50)).is_ok());
        let error = quotas.check(usage(9, 0), usage(2, 1)).unwrap_err();
        assert_eq!(error.reason, Reason::QuotaExceeded);
        assert!(
            error.message.contains("9 of at most 10 context entries"),
            "{}",
            error.message
        );
        assert!(
            quotas
                .check(usage(0, 60), usage(1, 41))
                .unwrap_err()
                .message
                .contains("bytes")
        );
        assert!(
            quotas
                .check(
                    usage(0, 0),
                    Usage {
                        entries: 0,
                        artifacts: u64::MAX,
                        bytes: 0
                    }
                )
                .is_ok()
        );
        assert!(
            quotas
                .check(usage(0, u64::MAX), usage(0, u64::MAX))
                .is_err()
        );
    }
}
