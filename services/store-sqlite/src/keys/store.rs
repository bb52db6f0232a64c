//! The key and owner operations of [`SqliteStore`].

use async_trait::async_trait;
use context_model::Timestamp;
use context_store::{
    AuditLine, Denial, KeyChange, KeyEvent, KeyStore, Once, OwnerId, OwnerSummary, Read, Result,
    StoredKey, WriteOptions,
};

use super::{audit, erase, rows};
use crate::failure::{Failure, store_error};
use crate::sql::{Bind, Fragment};
use crate::statement::{self, Value};
use crate::store::SqliteStore;
use crate::transaction::Transaction;

/// The bytes that a request about keys counts for in the write queue. It takes less, unless a key is restricted to many
/// threads.
const REQUEST_BYTES: usize = 4096;

/// The options of a write about keys and owners.
const fn options(now: Timestamp) -> WriteOptions {
    WriteOptions {
        now,
        idempotency: None,
        key_id: None,
        embeddings: Vec::new(),
    }
}

impl SqliteStore {
    /// Runs a write about keys or owners. Creates the owner if it does not exist.
    async fn administer<T: Send + 'static>(
        &self,
        owner: &OwnerId,
        now: Timestamp,
        mut work: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let written = self
            .write(owner, options(now), REQUEST_BYTES, move |transaction| {
                work(transaction).map(Once)
            })
            .await?;
        Ok(written.outcome.0)
    }

    /// Like [`Self::administer`], but without the owner nothing happens, and the result is the default.
    async fn administer_existing<T: Default + Send + 'static>(
        &self,
        owner: &OwnerId,
        now: Timestamp,
        mut work: impl FnMut(&mut Transaction<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let written = self
            .write_existing(owner, options(now), REQUEST_BYTES, move |transaction| {
                work(transaction).map(Once)
            })
            .await?;
        Ok(written.outcome.0)
    }
}

#[async_trait]
impl KeyStore for SqliteStore {
    async fn create_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<()> {
        // The write itself creates the owner's row if it does not exist.
        self.administer(owner, now, |_| Ok(())).await
    }

    async fn list_owners(&self) -> Result<Vec<OwnerSummary>> {
        self.searches
            .read(None, |conn| {
                erase::summaries(conn, None).map_err(store_error)
            })
            .await
    }

    async fn erase_owner(&self, owner: &OwnerId, now: Timestamp) -> Result<Option<OwnerSummary>> {
        self.require_own()?;
        self.administer_existing(owner, now, erase::erase).await
    }

    async fn insert_key(&self, key: StoredKey, event: KeyEvent) -> Result<()> {
        let (owner, now) = (key.owner.clone(), key.created_at);
        self.administer(&owner, now, move |transaction| {
            rows::insert(transaction.conn, transaction.owner.owner, &key)?;
            audit::record_event(transaction.conn, transaction.owner.owner, &event)
        })
        .await
    }

    async fn replace_key(&self, id: &str, key: StoredKey, events: Vec<KeyEvent>) -> Result<bool> {
        let (owner, now, id) = (key.owner.clone(), key.created_at, id.to_owned());
        self.administer_existing(&owner, now, move |transaction| {
            rows::replace(
                transaction.conn,
                transaction.owner.owner,
                &id,
                &key,
                &events,
            )
        })
        .await
    }

    async fn store_digest(
        &self,
        owner: &OwnerId,
        id: &str,
        digest: &str,
        now: Timestamp,
    ) -> Result<()> {
        let (id, digest) = (id.to_owned(), digest.to_owned());
        self.administer_existing(owner, now, move |transaction| {
            let sql =
                "UPDATE api_keys SET digest = ? WHERE owner = ? AND key_id = ? AND digest IS NULL";
            let values = [
                Value::Text(&digest),
                Value::Int(transaction.owner.owner),
                Value::Text(&id),
            ];
            statement::execute(transaction.conn, sql, &values)?;
            Ok(())
        })
        .await
    }

    async fn active_keys(&self, limit: u32) -> Result<Vec<StoredKey>> {
        self.points
            .read(None, move |conn| {
                rows::select(conn, rows::active(), limit.into())
            })
            .await
    }

    async fn keys_by_lookup(&self, lookup: [u8; 32]) -> Result<Vec<StoredKey>> {
        let mut condition = Fragment::new("k.lookup = ");
        condition.bind(Bind::Blob(lookup.to_vec()));
        self.points
            .read(None, move |conn| rows::select(conn, condition, 16))
            .await
    }

    async fn key(&self, owner: &OwnerId, id: &str) -> Result<Option<StoredKey>> {
        let id = id.to_owned();
        self.read(
            &self.points,
            owner,
            Read::default(),
            move |conn, owner| match owner {
                Some(owner) => {
                    Ok(rows::select(conn, rows::of_owner(owner.owner, Some(&id)), 1)?.pop())
                }
                None => Ok(None),
            },
        )
        .await
    }

    async fn list_keys(&self, owner: &OwnerId) -> Result<Vec<StoredKey>> {
        self.read(
            &self.points,
            owner,
            Read::default(),
            |conn, owner| match owner {
                Some(owner) => rows::select(conn, rows::of_owner(owner.owner, None), 1000),
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    async fn update_key(
        &self,
        owner: &OwnerId,
        id: &str,
        change: KeyChange,
        event: KeyEvent,
    ) -> Result<Option<StoredKey>> {
        let (id, now) = (id.to_owned(), event.at);
        self.administer_existing(owner, now, move |transaction| {
            rows::update(
                transaction.conn,
                transaction.owner.owner,
                &id,
                &change,
                &event,
            )
        })
        .await
    }

    async fn touch_key(&self, owner: &OwnerId, id: &str, at: Timestamp) -> Result<()> {
        let id = id.to_owned();
        self.administer_existing(owner, at, move |transaction| {
            // Uses may be written out of order. The latest one counts.
            let sql = "UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, 0), ?) \
                       WHERE owner = ? AND key_id = ?";
            let values = [
                Value::Int(at.micros()),
                Value::Int(transaction.owner.owner),
                Value::Text(&id),
            ];
            statement::execute(transaction.conn, sql, &values)?;
            Ok(())
        })
        .await
    }

    async fn record_denial(&self, owner: &OwnerId, denial: Denial) -> Result<()> {
        let now = denial.at;
        self.administer_existing(owner, now, move |transaction| {
            audit::record(transaction.conn, transaction.owner.owner, &denial)
        })
        .await
    }

    async fn audit_log(
        &self,
        owner: &OwnerId,
        from: Timestamp,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<AuditLine>> {
        self.read(
            &self.searches,
            owner,
            Read::default(),
            move |conn, owner| match owner {
                Some(owner) => {
                    audit::lines(conn, owner.owner, from, skip, limit).map_err(store_error)
                }
                None => Ok(Vec::new()),
            },
        )
        .await
    }

    async fn remove_audit_lines(&self, before: Timestamp) -> Result<u64> {
        self.write_without_owner(move |conn, _| audit::remove(conn, before))
            .await
    }
}
