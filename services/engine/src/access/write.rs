//! What every write of entries and artifacts needs: time, idempotency key and quota.

use std::sync::Arc;

use context_model::Result;
use context_store::{Idempotency, OwnerId, Store, Usage, WriteOptions};

use super::caller::Caller;
use super::quota::{Admitted, QuotaChecks, Quotas};
use super::request_hash;
use crate::clock::Clock;
use crate::error::store_error;
use crate::validate;

/// The part of a write request that is not in its body.
#[derive(Debug, Clone, Default)]
pub struct WriteContext {
    /// Makes retries safe: 1 to 255 visible ASCII characters (REST `Idempotency-Key`, gRPC metadata
    /// `idempotency-key`).
    pub idempotency_key: Option<String>,
}

/// Assigns time and idempotency key to writes, and checks quotas.
pub(crate) struct Writes {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    quotas: QuotaChecks,
}

impl Writes {
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        quotas: Quotas,
        idempotency_bytes: u64,
    ) -> Self {
        Self {
            quotas: QuotaChecks::new(store.clone(), quotas, idempotency_bytes),
            store,
            clock,
        }
    }

    /// The options of a write for the store.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a malformed idempotency key.
    pub fn options<T: serde::Serialize>(
        &self,
        caller: &Caller,
        operation: &str,
        request: &T,
        write: &WriteContext,
    ) -> Result<WriteOptions> {
        let idempotency = match &write.idempotency_key {
            Some(key) => {
                validate::idempotency_key(key)?;
                // The effect of a narrowed caller's request depends on the restriction, so the
                // restriction is part of the hash.
                let operation = match caller.within() {
                    Some(threads) => format!("{operation} within {:?}", threads.shown()),
                    None => operation.to_owned(),
                };
                Some(Idempotency {
                    key: key.clone(),
                    request_hash: request_hash::hash(&operation, request)?,
                    rejected: Vec::new(),
                })
            }
            None => None,
        };
        Ok(WriteOptions {
            now: self.clock.now(),
            idempotency,
            key_id: caller.key_id.clone(),
            embeddings: Vec::new(),
        })
    }

    /// Checks the quotas for a write of `items` items that adds `more` to the owner's usage. A write that
    /// [repeats](Self::repetition) a request is not checked, so that a retry succeeds even if the quota was reached.
    ///
    /// # Errors
    /// `QUOTA_EXCEEDED`; the store's errors.
    pub async fn admit(
        &self,
        caller: &Caller,
        options: &WriteOptions,
        items: usize,
        more: Usage,
    ) -> Result<Admitted> {
        let admitted = self.repetition(caller, options).await?;
        if admitted == Admitted::New {
            self.admit_new(caller, options, items, more).await?;
        }
        Ok(admitted)
    }

    /// Whether a write repeats a request with a stored outcome. Operations whose checks depend on more than the request
    /// call this before those checks.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn repetition(&self, caller: &Caller, options: &WriteOptions) -> Result<Admitted> {
        let Some(key) = &options.idempotency else {
            return Ok(Admitted::New);
        };
        let recorded = self
            .store
            .is_recorded(&caller.owner, key, options.now)
            .await
            .map_err(store_error)?;
        Ok(if recorded {
            Admitted::Repeated
        } else {
            Admitted::New
        })
    }

    /// Admits a write of `items` items that adds `more` to the owner's usage and repeats no request.
    ///
    /// # Errors
    /// `QUOTA_EXCEEDED`; the store's errors.
    pub async fn admit_new(
        &self,
        caller: &Caller,
        options: &WriteOptions,
        items: usize,
        mut more: Usage,
    ) -> Result<()> {
        if let Some(key) = &options.idempotency {
            let bytes = key.expected_bytes(items);
            self.quotas
                .admit_outcome(&caller.owner, options.now, bytes)
                .await?;
            // A write that adds nothing else, such as a delete, may free space. So the owner's quota of bytes does not
            // refuse it because of its outcome.
            if more != Usage::default() {
                more.bytes = more.bytes.saturating_add(bytes);
            }
        }
        self.quotas.admit_usage(&caller.owner, more).await
    }

    /// Notes that `deleted` entries or artifacts of the caller's owner were deleted, so that they no longer count
    /// towards its quotas.
    pub async fn freed(&self, caller: &Caller, deleted: u64) {
        if deleted > 0 {
            self.quotas.freed(&caller.owner).await;
        }
    }

    /// Whether any quota is set.
    pub const fn has_quotas(&self) -> bool {
        self.quotas.are_set()
    }

    /// The owner's usage in bytes, at most a minute old.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn owners_bytes(&self, owner: &OwnerId) -> Result<u64> {
        self.quotas.owners_bytes(owner).await
    }
}
