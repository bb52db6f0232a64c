//! Who brings a key: verified by bcrypt once, remembered after that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_model::{Error, Reason, Result, Timestamp};
use context_store::{Denial, KeyStore, Store, StoredKey};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::keys::caller_of;
use crate::rate::{Bucket, Rate};
use crate::secret::KeySecret;
use crate::tokens::Tokens;
use crate::{Caller, Clock};

/// The documented sentence for everybody without a valid key. It does not say what is wrong with one.
pub const AUTHENTICATION_REQUIRED: &str = "Authentication required. Please provide a valid API key.";

/// For how long a key counts as it was read last: switching it off takes effect within this time, whoever did it.
const FRESH: Duration = Duration::from_millis(500);
/// How often the time of the last use is written.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// Refusals to one key are written down together, at most this often.
const DENIALS_EVERY: Duration = Duration::from_secs(1);
/// Verified keys that are remembered.
const MAX_KNOWN: usize = 10_000;
/// Keys that are verified at a time (bcrypt is slow on purpose), and that may wait for it.
const MAX_HASHING: usize = 2;
const MAX_WAITING: usize = 256;

/// Tells callers from their keys and tokens.
pub struct Authenticator {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    rate: Option<Rate>,
    tokens: Option<Tokens>,
    /// Holders of tokens, by the SHA-256 of their names.
    holders: Mutex<HashMap<[u8; 32], Arc<Slot>>>,
    known: Mutex<HashMap<[u8; 32], Arc<Slot>>>,
    hashing: Semaphore,
    waiting: Semaphore,
    verifications: AtomicU64,
}

/// What is known about one key. Its lock makes everybody with the same key wait for one verification.
#[derive(Default)]
struct Slot {
    fast: Mutex<Option<Known>>,
    slow: tokio::sync::Mutex<()>,
    bucket: Mutex<Bucket>,
    denied: Mutex<Denied>,
}

#[derive(Clone)]
struct Known {
    caller: Arc<Caller>,
    hash: String,
    expires_at: Option<Timestamp>,
    read_at: Instant,
    touched_at: Option<Instant>,
}

#[derive(Default)]
struct Denied {
    attempts: i64,
    written_at: Option<Instant>,
}

/// A caller with a key.
#[derive(Clone)]
pub struct Authenticated {
    /// Who it is.
    pub caller: Arc<Caller>,
    slot: Arc<Slot>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn required() -> Error {
    Error::new(Reason::Unauthenticated, AUTHENTICATION_REQUIRED)
}

impl Authenticator {
    /// Tells callers of this store's keys. `rate` limits each key.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` when the database keeps no keys.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, rate: Option<Rate>) -> Result<Self> {
        if store.keys().is_none() {
            return Err(Error::new(Reason::FeatureUnavailable, format!("API keys are not yet kept on {}", store.backend())));
        }
        Ok(Self {
            store,
            clock,
            rate,
            tokens: None,
            holders: Mutex::default(),
            known: Mutex::default(),
            hashing: Semaphore::new(MAX_HASHING),
            waiting: Semaphore::new(MAX_WAITING),
            verifications: AtomicU64::new(0),
        })
    }

    /// Accepts tokens too.
    #[must_use]
    pub fn with_tokens(self, tokens: Tokens) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// How often bcrypt ran.
    #[must_use]
    pub fn verifications(&self) -> u64 {
        self.verifications.load(Ordering::Relaxed)
    }

    /// The caller behind the value of an `Authorization` header: `Bearer` and a key or token, or the key alone.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for what is neither; `OVERLOADED`; `ISSUER_UNAVAILABLE`; the store's errors.
    pub async fn authenticate(&self, header: &str) -> Result<Authenticated> {
        let credentials = bearer(header);
        // No key has a dot, and every token two.
        if let Some(tokens) = self.tokens.as_ref().filter(|_| credentials.contains('.')) {
            let caller = Arc::new(tokens.caller(credentials, self.clock.now()).await?);
            let slot = self.holder(&caller);
            return Ok(Authenticated { caller, slot });
        }
        let secret = KeySecret::parse(credentials).ok_or_else(required)?;
        let fingerprint = secret.fingerprint();
        let slot = self.slot(fingerprint);
        let mut known = locked(&slot.fast).clone();
        if known.as_ref().is_none_or(|known| known.read_at.elapsed() >= FRESH) {
            known = self.refresh(&slot, &secret).await?;
        }
        let Some(known) = known.filter(|known| known.expires_at.is_none_or(|expiry| self.clock.now() < expiry)) else {
            locked(&self.known).remove(&fingerprint);
            return Err(required());
        };
        if known.touched_at.is_none_or(|at| at.elapsed() >= TOUCH_EVERY) {
            self.touch(&slot, &known);
        }
        Ok(Authenticated { caller: known.caller, slot })
    }

    /// Counts one request of this caller.
    ///
    /// # Errors
    /// `RATE_LIMITED` when its key has none left.
    pub fn count(&self, who: &Authenticated) -> Result<()> {
        match &self.rate {
            Some(rate) => locked(&who.slot.bucket).take(rate, Instant::now()),
            None => Ok(()),
        }
    }

    /// The slot of a holder of tokens: the same for all tokens of one subject.
    fn holder(&self, caller: &Caller) -> Arc<Slot> {
        let name = Sha256::digest(caller.key_id.as_deref().unwrap_or_default().as_bytes()).into();
        let mut holders = locked(&self.holders);
        if holders.len() >= MAX_KNOWN && !holders.contains_key(&name) {
            // Nothing but what they have left of their rate is forgotten.
            holders.clear();
        }
        holders.entry(name).or_default().clone()
    }

    fn slot(&self, fingerprint: [u8; 32]) -> Arc<Slot> {
        let mut known = locked(&self.known);
        if known.len() >= MAX_KNOWN && !known.contains_key(&fingerprint) {
            // Keys that were never verified go first.
            known.retain(|_, slot| locked(&slot.fast).is_some());
            if known.len() >= MAX_KNOWN {
                // Whoever is in use comes back by one more verification.
                known.clear();
            }
        }
        known.entry(fingerprint).or_default().clone()
    }

    /// Reads the key's row again, or verifies a key that is not known; `None` when it is not valid.
    async fn refresh(&self, slot: &Slot, secret: &KeySecret) -> Result<Option<Known>> {
        let _one = slot.slow.lock().await;
        let before = locked(&slot.fast).clone();
        let (stored, touched_at) = match &before {
            // Somebody else did it while this one waited.
            Some(known) if known.read_at.elapsed() < FRESH => return Ok(before),
            Some(known) => {
                let key_id = known.caller.key_id.as_deref().unwrap_or_default();
                let stored = self.keys()?.key(&known.caller.owner, key_id).await.map_err(crate::store_error)?;
                (stored.filter(|key| key.hash == known.hash), known.touched_at)
            }
            None => (self.verify(secret).await?, None),
        };
        let stored = stored.filter(|key| key.deactivated_at.is_none());
        let known = stored.map(|key| Known {
            hash: key.hash.clone(),
            expires_at: key.expires_at,
            caller: Arc::new(caller_of(&key)),
            read_at: Instant::now(),
            touched_at,
        });
        locked(&slot.fast).clone_from(&known);
        Ok(known)
    }

    /// The stored key that this secret is.
    async fn verify(&self, secret: &KeySecret) -> Result<Option<StoredKey>> {
        let candidates = self.keys()?.keys_by_lookup(secret.lookup()).await.map_err(crate::store_error)?;
        for key in candidates.into_iter().filter(|key| key.deactivated_at.is_none()) {
            let Ok(_place) = self.waiting.try_acquire() else {
                let busy = Error::new(Reason::Overloaded, "too many keys to verify at once; retry in a second");
                return Err(busy.with_retry_after(Duration::from_secs(1)));
            };
            let _turn = self.hashing.acquire().await.map_err(Error::internal)?;
            self.verifications.fetch_add(1, Ordering::Relaxed);
            let (text, hash) = (secret.reveal().to_owned(), key.hash.clone());
            let same = tokio::task::spawn_blocking(move || bcrypt::verify(text, &hash)).await.map_err(Error::internal)?;
            if same.unwrap_or(false) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn keys(&self) -> Result<&dyn KeyStore> {
        self.store.keys().ok_or_else(required)
    }

    /// Writes the time of use beside the request.
    fn touch(&self, slot: &Slot, known: &Known) {
        if let Some(known) = locked(&slot.fast).as_mut() {
            known.touched_at = Some(Instant::now());
        }
        let (store, caller, now) = (self.store.clone(), known.caller.clone(), self.clock.now());
        tokio::spawn(async move {
            let (Some(keys), Some(key_id)) = (store.keys(), caller.key_id.as_deref()) else { return };
            if let Err(error) = keys.touch_key(&caller.owner, key_id, now).await {
                tracing::warn!(%error, "The time of a key's last use was not written");
            }
        });
    }

    /// Writes down that a caller was refused, together with what was refused shortly before.
    pub fn denied(&self, who: &Authenticated, operation: &str, reason: Reason) {
        let attempts = {
            let mut denied = locked(&who.slot.denied);
            denied.attempts += 1;
            if denied.written_at.is_some_and(|at| at.elapsed() < DENIALS_EVERY) {
                return;
            }
            denied.written_at = Some(Instant::now());
            std::mem::take(&mut denied.attempts)
        };
        let (store, caller, at) = (self.store.clone(), who.caller.clone(), self.clock.now());
        let (operation, reason) = (operation.to_owned(), reason.as_str().to_owned());
        tokio::spawn(async move {
            let (Some(keys), Some(key_id)) = (store.keys(), caller.key_id.clone()) else { return };
            if let Err(error) = keys.record_denial(&caller.owner, Denial { at, key_id, operation, reason, attempts }).await {
                tracing::warn!(%error, "A refusal was not written to the audit log");
            }
        });
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authenticator").field("verifications", &self.verifications()).finish_non_exhaustive()
    }
}

/// The token of `Bearer <token>` (RFC 6750; the scheme in any case), or the text itself.
fn bearer(header: &str) -> &str {
    let header = header.trim();
    match header.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        _ => header,
    }
}
