//! What a database must implement for API keys and owners.

use async_trait::async_trait;
use context_model::Timestamp;

use crate::{OwnerId, Result};

/// A key in its stored form: everything except the secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// The key's id, which is not secret.
    pub id: String,
    /// The owner of the key.
    pub owner: OwnerId,
    /// The name given by the owner.
    pub name: String,
    /// SHA-256 of the key's first 16 characters.
    pub lookup: [u8; 32],
    /// bcrypt of the key.
    pub hash: String,
    /// SHA-256 of the key in hexadecimal. `None` when an older version created the key and it has not been used since.
    pub digest: Option<String>,
    /// Names of the scopes.
    pub scopes: Vec<String>,
    /// The restrictions of the key, as JSON.
    pub narrowing: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, accurate to a minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was deactivated.
    pub deactivated_at: Option<Timestamp>,
}

/// A change to a key. Fields that are `None` stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyChange {
    /// New name.
    pub name: Option<String>,
    /// New scopes.
    pub scopes: Option<Vec<String>>,
    /// New restrictions, as JSON.
    pub narrowing: Option<String>,
    /// New expiry. `Some(None)` removes it.
    pub expires_at: Option<Option<Timestamp>>,
    /// Deactivates the key at this time. A deactivated key cannot be activated again.
    pub deactivated_at: Option<Timestamp>,
}

/// An action on a key, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEvent {
    /// Unique id of the event.
    pub id: String,
    /// When it happened.
    pub at: Timestamp,
    /// The credentials that were used: the id of a key, or the name of a token's holder. `None` for the operator and
    /// for a caller without authentication.
    pub actor: Option<String>,
    /// The action.
    pub operation: String,
    /// The key.
    pub key_id: String,
}

/// An owner and the number of its objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSummary {
    /// The owner.
    pub owner: OwnerId,
    /// Number of entries.
    pub contexts: i64,
    /// Number of artifacts.
    pub artifacts: i64,
    /// Number of keys that are not deactivated.
    pub keys: i64,
}

/// Rejected requests of one caller, recorded together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Time of the last one.
    pub at: Timestamp,
    /// The credentials that were used: the id of a key, or the name of a token's holder.
    pub key_id: String,
    /// The rejected operation.
    pub operation: String,
    /// Why it was rejected.
    pub reason: String,
    /// Number of attempts.
    pub attempts: i64,
}

/// A line of the audit log: a change, or rejected attempts. It holds no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When it happened.
    pub at: Timestamp,
    /// The credentials that were used: the id of a key, or the name of a token's holder. `None` without authentication,
    /// and for the operator.
    pub key_id: Option<String>,
    /// `create`, `update`, `restore`, `delete`, an action on a key, or the operation that was rejected.
    pub operation: String,
    /// For a change: `context`, `artifact` or `api_key`.
    pub entity: Option<String>,
    /// For a change: the id of the entity.
    pub entity_id: Option<String>,
    /// The owner's revision after a change of an entry or artifact.
    pub revision: Option<i64>,
    /// `OK`, or the reason of the rejection.
    pub outcome: String,
    /// Number of attempts. 1 for a change.
    pub attempts: i64,
}

/// A database of API keys and owners.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Creates an owner, unless it exists.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn create_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<()>;

    /// All owners by name, at most 10 000.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_owners(&self) -> Result<Vec<OwnerSummary>>;

    /// Deletes an owner with everything that belongs to it, and returns what was deleted. `None` when there is no such
    /// owner.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError). Nothing is deleted then, unless the outcome is unknown.
    async fn erase_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<Option<OwnerSummary>>;

    /// Stores a key and the event in one transaction. Creates the owner if it does not exist.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn insert_key(&self, key: StoredKey, event: KeyEvent) -> Result<()>;

    /// Deactivates the key `id`, stores `key` in its place and records the events, all in one transaction. Returns
    /// false and writes nothing when there is no such key or it is already deactivated.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn replace_key(&self, id: &str, key: StoredKey, events: Vec<KeyEvent>) -> Result<bool>;

    /// Stores the digest of a key that does not have one.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn store_digest(
        &self,
        owner: &OwnerId,
        id: &str,
        digest: &str,
        now: Timestamp,
    ) -> Result<()>;

    /// Keys of all owners that are not deactivated, newest first, at most `limit`. Expired keys are among them.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn active_keys(&self, limit: u32) -> Result<Vec<StoredKey>>;

    /// The keys whose first 16 characters have this hash, at most 16. It takes no owner, because the key determines the
    /// owner.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn keys_by_lookup(&self, lookup: [u8; 32]) -> Result<Vec<StoredKey>>;

    /// The key with this id.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn key(&self, owner: &OwnerId, id: &str) -> Result<Option<StoredKey>>;

    /// The keys of an owner: active ones first, each kind newest first, at most 1000.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_keys(&self, owner: &OwnerId) -> Result<Vec<StoredKey>>;

    /// Changes a key and returns its new state. `None` when there is no such key. The event is stored in the same
    /// transaction, unless the change has no effect.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn update_key(
        &self,
        owner: &OwnerId,
        id: &str,
        change: KeyChange,
        event: KeyEvent,
    ) -> Result<Option<StoredKey>>;

    /// Records that a key was used at this time, unless a later use is recorded.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn touch_key(&self, owner: &OwnerId, id: &str, at: Timestamp) -> Result<()>;

    /// Records rejected requests. Does nothing if the owner does not exist.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn record_denial(&self, owner: &OwnerId, denial: Denial) -> Result<()>;

    /// The audit log of an owner from a given time on, oldest first, without the first `skip` lines, at most `limit`
    /// lines.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn audit_log(
        &self,
        owner: &OwnerId,
        from: Timestamp,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<AuditLine>>;

    /// Removes a batch of lines from before this time from the audit logs of all owners. Changes that are still in the
    /// feed stay. Returns 0 when none is left to remove.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError). Some lines may be removed then.
    async fn remove_audit_lines(&self, before: Timestamp) -> Result<u64>;
}
