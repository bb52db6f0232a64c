//! Authenticates callers by API keys and tokens, and caches verified keys.

#![expect(
    clippy::disallowed_methods,
    reason = "the age of cached keys, and their rates"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use context_model::{Error, Reason, Result, Timestamp};
use context_store::{Store, StoredKey};
use sha2::{Digest as _, Sha256};

use super::Access;
use super::caller::{Caller, unauthenticated};
use super::key_secret::KeySecret;
use super::rate::{Bucket, Rate};
use super::refusals::Refusals;
use super::stored_key::caller_of;
use super::tokens::Tokens;
use super::verifier::Verifier;
use crate::clock::Clock;
use crate::error::store_error;
use crate::lock::locked;

/// How long a key's row is cached after it was read. So deactivating a key takes effect on every
/// service within little more than this time.
const FRESH: Duration = Duration::from_millis(500);
/// How often a key's time of last use is written.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of verified keys that are cached, and of token holders.
const MAX_CACHED: usize = 10_000;

/// Authenticates callers by their API keys and tokens.
pub struct Authenticator {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    rate: Option<Rate>,
    tokens: Option<Tokens>,
    /// Slots of token holders, by the SHA-256 of their names.
    holders: Mutex<HashMap<[u8; 32], Arc<Slot>>>,
    /// Slots of verified keys, by fingerprint. Keys that failed verification are not cached.
    verified: Mutex<HashMap<[u8; 32], Arc<Slot>>>,
    verifier: Verifier,
    refusals: Arc<Refusals>,
}

/// The cached state of one key or token holder.
#[derive(Default)]
struct Slot {
    /// The key's row. `None` for token holders, and for keys that are no longer valid.
    key: Mutex<Option<CachedKey>>,
    /// Held while the row is read, so that all requests with the same key wait for a single read. Has the time and the
    /// error of the last read that failed.
    refreshing: tokio::sync::Mutex<Option<(Instant, Error)>>,
    bucket: Mutex<Bucket>,
}

/// The row of a verified key.
#[derive(Clone)]
struct CachedKey {
    caller: Arc<Caller>,
    hash: String,
    expires_at: Option<Timestamp>,
    read_at: Instant,
    /// When its time of last use was last written.
    touched_at: Option<Instant>,
}

/// An authenticated caller.
#[derive(Clone)]
pub struct Authenticated {
    /// The caller.
    pub caller: Arc<Caller>,
    slot: Arc<Slot>,
}

impl Access {
    /// An authenticator of this store's keys. `rate` limits each key and each token holder; `None` for no limit.
    #[must_use]
    pub fn authenticator(&self, rate: Option<Rate>) -> Authenticator {
        Authenticator {
            verifier: Verifier::new(self.store.clone(), self.clock.clone()),
            store: self.store.clone(),
            clock: self.clock.clone(),
            rate,
            tokens: None,
            holders: Mutex::default(),
            verified: Mutex::default(),
            refusals: self.refusals.clone(),
        }
    }
}

impl Authenticator {
    /// Accepts tokens as well as keys.
    #[must_use]
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Self {
            tokens: Some(tokens),
            ..self
        }
    }

    /// The address at which the issuer of tokens signs people in; `None` if they cannot sign in with a browser.
    ///
    /// # Errors
    /// `ISSUER_UNAVAILABLE`.
    pub async fn sign_in_url(&self) -> Result<Option<String>> {
        match &self.tokens {
            Some(tokens) => tokens.sign_in_url().await,
            None => Ok(None),
        }
    }

    /// Exchanges an authorization code of the issuer for a token. `verifier` is the PKCE verifier, of which the issuer
    /// got the hash.
    ///
    /// # Errors
    /// `UNAUTHENTICATED`; `FEATURE_UNAVAILABLE`; `RATE_LIMITED`; `ISSUER_UNAVAILABLE`.
    pub async fn sign_in(&self, code: &str, verifier: &str) -> Result<String> {
        match &self.tokens {
            Some(tokens) => tokens.sign_in(code, verifier, self.clock.now()).await,
            None => Err(Error::new(
                Reason::FeatureUnavailable,
                "signing in with an issuer needs AUTH=oidc",
            )),
        }
    }

    /// How many times bcrypt ran.
    #[must_use]
    pub fn verifications(&self) -> u64 {
        self.verifier.verifications()
    }

    /// Authenticates the value of an `Authorization` header: `Bearer` and a key or token, or only the key.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if it is not a valid key or token; `OVERLOADED`; `ISSUER_UNAVAILABLE`; the
    /// store's errors.
    pub async fn authenticate(&self, header: &str) -> Result<Authenticated> {
        let credentials = bearer(header);
        // No key contains a dot, and every token contains two.
        if let Some(tokens) = self.tokens.as_ref().filter(|_| credentials.contains('.')) {
            let caller = Arc::new(tokens.caller(credentials, self.clock.now()).await?);
            let slot = self.holder(&caller);
            return Ok(Authenticated { caller, slot });
        }
        let secret = KeySecret::parse(credentials).ok_or_else(unauthenticated)?;
        let fingerprint = secret.fingerprint();
        let cached = locked(&self.verified).get(&fingerprint).cloned();
        let slot = match cached {
            Some(slot) => slot,
            None => {
                // Waiting for bcrypt can take seconds, in which the key may be deactivated. Its row then counts as
                // too old, and is read again below.
                let begun = Instant::now();
                let key = self
                    .verifier
                    .verify(&secret)
                    .await?
                    .ok_or_else(unauthenticated)?;
                self.cache(fingerprint, &key, begun)
            }
        };
        let mut key = locked(&slot.key).clone();
        if key
            .as_ref()
            .is_none_or(|key| key.read_at.elapsed() >= FRESH)
        {
            key = self.refresh(&slot).await?;
        }
        let is_valid = |key: &CachedKey| {
            key.expires_at
                .is_none_or(|expiry| self.clock.now() < expiry)
        };
        let Some(key) = key.filter(is_valid) else {
            locked(&self.verified).remove(&fingerprint);
            return Err(unauthenticated());
        };
        if key.touched_at.is_none_or(|at| at.elapsed() >= TOUCH_EVERY) {
            self.touch(&slot, &key);
        }
        Ok(Authenticated {
            caller: key.caller,
            slot,
        })
    }

    /// Counts one request against the rate limit of this caller's key, or of this token holder.
    ///
    /// # Errors
    /// `RATE_LIMITED` if it has no requests left.
    pub fn count(&self, authenticated: &Authenticated) -> Result<()> {
        match &self.rate {
            Some(rate) => locked(&authenticated.slot.bucket).take(rate, Instant::now()),
            None => Ok(()),
        }
    }

    /// The slot of a token holder. All tokens of one subject share it.
    fn holder(&self, caller: &Caller) -> Arc<Slot> {
        let name = Sha256::digest(caller.key_id.as_deref().unwrap_or_default().as_bytes()).into();
        let mut holders = locked(&self.holders);
        if holders.len() >= MAX_CACHED && !holders.contains_key(&name) {
            // This only resets the rates of the holders.
            holders.clear();
        }
        holders.entry(name).or_default().clone()
    }

    /// Caches a key that was just verified. Its row was read after `read_at`.
    fn cache(&self, fingerprint: [u8; 32], key: &StoredKey, read_at: Instant) -> Arc<Slot> {
        let mut verified = locked(&self.verified);
        if verified.len() >= MAX_CACHED && !verified.contains_key(&fingerprint) {
            // Keys that are still in use are cached again after one more verification, which is cheap. Their rates
            // are reset.
            verified.clear();
        }
        let slot = verified.entry(fingerprint).or_default().clone();
        drop(verified);
        locked(&slot.key).get_or_insert_with(|| CachedKey::of(key, None, read_at));
        slot
    }

    /// Reads the row of a cached key again; `None` if the key is no longer valid.
    async fn refresh(&self, slot: &Slot) -> Result<Option<CachedKey>> {
        let Some(CachedKey { caller, .. }) = locked(&slot.key).clone() else {
            return Ok(None);
        };
        let key_id = caller.key_id.as_deref().unwrap_or_default();
        let read = async {
            let key = self.store.keys().key(&caller.owner, key_id).await;
            key.map_err(store_error)
        };
        slot.refresh(read).await
    }

    /// Writes the time of last use in the background.
    fn touch(&self, slot: &Slot, key: &CachedKey) {
        if let Some(key) = locked(&slot.key).as_mut() {
            key.touched_at = Some(Instant::now());
        }
        let (store, caller, now) = (self.store.clone(), key.caller.clone(), self.clock.now());
        tokio::spawn(async move {
            let Some(key_id) = caller.key_id.as_deref() else {
                return;
            };
            if let Err(error) = store.keys().touch_key(&caller.owner, key_id, now).await {
                tracing::warn!(%error, "Could not write a key's time of last use");
            }
        });
    }

    /// Records in the audit log that a caller was refused. Repeated refusals share one line.
    pub fn denied(&self, authenticated: &Authenticated, operation: &str, reason: Reason) {
        let caller = &authenticated.caller;
        self.refusals.count_authenticated(caller, operation, reason);
    }

    /// Counts a request without valid credentials. The service's log reports the number of new ones at most once a
    /// second.
    pub fn refused_unknown(&self) {
        self.refusals.count_unauthenticated();
    }
}

impl Slot {
    /// Reads the row again with `read`, unless another request does so meanwhile: then this one gets that result.
    async fn refresh(
        &self,
        read: impl Future<Output = Result<Option<StoredKey>>>,
    ) -> Result<Option<CachedKey>> {
        let asked = Instant::now();
        let mut failed = self.refreshing.lock().await;
        let Some(before) = locked(&self.key).clone() else {
            return Ok(None);
        };
        if before.read_at.elapsed() < FRESH {
            return Ok(Some(before));
        }
        // While the database cannot be reached, one read after the other would take minutes.
        if let Some((at, error)) = &*failed
            && *at >= asked
        {
            return Err(error.clone());
        }
        let stored = read
            .await
            .inspect_err(|error| *failed = Some((Instant::now(), error.clone())))?;
        let stored = stored.filter(|key| key.hash == before.hash && key.deactivated_at.is_none());
        let key = stored.map(|key| CachedKey::of(&key, before.touched_at, Instant::now()));
        locked(&self.key).clone_from(&key);
        Ok(key)
    }
}

impl CachedKey {
    fn of(key: &StoredKey, touched_at: Option<Instant>, read_at: Instant) -> Self {
        Self {
            hash: key.hash.clone(),
            expires_at: key.expires_at,
            caller: Arc::new(caller_of(key)),
            read_at,
            touched_at,
        }
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator")
            .field("verifications", &self.verifications())
            .finish_non_exhaustive()
    }
}

/// The token of `Bearer <token>` (RFC 6750; the scheme is case-insensitive), or the text itself.
fn bearer(header: &str) -> &str {
    let header = header.trim();
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => header,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_that_wait_for_a_read_that_fails_fail_with_it() {
        let slot = Slot::default();
        *locked(&slot.key) = Some(CachedKey {
            caller: Arc::new(Caller::local()),
            hash: String::new(),
            expires_at: None,
            read_at: Instant::now().checked_sub(FRESH).unwrap(),
            touched_at: None,
        });
        let (fail, failing) = tokio::sync::oneshot::channel::<()>();
        let first = slot.refresh(async {
            failing.await.unwrap();
            Err(Error::new(Reason::StoreUnavailable, "no database"))
        });
        let second = slot.refresh(async { Ok(None) });
        // The second request waits by the time the read of the first one fails.
        let (first, second, ()) = tokio::join!(first, second, async { fail.send(()).unwrap() });
        for result in [first, second] {
            assert_eq!(result.err().unwrap().reason, Reason::StoreUnavailable);
        }
        // A later request reads again.
        assert!(slot.refresh(async { Ok(None) }).await.unwrap().is_none());
    }
}
