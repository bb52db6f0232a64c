//! Creating, listing, changing and deactivating API keys.

use std::sync::Arc;

use context_model::{
    ApiKey, ApiKeyRequest, CreateApiKeyReply, CreateApiKeyRequest, Error, ListApiKeysReply,
    Operation, Reason, Result, Scope, ThreadSet, Timestamp, UpdateApiKeyRequest, Violations,
};
use context_store::{KeyChange, KeyEvent, OwnerId, StoredKey};
use tokio::sync::Semaphore;

use super::Access;
use super::caller::{Caller, Reach};
use super::key_secret::KeySecret;
use super::stored_key::{Narrowing, scopes_of, shown};
use crate::error::store_error;
use crate::ids::new_id;

/// Cost of bcrypt (2^10 rounds). A key has 192 random bits, so more rounds would not make it safer;
/// 10 is the documented cost.
const BCRYPT_COST: u32 = 10;
/// Limits the new keys that are hashed at the same time.
static HASHING: Semaphore = Semaphore::const_new(2);
const MAX_NAME_CHARS: usize = 100;
/// No more keys can be created over the API while an owner has this many active ones. Expired keys count as active
/// until they are deactivated. The operator can create more.
const MAX_KEYS: usize = 500;

/// A validated request for a new key.
#[derive(Debug, Clone)]
pub(super) struct NewKey {
    pub name: String,
    pub scopes: Vec<Scope>,
    pub expires_at: Option<Timestamp>,
    pub reach: Reach,
}

impl Access {
    /// Creates a key for the caller's owner. It cannot have a scope that the caller lacks.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field, or when the owner has too many keys; `SCOPE_MISSING`
    /// without `manage`, or for a scope that the caller does not have; `FEATURE_UNAVAILABLE` over TCP
    /// with authentication off; the store's errors.
    pub async fn create_api_key(
        &self,
        caller: &Caller,
        request: CreateApiKeyRequest,
    ) -> Result<CreateApiKeyReply> {
        caller.require(Operation::CreateApiKey)?;
        let new = self.new_key(request)?;
        no_more_than(caller, &new.scopes)?;
        let active = self
            .store
            .keys()
            .list_keys(&caller.owner)
            .await
            .map_err(store_error)?;
        if active
            .iter()
            .filter(|key| key.deactivated_at.is_none())
            .count()
            >= MAX_KEYS
        {
            return Err(Error::invalid(
                "name",
                format!(
                    "there are {MAX_KEYS} active keys already; deactivate one first (`name` itself is valid)"
                ),
            ));
        }
        let reply = self
            .make_key(&caller.owner, new, caller.key_id.as_deref())
            .await?;
        Ok(CreateApiKeyReply {
            notice: self.unenforced(),
            ..reply
        })
    }

    /// The notice for a new key if authentication is off.
    pub(super) fn unenforced(&self) -> Option<String> {
        let sentence = "AUTH is off, so that no request needs this key yet; start the service with AUTH=keys to enforce it";
        (!self.is_enforced).then(|| sentence.to_owned())
    }

    /// The keys of the caller's owner: active ones first, each kind newest first, at most 1000.
    ///
    /// # Errors
    /// `SCOPE_MISSING` without `manage`; `FEATURE_UNAVAILABLE` over TCP with authentication off; the
    /// store's errors.
    pub async fn list_api_keys(&self, caller: &Caller) -> Result<ListApiKeysReply> {
        caller.require(Operation::ListApiKeys)?;
        let keys = self
            .store
            .keys()
            .list_keys(&caller.owner)
            .await
            .map_err(store_error)?;
        Ok(ListApiKeysReply {
            result: keys.into_iter().map(shown).collect(),
        })
    }

    /// Returns one key.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `API_KEY_NOT_FOUND`; `SCOPE_MISSING` without `manage`;
    /// `FEATURE_UNAVAILABLE` over TCP with authentication off; the store's errors.
    pub async fn get_api_key(&self, caller: &Caller, request: ApiKeyRequest) -> Result<ApiKey> {
        caller.require(Operation::GetApiKey)?;
        let key_id = check_id(request)?;
        let found = self
            .store
            .keys()
            .key(&caller.owner, &key_id)
            .await
            .map_err(store_error)?;
        found.map(shown).ok_or_else(|| not_found(&key_id))
    }

    /// Changes a key's name, scopes or expiry.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `API_KEY_NOT_FOUND`; `SCOPE_MISSING` without `manage`, for a new scope
    /// that the caller does not have, or when a key that has one is made valid for longer;
    /// `FEATURE_UNAVAILABLE` over TCP with authentication off; the store's errors.
    pub async fn update_api_key(
        &self,
        caller: &Caller,
        request: UpdateApiKeyRequest,
    ) -> Result<ApiKey> {
        caller.require(Operation::UpdateApiKey)?;
        let UpdateApiKeyRequest {
            key_id,
            name,
            scopes,
            expires_at,
        } = request;
        let key_id = check_id(ApiKeyRequest { key_id })?;
        let mut violations = Violations::default();
        if name.is_none() && scopes.is_none() && expires_at.is_none() {
            violations.push(
                "name",
                "at least one of `name`, `scopes` and `expires_at` is required",
            );
        }
        let name = name.map(|name| check_name(&name, &mut violations));
        let scopes = scopes.map(|scopes| check_scopes(&scopes, &mut violations));
        let expires_at = expires_at.map(|expiry| match expiry.trim() {
            "" => None,
            expiry => self.check_expiry(expiry, &mut violations),
        });
        violations.finish(())?;
        if let Some(scopes) = &scopes {
            no_more_than(caller, scopes)?;
        }
        if let Some(expires_at) = expires_at {
            self.check_prolonged(caller, &key_id, expires_at).await?;
        }
        let scopes = scopes.map(|scopes| names(&scopes));
        let change = KeyChange {
            name,
            scopes,
            expires_at,
            ..KeyChange::default()
        };
        let event = self.event(
            Operation::UpdateApiKey.as_str(),
            &key_id,
            caller.key_id.as_deref(),
        );
        self.change_key(&caller.owner, change, event).await
    }

    /// Checks that the caller itself has all scopes of a key that it makes valid for longer. Otherwise it could bring
    /// back an expired key that may do more than itself.
    async fn check_prolonged(
        &self,
        caller: &Caller,
        key_id: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<()> {
        // Not from the list of keys, which ends after 1000.
        let key = self.store.keys().key(&caller.owner, key_id).await;
        // A key that does not exist is an error of the change.
        let Some(key) = key.map_err(store_error)? else {
            return Ok(());
        };
        let is_prolonged = key
            .expires_at
            .is_some_and(|old| expires_at.is_none_or(|new| new > old));
        if is_prolonged {
            no_more_than(caller, &scopes_of(&key))?;
        }
        Ok(())
    }

    /// Deactivates a key permanently. It stops working everywhere within a second.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `API_KEY_NOT_FOUND`; `SCOPE_MISSING` without `manage`;
    /// `FEATURE_UNAVAILABLE` over TCP with authentication off; the store's errors.
    pub async fn deactivate_api_key(
        &self,
        caller: &Caller,
        request: ApiKeyRequest,
    ) -> Result<ApiKey> {
        caller.require(Operation::DeactivateApiKey)?;
        let key_id = check_id(request)?;
        self.deactivate(&caller.owner, &key_id, caller.key_id.as_deref())
            .await
    }

    /// Deactivates a key. `actor` is the id of the credentials that request it, `None` for the operator.
    pub(super) async fn deactivate(
        &self,
        owner: &OwnerId,
        key_id: &str,
        actor: Option<&str>,
    ) -> Result<ApiKey> {
        let event = self.event(Operation::DeactivateApiKey.as_str(), key_id, actor);
        self.change_key(
            owner,
            KeyChange {
                deactivated_at: Some(event.at),
                ..KeyChange::default()
            },
            event,
        )
        .await
    }

    async fn change_key(
        &self,
        owner: &OwnerId,
        change: KeyChange,
        event: KeyEvent,
    ) -> Result<ApiKey> {
        let key_id = event.key_id.clone();
        let changed = self
            .store
            .keys()
            .update_key(owner, &key_id, change, event)
            .await
            .map_err(store_error)?;
        changed.map(shown).ok_or_else(|| not_found(&key_id))
    }

    /// The audit event of a change to a key, at the current time.
    pub(super) fn event(&self, operation: &str, key_id: &str, actor: Option<&str>) -> KeyEvent {
        KeyEvent {
            id: new_id(),
            at: self.clock.now(),
            actor: actor.map(str::to_owned),
            operation: operation.to_owned(),
            key_id: key_id.to_owned(),
        }
    }

    /// Creates a key and stores it. `actor` is the id of the credentials that request it, `None` for the operator.
    pub(super) async fn make_key(
        &self,
        owner: &OwnerId,
        new: NewKey,
        actor: Option<&str>,
    ) -> Result<CreateApiKeyReply> {
        let (secret, key) = self.generate_key(owner, new).await?;
        let event = self.event(Operation::CreateApiKey.as_str(), &key.id, actor);
        self.store
            .keys()
            .insert_key(key.clone(), event)
            .await
            .map_err(store_error)?;
        Ok(CreateApiKeyReply {
            key: secret.reveal().to_owned(),
            api_key: shown(key),
            notice: None,
        })
    }

    /// Generates a key without storing it.
    pub(super) async fn generate_key(
        &self,
        owner: &OwnerId,
        new: NewKey,
    ) -> Result<(KeySecret, StoredKey)> {
        let NewKey {
            name,
            scopes,
            expires_at,
            reach,
        } = new;
        let secret = KeySecret::generate().map_err(Error::internal)?;
        let text = secret.reveal().to_owned();
        let permit = HASHING.acquire().await.map_err(Error::internal)?;
        let hashing = tokio::task::spawn_blocking(move || {
            // The hash is completed even if the caller disconnects, and holds its permit until
            // then.
            let _permit = permit;
            bcrypt::hash(text, BCRYPT_COST)
        });
        let hashed = hashing.await.map_err(Error::internal)?;
        let narrowing = Narrowing::of(&reach);
        let key = StoredKey {
            id: new_id(),
            owner: owner.clone(),
            name,
            lookup: secret.lookup(),
            hash: hashed.map_err(Error::internal)?,
            digest: Some(secret.digest()),
            scopes: names(&scopes),
            narrowing: serde_json::to_string(&narrowing).map_err(Error::internal)?,
            created_at: self.clock.now(),
            expires_at,
            last_used_at: None,
            deactivated_at: None,
        };
        Ok((secret, key))
    }

    /// Validates a request for a new key.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field.
    pub(super) fn new_key(&self, request: CreateApiKeyRequest) -> Result<NewKey> {
        let CreateApiKeyRequest {
            name,
            scopes,
            expires_at,
            only,
            threads,
        } = request;
        let mut violations = Violations::default();
        let name = check_name(&name, &mut violations);
        let scopes = scopes.map(|scopes| check_scopes(&scopes, &mut violations));
        let expires_at = expires_at.and_then(|expiry| self.check_expiry(&expiry, &mut violations));
        let reach = only.map(|only| {
            Reach::parse(&only).unwrap_or_else(|| {
                violations.push("only", "`only` must be `contexts` or `artifacts`");
                Reach::All
            })
        });
        let reach = match (reach, threads) {
            (reach, None) => reach.unwrap_or_default(),
            (Some(Reach::Artifacts), Some(_)) => {
                violations.push("threads", "`threads` narrows a key to contexts, and `only` to artifacts; give one of them");
                Reach::Artifacts
            }
            (_, Some(threads)) => ThreadSet::parse(&threads, "threads", &mut violations)
                .map_or(Reach::All, |threads| Reach::Threads(Arc::new(threads))),
        };
        let scopes = scopes.unwrap_or_else(|| vec![Scope::Read, Scope::Write, Scope::Delete]);
        violations.finish(NewKey {
            name,
            scopes,
            expires_at,
            reach,
        })
    }

    fn check_expiry(&self, expiry: &str, violations: &mut Violations) -> Option<Timestamp> {
        match Timestamp::parse(expiry, true) {
            Ok(expiry) if expiry > self.clock.now() => Some(expiry),
            Ok(expiry) => {
                violations.push(
                    "expires_at",
                    format!("`expires_at` is {expiry}, which is in the past"),
                );
                None
            }
            Err(rule) => {
                violations.push("expires_at", format!("`expires_at` {rule}"));
                None
            }
        }
    }
}

/// Checks a key id before it is passed to the store.
///
/// # Errors
/// `INVALID_ARGUMENT` for a control character: PostgreSQL rejects text with U+0000, and no key id
/// has one.
pub(super) fn check_id(request: ApiKeyRequest) -> Result<String> {
    let ApiKeyRequest { key_id } = request;
    if key_id.chars().any(char::is_control) {
        return Err(Error::invalid(
            "key_id",
            "`key_id` has a control character, which no id of a key has",
        ));
    }
    Ok(key_id)
}

fn not_found(key_id: &str) -> Error {
    let shown: String = key_id.chars().take(64).collect();
    Error::new(Reason::ApiKeyNotFound, format!("API key {shown} not found"))
}

/// Checks that the caller itself has all these scopes.
fn no_more_than(caller: &Caller, scopes: &[Scope]) -> Result<()> {
    match scopes.iter().find(|scope| !caller.scopes.contains(scope)) {
        None => Ok(()),
        Some(scope) => {
            let sentence = format!(
                "the caller's credentials lack the scope `{}`, so they can neither give it nor prolong a key that has it",
                scope.as_str()
            );
            Err(Error::new(Reason::ScopeMissing, sentence))
        }
    }
}

fn names(scopes: &[Scope]) -> Vec<String> {
    scopes
        .iter()
        .map(|scope| scope.as_str().to_owned())
        .collect()
}

fn check_name(name: &str, violations: &mut Violations) -> String {
    let name = name.trim();
    if name.is_empty()
        || name.chars().nth(MAX_NAME_CHARS).is_some()
        || name.chars().any(char::is_control)
    {
        violations.push("name", format!("`name` must have 1 to {MAX_NAME_CHARS} characters, none of them a control character"));
    }
    name.to_owned()
}

fn check_scopes(given: &[String], violations: &mut Violations) -> Vec<Scope> {
    let mut scopes: Vec<Scope> = given
        .iter()
        .filter_map(|scope| Scope::parse(scope))
        .collect();
    if scopes.len() < given.len() || scopes.is_empty() {
        violations.push(
            "scopes",
            "`scopes` must be one or more of `read`, `write`, `delete` and `manage`",
        );
    }
    scopes.sort_unstable();
    scopes.dedup();
    scopes
}
