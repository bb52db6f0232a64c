//! Commands of the service's operator for keys and owners.

use context_model::{
    ApiKey, ApiKeyRequest, CreateApiKeyRequest, Error, Operation, Reason, Result, Scope, Timestamp,
};
use context_store::{AuditLine, OwnerId, OwnerSummary, StoredKey};
use serde::{Deserialize, Serialize};

use super::Access;
use super::caller::Reach;
use super::keys::{NewKey, check_id};
use super::stored_key::shown;
use crate::error::store_error;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Admin {
    /// Create a key.
    CreateKey {
        /// The owner.
        owner: String,
        /// The key.
        key: CreateApiKeyRequest,
    },
    /// List an owner's keys: active ones first, each kind newest first, at most 1000.
    ListKeys {
        /// The owner.
        owner: String,
    },
    /// Deactivate a key.
    RevokeKey {
        /// The owner.
        owner: String,
        /// The id of the key.
        key_id: String,
    },
    /// Replace a key by a new one and deactivate the old one.
    RotateKey {
        /// The owner.
        owner: String,
        /// The id of the key.
        key_id: String,
    },
    /// Create an owner.
    CreateOwner {
        /// The name of the owner.
        owner: String,
    },
    /// List the owners, by name, at most 10 000.
    ListOwners,
    /// Remove an owner and all of its data.
    EraseOwner {
        /// The name of the owner.
        owner: String,
    },
    /// Print an owner's audit log as JSON lines.
    Audit {
        /// The owner.
        owner: String,
        /// The earliest time to print, as an ISO 8601 date or time. `None` prints from the beginning.
        from: Option<String>,
        /// Number of lines to leave out before the first one that is printed.
        #[serde(default)]
        skip: u32,
    },
}

/// A key that is valid now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidKey {
    /// The owner.
    pub owner: String,
    /// The key without its secret.
    pub key: ApiKey,
}

/// The audit log's name for replacing a key, which only the operator can do.
const ROTATE_API_KEY: &str = "rotate_api_key";
/// A list of valid keys reads no further once it has read this many keys, expired ones included.
const MAX_LISTED_KEYS: u32 = 10_000;

/// Maximum number of lines of the audit log that one command prints.
pub const AUDIT_LINES: u32 = 100_000;

impl Access {
    /// Runs a command and returns the text to print. The caller must have checked that the request
    /// comes from the operator.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `API_KEY_NOT_FOUND`; the store's errors.
    pub async fn administer(&self, command: Admin) -> Result<String> {
        match command {
            Admin::CreateKey { owner, key } => {
                let (owner, new) = (owner_id(&owner)?, self.new_key(key)?);
                let made = self.make_key(&owner, new, None).await?;
                Ok(self.with_notice(format!(
                    "{}\nThis is the only time the key is shown. Its id is {}.\n",
                    made.key, made.api_key.id
                )))
            }
            Admin::ListKeys { owner } => {
                let keys = self
                    .store
                    .keys()
                    .list_keys(&owner_id(&owner)?)
                    .await
                    .map_err(store_error)?;
                Ok(keys.into_iter().map(|key| json_line(&shown(key))).collect())
            }
            Admin::RevokeKey { owner, key_id } => {
                let key_id = check_id(ApiKeyRequest { key_id })?;
                let key = self.deactivate(&owner_id(&owner)?, &key_id, None).await?;
                Ok(self.with_notice(format!("Key {} ({}) is deactivated.\n", key.id, key.name)))
            }
            Admin::RotateKey { owner, key_id } => {
                let key_id = check_id(ApiKeyRequest { key_id })?;
                Ok(self.with_notice(self.rotate(&owner_id(&owner)?, &key_id).await?))
            }
            Admin::CreateOwner { owner } => {
                let owner = owner_id(&owner)?;
                self.store
                    .keys()
                    .create_owner(&owner, self.clock.now())
                    .await
                    .map_err(store_error)?;
                Ok(format!("Owner {} exists.\n", owner.as_str()))
            }
            Admin::ListOwners => {
                let owners = self.store.keys().list_owners().await.map_err(store_error)?;
                let line = |OwnerSummary {
                                owner,
                                contexts,
                                artifacts,
                                keys,
                            }| {
                    json_line(
                        &serde_json::json!({"owner": owner.as_str(), "contexts": contexts, "artifacts": artifacts, "active_keys": keys}),
                    )
                };
                Ok(owners.into_iter().map(line).collect())
            }
            Admin::EraseOwner { owner } => {
                let owner = owner_id(&owner)?;
                let erased = self
                    .store
                    .keys()
                    .erase_owner(&owner, self.clock.now())
                    .await
                    .map_err(store_error)?;
                Ok(match erased {
                    Some(OwnerSummary {
                        owner,
                        contexts,
                        artifacts,
                        keys,
                    }) => {
                        format!(
                            "Erased owner {}: {contexts} contexts, {artifacts} artifacts, {keys} active keys.\n",
                            owner.as_str()
                        )
                    }
                    None => format!("There is no owner {}.\n", owner.as_str()),
                })
            }
            Admin::Audit { owner, from, skip } => {
                let from = from.map(|from| Timestamp::parse(&from, false)).transpose();
                let from = from
                    .map_err(|rule| Error::invalid("from", format!("`from` {rule}")))?
                    .unwrap_or(Timestamp(i64::MIN));
                let lines = self
                    .store
                    .keys()
                    .audit_log(&owner_id(&owner)?, from, skip, AUDIT_LINES)
                    .await
                    .map_err(store_error)?;
                Ok(lines.iter().map(audit_line).collect())
            }
        }
    }

    async fn rotate(&self, owner: &OwnerId, key_id: &str) -> Result<String> {
        let not_found = || {
            Error::new(
                Reason::ApiKeyNotFound,
                "there is no active key with this id",
            )
        };
        let found = self
            .store
            .keys()
            .key(owner, key_id)
            .await
            .map_err(store_error)?;
        let old = found
            .filter(|key| key.deactivated_at.is_none())
            .ok_or_else(not_found)?;
        // The new key has the expiry of the old one.
        if old
            .expires_at
            .is_some_and(|expiry| self.clock.now() >= expiry)
        {
            return Err(Error::invalid(
                "key_id",
                "the key has expired, and its replacement would have expired too; create a new key",
            ));
        }
        let new = NewKey {
            name: old.name,
            scopes: Vec::new(),
            expires_at: old.expires_at,
            reach: Reach::All,
        };
        let (secret, key) = self.generate_key(owner, new).await?;
        // Scopes and the restriction are copied as they are stored, because a newer version may have stored some that
        // this version cannot parse.
        let key = StoredKey {
            scopes: old.scopes,
            narrowing: old.narrowing,
            ..key
        };
        let new_id = key.id.clone();
        let events = vec![
            self.event(ROTATE_API_KEY, key_id, None),
            self.event(Operation::CreateApiKey.as_str(), &new_id, None),
        ];
        if !self
            .store
            .keys()
            .replace_key(key_id, key, events)
            .await
            .map_err(store_error)?
        {
            return Err(not_found());
        }
        let secret = secret.reveal();
        Ok(format!(
            "{secret}\nThis is the only time the key is shown. Its id is {new_id}. The old key is deactivated.\n"
        ))
    }

    fn with_notice(&self, text: String) -> String {
        match self.is_enforced {
            true => text,
            false => text + "AUTH is off, so no request needs a key yet.\n",
        }
    }

    /// The newest `limit` valid keys of all owners, newest first, without their secrets, and whether there may be more.
    /// Valid keys give access once authentication is on.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn valid_keys(&self, limit: u32) -> Result<(Vec<ValidKey>, bool)> {
        let now = self.clock.now();
        let is_valid = |key: &StoredKey| key.expires_at.is_none_or(|expiry| now < expiry);
        let mut read = limit.saturating_add(1);
        // The store's active keys include expired ones.
        let (mut keys, read_all) = loop {
            let mut keys = self
                .store
                .keys()
                .active_keys(read)
                .await
                .map_err(store_error)?;
            let read_all = keys.len() < read as usize;
            keys.retain(is_valid);
            if read_all || keys.len() > limit as usize || read >= MAX_LISTED_KEYS {
                break (keys, read_all);
            }
            read = read.saturating_mul(8);
        };
        let more = !read_all || keys.len() > limit as usize;
        keys.truncate(limit as usize);
        Ok((
            keys.into_iter()
                .map(|key| ValidKey {
                    owner: key.owner.as_str().to_owned(),
                    key: shown(key),
                })
                .collect(),
            more,
        ))
    }

    /// Creates a first key with all scopes for the owner `default`. `None` if the database has any
    /// key, even a deactivated one.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn first_key(&self) -> Result<Option<String>> {
        if self.ever_had_keys().await? {
            return Ok(None);
        }
        let new = NewKey {
            name: "first".to_owned(),
            scopes: Scope::ALL.to_vec(),
            expires_at: None,
            reach: Reach::All,
        };
        Ok(Some(
            self.make_key(&OwnerId::default(), new, None).await?.key,
        ))
    }

    /// Whether the database has any key, even a deactivated one. Keys of erased owners do not count.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn ever_had_keys(&self) -> Result<bool> {
        let keys = self.store.keys();
        // Only the first 10 000 owners are listed, but an active key is found for any owner.
        let active = keys.active_keys(1).await.map_err(store_error)?;
        if !active.is_empty() {
            return Ok(true);
        }
        for OwnerSummary { owner, .. } in keys.list_owners().await.map_err(store_error)? {
            let deactivated = keys.list_keys(&owner).await.map_err(store_error)?;
            if !deactivated.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn owner_id(name: &str) -> Result<OwnerId> {
    let name = name.trim();
    if name.is_empty() || name.chars().nth(128).is_some() || name.chars().any(char::is_control) {
        return Err(Error::invalid(
            "owner",
            "`owner` must have 1 to 128 characters, none of them a control character",
        ));
    }
    Ok(OwnerId::new(name))
}

fn json_line<T: Serialize>(value: &T) -> String {
    let mut line = serde_json::to_string(value).unwrap_or_default();
    line.push('\n');
    line
}

fn audit_line(line: &AuditLine) -> String {
    let AuditLine {
        at,
        key_id,
        operation,
        entity,
        entity_id,
        revision,
        outcome,
        attempts,
    } = line;
    json_line(
        &serde_json::json!({"at": at, "key_id": key_id, "operation": operation, "entity": entity, "entity_id": entity_id,
        "revision": revision, "outcome": outcome, "attempts": attempts}),
    )
}
