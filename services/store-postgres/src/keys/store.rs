//! The keys and owners of [`PostgresStore`].

use async_trait::async_trait;
use context_model::Timestamp;
use context_store::{
    AuditLine, Denial, KeyChange, KeyEvent, KeyStore, Once, OwnerId, OwnerSummary, Read, Result,
    StoredKey, WriteOptions,
};

use super::audit::{self, Lines, Record as RecordDenial};
use super::erase::{Create, Erase, List};
use super::rows::{Insert, Replace, Select, StoreDigest, Touch, Update};
use crate::store::PostgresStore;
use crate::transaction::Writing;

impl PostgresStore {
    async fn administer<T, W>(&self, owner: &OwnerId, now: Timestamp, work: W) -> Result<T>
    where
        T: Send + Sync + 'static,
        W: Writing<Outcome = Once<T>>,
    {
        let options = WriteOptions {
            now,
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        Ok(self.write(owner, options, work).await?.outcome.0)
    }

    async fn select(&self, owner: &OwnerId, keys: Select) -> Result<Vec<StoredKey>> {
        self.read(owner, Read::default(), keys).await
    }
}

#[async_trait]
impl KeyStore for PostgresStore {
    async fn create_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<()> {
        self.administer(owner, now, Create).await
    }

    async fn list_owners(&self) -> Result<Vec<OwnerSummary>> {
        self.read(&OwnerId::default(), Read::default(), List).await
    }

    async fn erase_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<Option<OwnerSummary>> {
        self.administer(owner, now, Erase).await
    }

    async fn insert_key(&self, key: StoredKey, event: KeyEvent) -> Result<()> {
        let (owner, now) = (key.owner.clone(), key.created_at);
        self.administer(&owner, now, Insert { key, event }).await
    }

    async fn replace_key(&self, id: &str, key: StoredKey, events: Vec<KeyEvent>) -> Result<bool> {
        let (owner, now) = (key.owner.clone(), key.created_at);
        self.administer(
            &owner,
            now,
            Replace {
                id: id.to_owned(),
                key,
                events,
            },
        )
        .await
    }

    async fn store_digest(
        &self,
        owner: &OwnerId,
        id: &str,
        digest: &str,
        now: Timestamp,
    ) -> Result<()> {
        self.administer(
            owner,
            now,
            StoreDigest {
                id: id.to_owned(),
                digest: digest.to_owned(),
            },
        )
        .await
    }

    async fn active_keys(&self, limit: u32) -> Result<Vec<StoredKey>> {
        self.select(&OwnerId::default(), Select::Active(limit))
            .await
    }

    async fn keys_by_lookup(&self, lookup: [u8; 32]) -> Result<Vec<StoredKey>> {
        self.select(&OwnerId::default(), Select::Lookup(lookup))
            .await
    }

    async fn key(&self, owner: &OwnerId, id: &str) -> Result<Option<StoredKey>> {
        Ok(self.select(owner, Select::One(id.to_owned())).await?.pop())
    }

    async fn list_keys(&self, owner: &OwnerId) -> Result<Vec<StoredKey>> {
        self.select(owner, Select::All).await
    }

    async fn update_key(
        &self,
        owner: &OwnerId,
        id: &str,
        change: KeyChange,
        event: KeyEvent,
    ) -> Result<Option<StoredKey>> {
        let now = event.at;
        self.administer(
            owner,
            now,
            Update {
                id: id.to_owned(),
                change,
                event,
            },
        )
        .await
    }

    async fn touch_key(&self, owner: &OwnerId, id: &str, at: Timestamp) -> Result<()> {
        self.administer(
            owner,
            at,
            Touch {
                id: id.to_owned(),
                at,
            },
        )
        .await
    }

    async fn record_denial(&self, owner: &OwnerId, denial: Denial) -> Result<()> {
        let now = denial.at;
        self.administer(owner, now, RecordDenial(denial)).await
    }

    async fn audit_log(
        &self,
        owner: &OwnerId,
        from: Timestamp,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<AuditLine>> {
        self.read(owner, Read::default(), Lines { from, skip, limit })
            .await
    }

    async fn remove_audit_lines(&self, before: Timestamp) -> Result<u64> {
        self.inner.soundness.check()?;
        let mut lease = self.inner.pool.get(None).await?;
        let removed = audit::remove(lease.conn(), before).await;
        self.inner.pool.observe(&removed);
        let removed = removed.inspect_err(|failure| failure.note_damage(&self.inner.soundness))?;
        lease.give_back();
        Ok(removed)
    }
}
