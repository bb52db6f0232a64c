//! What a database must do for API keys and owners.

use async_trait::async_trait;
use context_model::Timestamp;

use crate::{OwnerId, Result};

/// A key as it is stored: everything but the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// Its id, which is no secret.
    pub id: String,
    /// Whose key it is.
    pub owner: OwnerId,
    /// What its owner calls it.
    pub name: String,
    /// SHA-256 of the key's first 16 characters.
    pub lookup: [u8; 32],
    /// bcrypt of the key.
    pub hash: String,
    /// SHA-256 of the key in hexadecimal; `None` when an older version made the key and it was not used since.
    pub digest: Option<String>,
    /// What it allows, by name.
    pub scopes: Vec<String>,
    /// What it is narrowed to, as JSON.
    pub narrowing: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, within a minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was switched off.
    pub deactivated_at: Option<Timestamp>,
}

/// A change to a key. `None` leaves a value as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyChange {
    /// A new name.
    pub name: Option<String>,
    /// Other scopes.
    pub scopes: Option<Vec<String>>,
    /// Another narrowing, as JSON.
    pub narrowing: Option<String>,
    /// Another expiry; `Some(None)`: none.
    pub expires_at: Option<Option<Timestamp>>,
    /// Switch it off at this moment. A key that is off stays off.
    pub deactivated_at: Option<Timestamp>,
}

/// Something that was done to a key, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEvent {
    /// Its id, unlike that of any other event.
    pub id: String,
    /// When.
    pub at: Timestamp,
    /// The credentials that did it; `None`: the operator, or a caller without authentication.
    pub actor: Option<String>,
    /// What was done.
    pub operation: String,
    /// To which key.
    pub key_id: String,
}

/// An owner and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSummary {
    /// The owner.
    pub owner: OwnerId,
    /// Its entries.
    pub contexts: i64,
    /// Its artifacts.
    pub artifacts: i64,
    /// Its keys that are not switched off.
    pub keys: i64,
}

/// Refusals to one key, written down together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The last of them.
    pub at: Timestamp,
    /// The key.
    pub key_id: String,
    /// What it tried.
    pub operation: String,
    /// Why it was refused.
    pub reason: String,
    /// How often.
    pub attempts: i64,
}

/// One line of the audit log: a change that was made, or attempts that were refused. It holds no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// When.
    pub at: Timestamp,
    /// With which key; `None` without authentication, and for the operator.
    pub key_id: Option<String>,
    /// What: `create`, `update`, `restore`, `delete`, what was done to a key, or the operation that was refused.
    pub operation: String,
    /// `context`, `artifact` or `api_key`, for a change.
    pub entity: Option<String>,
    /// Its id, for a change.
    pub entity_id: Option<String>,
    /// The owner's revision after a change of an entry or artifact.
    pub revision: Option<i64>,
    /// `OK`, or the reason of the refusal.
    pub outcome: String,
    /// How often; 1 for a change.
    pub attempts: i64,
}

/// A database of API keys and owners.
#[async_trait]
pub trait KeyStore: Send + Sync {
    /// Makes an owner, unless it exists.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn create_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<()>;

    /// Every owner by name, 10 000 at most.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_owners(&self) -> Result<Vec<OwnerSummary>>;

    /// Removes an owner with everything that belongs to it, and gives what that was; `None` when there is no such owner.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError); nothing is removed then.
    async fn erase_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<Option<OwnerSummary>>;

    /// Stores a key and the event, in one transaction; its owner is made when it does not exist.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn insert_key(&self, key: StoredKey, event: KeyEvent) -> Result<()>;

    /// Stores a key in the place of this one, which is switched off, with what is written down of both, in one
    /// transaction. Whether there was such a key that was not switched off; nothing is written when there was none.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn replace_key(&self, id: &str, key: StoredKey, events: Vec<KeyEvent>) -> Result<bool>;

    /// Stores the digest of a key that has none.
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

    /// Keys of all owners that are not switched off, newest first, `limit` at most.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn active_keys(&self, limit: u32) -> Result<Vec<StoredKey>>;

    /// The keys whose first 16 characters have this hash, 16 at most. The only question that is not asked for one
    /// owner: a key is what tells the owner.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn keys_by_lookup(&self, lookup: [u8; 32]) -> Result<Vec<StoredKey>>;

    /// A key by its id.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn key(&self, owner: &OwnerId, id: &str) -> Result<Option<StoredKey>>;

    /// An owner's keys, newest first, 1000 at most.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn list_keys(&self, owner: &OwnerId) -> Result<Vec<StoredKey>>;

    /// Changes a key and gives it as it is then; `None` when there is no such key. The event is stored in the same
    /// transaction, unless the key was like that already.
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

    /// Notes that a key was used.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn touch_key(&self, owner: &OwnerId, id: &str, at: Timestamp) -> Result<()>;

    /// Writes down refusals.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn record_denial(&self, owner: &OwnerId, denial: Denial) -> Result<()>;

    /// The audit log of an owner from a moment on, oldest first, `limit` lines at most.
    ///
    /// # Errors
    /// [`StoreError`](crate::StoreError).
    async fn audit_log(
        &self,
        owner: &OwnerId,
        from: Timestamp,
        limit: u32,
    ) -> Result<Vec<AuditLine>>;
}
