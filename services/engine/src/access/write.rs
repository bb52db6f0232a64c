//! What every write goes through, of entries and of artifacts.

use std::sync::Arc;

use context_model::Result;
use context_store::{Idempotency, OwnerId, Store, Usage, WriteOptions};

use super::caller::Caller;
use super::quota::{Admitted, QuotaChecks, Quotas};
use super::request_hash;
use crate::clock::Clock;
use crate::error::store_error;
use crate::validate;

/// What comes with a write beside its request.
#[derive(Debug, Clone, Default)]
pub struct WriteContext {
    /// Makes a retry harmless: 1 to 255 visible ASCII characters (REST `Idempotency-Key`, gRPC metadata
    /// `idempotency-key`).
    pub idempotency_key: Option<String>,
}

/// Gives writes their time and idempotency key, and admits what quotas allow.
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

    /// What the store is given with a write.
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
                // What a narrowed caller's request means depends on how it is narrowed.
                let operation = match caller.within() {
                    Some(threads) => format!("{operation} within {:?}", threads.shown()),
                    None => operation.to_owned(),
                };
                Some(Idempotency {
                    key: key.clone(),
                    request_hash: request_hash::hash(&operation, request)?,
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

    /// Admits a write of so many items that adds this much, unless it repeats one whose outcome is stored. That is asked
    /// first: a retry is answered also when the quota was reached or no provider of embeddings answers.
    ///
    /// # Errors
    /// `QUOTA_EXCEEDED`; the store's.
    pub async fn admit(
        &self,
        caller: &Caller,
        options: &WriteOptions,
        items: usize,
        mut more: Usage,
    ) -> Result<Admitted> {
        if let Some(key) = &options.idempotency {
            if self
                .store
                .is_recorded(&caller.owner, key, options.now)
                .await
                .map_err(store_error)?
            {
                return Ok(Admitted::Repeated);
            }
            let bytes = key.expected_bytes(items);
            self.quotas
                .admit_outcome(&caller.owner, options.now, bytes)
                .await?;
            // What adds nothing else may make room for more, and is not refused.
            if more != Usage::default() {
                more.bytes = more.bytes.saturating_add(bytes);
            }
        }
        self.quotas.admit_usage(&caller.owner, more).await?;
        Ok(Admitted::New)
    }

    /// Bytes of what the owner has, within a minute.
    ///
    /// # Errors
    /// The store's.
    pub async fn owners_bytes(&self, owner: &OwnerId) -> Result<u64> {
        self.quotas.owners_bytes(owner).await
    }
}
