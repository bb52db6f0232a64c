//! The rows of keys.

use context_model::Timestamp;
use context_store::rules::key;
use context_store::{KeyChange, KeyEvent, OwnerId, StoreError, StoredKey, unreadable};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::audit;
use crate::failure::{Failure, store_error};
use crate::schema::api_keys;
use crate::sql::{self, Bind, Fragment};

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
    #[diesel(sql_type = Text)]
    scopes: String,
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
            scopes: serde_json::from_str(&scopes)
                .map_err(|e| unreadable("list of scopes", Some(e)))?,
            narrowing,
            created_at: Timestamp(created_at),
            expires_at: expires_at.map(Timestamp),
            last_used_at: last_used_at.map(Timestamp),
            deactivated_at: deactivated_at.map(Timestamp),
        })
    }
}

/// Keys that satisfy `condition`: active ones first, each kind newest first.
pub(crate) fn select(
    conn: &mut SqliteConnection,
    condition: Fragment,
    limit: i64,
) -> Result<Vec<StoredKey>, StoreError> {
    let mut select = Fragment::new(
        "SELECT o.owner_id, k.key_id, k.name, k.lookup, k.hash, k.scopes, k.narrowing, k.created_at, \
             k.expires_at, k.last_used_at, k.deactivated_at, k.digest \
         FROM api_keys k JOIN owners o ON o.owner = k.owner WHERE ",
    );
    select
        .append(condition)
        .push(" ORDER BY k.deactivated_at IS NOT NULL, k.created_at DESC, k.key_id DESC LIMIT ")
        .bind(Bind::Int(limit));
    let rows: Vec<Row> = sql::query(conn, &select).map_err(store_error)?;
    rows.into_iter().map(Row::into_key).collect()
}

/// The condition for active keys.
pub(crate) fn active() -> Fragment {
    Fragment::new("k.deactivated_at IS NULL")
}

/// The condition for the keys of an owner, or for the one with this id.
pub(crate) fn of_owner(owner: i64, id: Option<&str>) -> Fragment {
    let mut condition = Fragment::new("k.owner = ");
    condition.bind(Bind::Int(owner));
    if let Some(id) = id {
        condition
            .push(" AND k.key_id = ")
            .bind(Bind::Text(id.to_owned()));
    }
    condition
}

pub(crate) fn insert(
    conn: &mut SqliteConnection,
    owner: i64,
    key: &StoredKey,
) -> Result<(), Failure> {
    let StoredKey {
        id,
        owner: _,
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
            api_keys::owner.eq(owner),
            api_keys::key_id.eq(id),
            api_keys::name.eq(name),
            api_keys::lookup.eq(&lookup[..]),
            api_keys::hash.eq(hash),
            api_keys::digest.eq(digest),
            api_keys::scopes.eq(serde_json::json!(scopes).to_string()),
            api_keys::narrowing.eq(narrowing),
            api_keys::created_at.eq(created_at.micros()),
            api_keys::expires_at.eq(expires_at.map(Timestamp::micros)),
            api_keys::last_used_at.eq(last_used_at.map(Timestamp::micros)),
            api_keys::deactivated_at.eq(deactivated_at.map(Timestamp::micros)),
        ))
        .execute(conn)?;
    Ok(())
}

/// Updates a key and records the event, unless the change has no effect.
pub(crate) fn update(
    conn: &mut SqliteConnection,
    owner: i64,
    id: &str,
    change: &KeyChange,
    event: &KeyEvent,
) -> Result<Option<StoredKey>, Failure> {
    let Some(before) = one(conn, owner, id)? else {
        return Ok(None);
    };
    let Some(after) = key::changed(&before, change) else {
        return Ok(Some(before));
    };
    put(conn, owner, &after)?;
    audit::record_event(conn, owner, event)?;
    Ok(Some(after))
}

/// Deactivates a key and stores another one in its place.
pub(crate) fn replace(
    conn: &mut SqliteConnection,
    owner: i64,
    id: &str,
    new: &StoredKey,
    events: &[KeyEvent],
) -> Result<bool, Failure> {
    let Some(old) = one(conn, owner, id)?.and_then(|old| key::replaced(old, new)) else {
        return Ok(false);
    };
    put(conn, owner, &old)?;
    insert(conn, owner, new)?;
    events
        .iter()
        .try_for_each(|event| audit::record_event(conn, owner, event))?;
    Ok(true)
}

fn one(conn: &mut SqliteConnection, owner: i64, id: &str) -> Result<Option<StoredKey>, Failure> {
    Ok(select(conn, of_owner(owner, Some(id)), 1)
        .map_err(Failure::Rejected)?
        .pop())
}

/// Writes the columns of a key that a [`KeyChange`] can change.
fn put(conn: &mut SqliteConnection, owner: i64, key: &StoredKey) -> Result<(), Failure> {
    diesel::update(api_keys::table.find((owner, &key.id)))
        .set((
            api_keys::name.eq(&key.name),
            api_keys::scopes.eq(serde_json::json!(key.scopes).to_string()),
            api_keys::narrowing.eq(&key.narrowing),
            api_keys::expires_at.eq(key.expires_at.map(Timestamp::micros)),
            api_keys::deactivated_at.eq(key.deactivated_at.map(Timestamp::micros)),
        ))
        .execute(conn)?;
    Ok(())
}
