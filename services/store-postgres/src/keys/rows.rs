//! The rows of keys.

use context_model::Timestamp;
use context_store::rules::key;
use context_store::{KeyChange, KeyEvent, Once, OwnerId, StoreError, StoredKey};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Binary, Nullable, Text};

use super::{audit, erase};
use crate::connection::AsyncPgConnection;
use crate::failure::{Failure, unreadable};
use crate::read::Reading;
use crate::sql::{self, Bind, Fragment};
use crate::transaction::{Transaction, Writing};

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = Text)]
    key_id: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Binary)]
    lookup: Vec<u8>,
    #[diesel(sql_type = Text)]
    hash: String,
    #[diesel(sql_type = Array<Text>)]
    scopes: Vec<String>,
    #[diesel(sql_type = Text)]
    narrowing: String,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    expires_at: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    last_used_at: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    deactivated_at: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
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

/// Which keys.
pub(crate) enum Select {
    /// Those with this hash of their first characters, whoever owns them.
    Lookup([u8; 32]),
    /// Those that are not switched off, whoever owns them; so many at most.
    Active(u32),
    /// The owner's.
    All,
    /// The owner's with this id.
    One(String),
}

impl Select {
    /// Keys, newest first. Locked, they stay as they are until the transaction ends.
    async fn load(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        locked: bool,
    ) -> Result<Vec<StoredKey>, Failure> {
        let mut select = Fragment::prepared(
            "SELECT owner_id, key_id, name, lookup, hash, scopes, narrowing, created_at, expires_at, last_used_at, deactivated_at, \
             digest FROM context.api_keys WHERE ",
            Vec::new(),
        );
        let limit = match self {
            Self::Lookup(lookup) => {
                select.push("lookup = ").bind(Bind::Bytes(lookup));
                16
            }
            Self::Active(limit) => {
                select.push("deactivated_at IS NULL");
                i64::from(*limit)
            }
            Self::All => {
                select.push("owner_id = ").bind(Bind::text(owner.as_str()));
                1000
            }
            Self::One(id) => {
                select
                    .push("owner_id = ")
                    .bind(Bind::text(owner.as_str()))
                    .push(" AND key_id = ")
                    .bind(Bind::text(id));
                1
            }
        };
        select
            .push(" ORDER BY created_at DESC, key_id DESC LIMIT ")
            .bind(Bind::Int(limit));
        select.push(if locked { " FOR UPDATE" } else { "" });
        let rows: Vec<Row> = sql::query(conn, select).await?;
        Ok(rows
            .into_iter()
            .map(Row::into_key)
            .collect::<Result<_, _>>()?)
    }
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
        Ok(Some((0, self.load(conn, owner, false).await?)))
    }
}

/// A key to store, and what is written down of it; its owner is made when it does not exist.
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
    let insert = "INSERT INTO context.api_keys (owner_id, key_id, name, lookup, hash, digest, scopes, narrowing, created_at, expires_at, \
                  last_used_at, deactivated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::text(id),
        Bind::text(name),
        Bind::Bytes(lookup),
        Bind::text(hash),
        Bind::OptionalText(digest.as_deref().map(Into::into)),
        Bind::texts(scopes),
        Bind::text(narrowing),
        Bind::Int(created_at.micros()),
        Bind::OptionalInt(expires_at.map(Timestamp::micros)),
        Bind::OptionalInt(last_used_at.map(Timestamp::micros)),
        Bind::OptionalInt(deactivated_at.map(Timestamp::micros)),
    ];
    sql::execute(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

/// The key with this id, which stays as it is until the transaction ends.
async fn one(transaction: &mut Transaction<'_>, id: &str) -> Result<Option<StoredKey>, Failure> {
    Ok(Select::One(id.to_owned())
        .load(transaction.conn, transaction.owner, true)
        .await?
        .pop())
}

/// Writes what can change of a key.
async fn put(conn: &mut AsyncPgConnection, key: &StoredKey) -> Result<(), Failure> {
    let update = "UPDATE context.api_keys SET name = ?, scopes = ?, narrowing = ?, expires_at = ?, deactivated_at = ? \
                  WHERE owner_id = ? AND key_id = ?";
    let binds = vec![
        Bind::text(&key.name),
        Bind::texts(&key.scopes),
        Bind::text(&key.narrowing),
        Bind::OptionalInt(key.expires_at.map(Timestamp::micros)),
        Bind::OptionalInt(key.deactivated_at.map(Timestamp::micros)),
        Bind::text(key.owner.as_str()),
        Bind::text(&key.id),
    ];
    sql::execute(conn, Fragment::prepared(update, binds)).await?;
    Ok(())
}

/// A key to store in the place of another one, which is switched off.
pub(crate) struct Replace {
    pub id: String,
    pub key: StoredKey,
    pub events: Vec<KeyEvent>,
}

impl Writing for Replace {
    type Outcome = Once<bool>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let found = one(transaction, &self.id).await?;
        let Some(old) = found.and_then(|old| key::replaced(old, &self.key)) else {
            return Ok(Once(false));
        };
        put(transaction.conn, &old).await?;
        insert(transaction.conn, &self.key).await?;
        for event in &self.events {
            audit::record_event(transaction, event).await?;
        }
        Ok(Once(true))
    }
}

/// The digest of a key that has none.
pub(crate) struct StoreDigest {
    pub id: String,
    pub digest: String,
}

impl Writing for StoreDigest {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        let update = "UPDATE context.api_keys SET digest = ? WHERE owner_id = ? AND key_id = ? AND digest IS NULL";
        let binds = vec![
            Bind::text(&self.digest),
            Bind::text(transaction.owner.as_str()),
            Bind::text(&self.id),
        ];
        sql::execute(transaction.conn, Fragment::prepared(update, binds)).await?;
        Ok(Once(()))
    }
}

/// A change of a key, and what is written down of it unless the key was like that already.
pub(crate) struct Update {
    pub id: String,
    pub change: KeyChange,
    pub event: KeyEvent,
}

impl Writing for Update {
    type Outcome = Once<Option<StoredKey>>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Self::Outcome, Failure> {
        let Some(before) = one(transaction, &self.id).await? else {
            return Ok(Once(None));
        };
        let Some(after) = key::changed(&before, &self.change) else {
            return Ok(Once(Some(before)));
        };
        put(transaction.conn, &after).await?;
        audit::record_event(transaction, &self.event).await?;
        Ok(Once(Some(after)))
    }
}

/// A key that was used.
pub(crate) struct Touch {
    pub id: String,
    pub at: Timestamp,
}

impl Writing for Touch {
    type Outcome = Once<()>;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<Once<()>, Failure> {
        // Several services note the same use; the latest counts.
        let update = "UPDATE context.api_keys SET last_used_at = greatest(last_used_at, ?) WHERE owner_id = ? AND key_id = ?";
        let binds = vec![
            Bind::Int(self.at.micros()),
            Bind::text(transaction.owner.as_str()),
            Bind::text(&self.id),
        ];
        sql::execute(transaction.conn, Fragment::prepared(update, binds)).await?;
        Ok(Once(()))
    }
}
