//! Reads and writes the rows of API keys.

use context_model::Timestamp;
use context_store::rules::key;
use context_store::{KeyChange, KeyEvent, Once, OwnerId, StoreError, StoredKey, unreadable};
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use super::{audit, erase};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::read::Reading;
use crate::schema::api_keys;
use crate::transaction::{Transaction, Writing};

#[derive(Debug, Queryable, Selectable)]
#[diesel(table_name = api_keys)]
struct Row {
    owner_id: String,
    key_id: String,
    name: String,
    lookup: Vec<u8>,
    hash: String,
    scopes: Vec<String>,
    narrowing: String,
    created_at: i64,
    expires_at: Option<i64>,
    last_used_at: Option<i64>,
    deactivated_at: Option<i64>,
    digest: Option<String>,
}

impl Row {
    fn into_key(self) -> Result<StoredKey, StoreError> {
        let Self {
            owner_id,
            key_id,
            name,
            lookup,
            hash,
            scopes,
            narrowing,
            created_at,
            expires_at,
            last_used_at,
            deactivated_at,
            digest,
        } = self;
        Ok(StoredKey {
            id: key_id,
            owner: OwnerId::new(owner_id),
            name,
            lookup: lookup
                .try_into()
                .map_err(|_| unreadable("lookup hash", None))?,
            hash,
            digest,
            scopes,
            narrowing,
            created_at: Timestamp(created_at),
            expires_at: expires_at.map(Timestamp),
            last_used_at: last_used_at.map(Timestamp),
            deactivated_at: deactivated_at.map(Timestamp),
        })
    }
}

/// Maximum number of keys with the same lookup hash that are read.
const SAME_LOOKUP: i64 = 16;
/// Maximum number of keys of one owner that are listed.
const MAX_LISTED: i64 = 1000;

/// The keys to read: active ones first, each kind newest first.
pub(crate) enum Select {
    /// Any owner's keys with this hash of their first characters.
    Lookup([u8; 32]),
    /// Any owner's active keys, at most this many.
    Active(u32),
    /// The owner's keys, at most [`MAX_LISTED`].
    All,
    /// The owner's key with this id.
    One(String),
}

impl Reading for Select {
    type Outcome = Vec<StoredKey>;

    fn empty(&self) -> Self::Outcome {
        Vec::new()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Self::Outcome)>, Failure> {
        let keys = api_keys::table.select(Row::as_select()).order((
            api_keys::deactivated_at.is_not_null(),
            api_keys::created_at.desc(),
            api_keys::key_id.desc(),
        ));
        let of_owner = api_keys::owner_id.eq(owner.as_str());
        let rows = match self {
            Self::Lookup(lookup) => {
                let same = keys.filter(api_keys::lookup.eq(&lookup[..]));
                same.limit(SAME_LOOKUP).load(conn).await?
            }
            Self::Active(limit) => {
                let active = keys.filter(api_keys::deactivated_at.is_null());
                active.limit((*limit).into()).load(conn).await?
            }
            Self::All => keys.filter(of_owner).limit(MAX_LISTED).load(conn).await?,
            Self::One(id) => {
                let one = keys.filter(of_owner).filter(api_keys::key_id.eq(id));
                one.load(conn).await?
            }
        };
        let keys = rows.into_iter().map(Row::into_key);
        Ok(Some((0, keys.collect::<Result<_, _>>()?)))
    }
}

/// Stores a key and its audit record. Creates the owner if it does not exist.
pub(crate) struct Insert {
    pub key: StoredKey,
    pub event: KeyEvent,
}

impl Writing for Insert {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        erase::create(transaction.conn, transaction.owner).await?;
        insert(transaction.conn, &self.key).await?;
        audit::record_event(transaction, &self.event).await?;
        Ok(Once(()))
    }
}

async fn insert(conn: &mut AsyncPgConnection, key: &StoredKey) -> Result<(), Failure> {
    let StoredKey {
        id,
        owner,
        name,
        lookup,
        hash,
        digest,
        scopes,
        narrowing,
        created_at,
        expires_at,
        last_used_at,
        deactivated_at,
    } = key;
    diesel::insert_into(api_keys::table)
        .values((
            api_keys::owner_id.eq(owner.as_str()),
            api_keys::key_id.eq(id),
            api_keys::name.eq(name),
            api_keys::lookup.eq(&lookup[..]),
            api_keys::hash.eq(hash),
            api_keys::digest.eq(digest),
            api_keys::scopes.eq(scopes),
            api_keys::narrowing.eq(narrowing),
            api_keys::created_at.eq(created_at.micros()),
            api_keys::expires_at.eq(expires_at.map(Timestamp::micros)),
            api_keys::last_used_at.eq(last_used_at.map(Timestamp::micros)),
            api_keys::deactivated_at.eq(deactivated_at.map(Timestamp::micros)),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// Locks the key with this id until the transaction ends, and returns it.
async fn lock(transaction: &mut Transaction<'_>, id: &str) -> Result<Option<StoredKey>, Failure> {
    let row: Option<Row> = api_keys::table
        .find((transaction.owner.as_str(), id))
        .select(Row::as_select())
        .for_update()
        .get_result(transaction.conn)
        .await
        .optional()?;
    Ok(row.map(Row::into_key).transpose()?)
}

/// Writes the columns of a key that can change.
async fn update(conn: &mut AsyncPgConnection, key: &StoredKey) -> Result<(), Failure> {
    let update = diesel::update(api_keys::table.find((key.owner.as_str(), &key.id))).set((
        api_keys::name.eq(&key.name),
        api_keys::scopes.eq(&key.scopes),
        api_keys::narrowing.eq(&key.narrowing),
        api_keys::expires_at.eq(key.expires_at.map(Timestamp::micros)),
        api_keys::deactivated_at.eq(key.deactivated_at.map(Timestamp::micros)),
    ));
    fixed!(update).execute(conn).await?;
    Ok(())
}

/// Stores a key that replaces another one, and deactivates the other one. The outcome is false when there is no other
/// key, or it is already deactivated.
pub(crate) struct Replace {
    pub id: String,
    pub key: StoredKey,
    pub events: Vec<KeyEvent>,
}

impl Writing for Replace {
    type Outcome = Once<bool>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        // An erase that has already deleted the keys would not see the new one.
        erase::lock_owner(transaction.conn, transaction.owner).await?;
        let found = lock(transaction, &self.id).await?;
        let Some(old) = found.and_then(|old| key::replaced(old, &self.key)) else {
            return Ok(Once(false));
        };
        update(transaction.conn, &old).await?;
        insert(transaction.conn, &self.key).await?;
        for event in &self.events {
            audit::record_event(transaction, event).await?;
        }
        Ok(Once(true))
    }
}

/// Stores the digest of a key that has none.
pub(crate) struct StoreDigest {
    pub id: String,
    pub digest: String,
}

impl Writing for StoreDigest {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        let without = api_keys::table
            .find((transaction.owner.as_str(), &self.id))
            .filter(api_keys::digest.is_null());
        fixed!(diesel::update(without).set(api_keys::digest.eq(&self.digest)))
            .execute(transaction.conn)
            .await?;
        Ok(Once(()))
    }
}

/// Changes a key. Records the change in the audit log, unless the change has no effect.
pub(crate) struct Update {
    pub id: String,
    pub change: KeyChange,
    pub event: KeyEvent,
}

impl Writing for Update {
    type Outcome = Once<Option<StoredKey>>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Some(before) = lock(transaction, &self.id).await? else {
            return Ok(Once(None));
        };
        let Some(after) = key::changed(&before, &self.change) else {
            return Ok(Once(Some(before)));
        };
        update(transaction.conn, &after).await?;
        audit::record_event(transaction, &self.event).await?;
        Ok(Once(Some(after)))
    }
}

/// Records the last use of a key.
pub(crate) struct Touch {
    pub id: String,
    pub at: Timestamp,
}

impl Writing for Touch {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        let (at, key) = (
            self.at.micros(),
            api_keys::table.find((transaction.owner.as_str(), &self.id)),
        );
        // Several services record uses of one key. The latest one counts.
        let earlier = api_keys::last_used_at
            .is_null()
            .or(api_keys::last_used_at.lt(at).assume_not_null());
        let update = diesel::update(key.filter(earlier)).set(api_keys::last_used_at.eq(at));
        fixed!(update).execute(transaction.conn).await?;
        Ok(Once(()))
    }
}
