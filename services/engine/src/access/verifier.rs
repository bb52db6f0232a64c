//! Verifies a key that is not cached: by its digest or, if an older version stored it without one,
//! by bcrypt.
//!
//! Comparing digests takes microseconds. bcrypt takes 60 to 90 ms by design, so it is limited: one
//! secret per lookup prefix is verified at a time, wrong secrets delay the next one, and all
//! prefixes together use half of the cores. A verification that has started runs to its end even if
//! its caller disconnects, so that disconnecting does not make room for another attempt.

#![expect(clippy::disallowed_methods, reason = "the pauses after wrong secrets")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use context_model::{Error, Reason, Result};
use context_store::{Store, StoredKey};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::key_secret::KeySecret;
use crate::clock::Clock;
use crate::error::store_error;
use crate::lock::locked;

/// Maximum number of secrets of one prefix that wait for bcrypt.
const MAX_WAITING: usize = 16;
/// Maximum number of secrets of all prefixes that wait for bcrypt.
const MAX_WAITING_IN_ALL: usize = 4_096;
/// How long a request waits for bcrypt. The verification continues and stores the digest of a valid
/// key, so that no bcrypt is needed when the key is sent again.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a wrong secret. It doubles with each further wrong secret in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// Maximum pause after a wrong secret.
const MAX_PAUSE: Duration = Duration::from_millis(800);

type Verdict = Result<Option<StoredKey>>;

/// Finds the stored key for a secret.
pub(super) struct Verifier {
    shared: Arc<SharedState>,
}

struct SharedState {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// Prefixes of stored keys without a digest for which a secret waits, or was recently wrong.
    prefixes: Mutex<HashMap<[u8; 32], Prefix>>,
    hashing: Semaphore,
    verifications: AtomicU64,
}

#[derive(Default)]
struct Prefix {
    /// Running verifications by fingerprint. Requests with the same secret share one verification.
    waiting: HashMap<[u8; 32], Shared<BoxFuture<'static, Verdict>>>,
    backoff: Arc<tokio::sync::Mutex<Backoff>>,
}

/// The number of wrong secrets in a row, and when the next secret may be verified.
#[derive(Default)]
struct Backoff {
    wrong: u32,
    not_before: Option<Instant>,
}

impl Verifier {
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let shared = SharedState {
            store,
            clock,
            prefixes: Mutex::default(),
            hashing: Semaphore::new((cores / 2).max(1)),
            verifications: AtomicU64::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// How many times bcrypt ran.
    pub fn verifications(&self) -> u64 {
        self.shared.verifications.load(Ordering::Relaxed)
    }

    /// The stored key of this secret; `None` if there is none that is valid now.
    ///
    /// # Errors
    /// `OVERLOADED` if too many secrets of one prefix or of all prefixes wait for bcrypt, or if this
    /// one was not verified within [`WAIT_TIMEOUT`]; the store's errors.
    pub async fn verify(&self, secret: &KeySecret) -> Verdict {
        match self.shared.by_digest(secret).await? {
            Found::Key(key) => Ok(Some(*key)),
            Found::Undecided(undecided) if undecided.is_empty() => Ok(None),
            Found::Undecided(_) => self.by_bcrypt(secret).await,
        }
    }

    async fn by_bcrypt(&self, secret: &KeySecret) -> Verdict {
        let verification = {
            let mut prefixes = locked(&self.shared.prefixes);
            let in_all: usize = prefixes.values().map(|prefix| prefix.waiting.len()).sum();
            let prefix = prefixes.entry(secret.lookup()).or_default();
            match prefix.waiting.get(&secret.fingerprint()) {
                Some(verification) => verification.clone(),
                None if prefix.waiting.len() >= MAX_WAITING || in_all >= MAX_WAITING_IN_ALL => {
                    return Err(busy());
                }
                None => {
                    let running = tokio::spawn(
                        self.shared
                            .clone()
                            .run(secret.clone(), prefix.backoff.clone()),
                    );
                    let verdict = running
                        .map(|ended| ended.unwrap_or_else(|error| Err(Error::internal(error))));
                    let verification = verdict.boxed().shared();
                    prefix
                        .waiting
                        .insert(secret.fingerprint(), verification.clone());
                    verification
                }
            }
        };
        tokio::time::timeout(WAIT_TIMEOUT, verification)
            .await
            .unwrap_or_else(|_| Err(busy()))
    }
}

fn busy() -> Error {
    let sentence = "an older version stored this key, and too many keys are being verified for the first time; retry in a second";
    Error::new(Reason::Overloaded, sentence).with_retry_after(Duration::from_secs(1))
}

/// The outcome of comparing digests.
enum Found {
    /// The secret belongs to this key.
    Key(Box<StoredKey>),
    /// The secret may be one of these keys, which have no digest.
    Undecided(Vec<StoredKey>),
}

impl SharedState {
    async fn by_digest(&self, secret: &KeySecret) -> Result<Found> {
        let stored = self
            .store
            .keys()
            .keys_by_lookup(secret.lookup())
            .await
            .map_err(store_error)?;
        let (digest, now) = (secret.digest(), self.clock.now());
        let mut undecided = Vec::new();
        for key in stored {
            if key.deactivated_at.is_some() || key.expires_at.is_some_and(|expiry| now >= expiry) {
                continue;
            }
            match &key.digest {
                Some(stored) if same(stored.as_bytes(), digest.as_bytes()) => {
                    return Ok(Found::Key(Box::new(key)));
                }
                Some(_) => {}
                None => undecided.push(key),
            }
        }
        Ok(Found::Undecided(undecided))
    }

    async fn run(
        self: Arc<Self>,
        secret: KeySecret,
        backoff: Arc<tokio::sync::Mutex<Backoff>>,
    ) -> Verdict {
        let verdict = {
            let mut backoff = backoff.lock().await;
            if let Some(moment) = backoff.not_before {
                tokio::time::sleep_until(moment).await;
            }
            let verdict = self.hash(&secret).await;
            match &verdict {
                Ok(None) => {
                    let pause = FIRST_PAUSE
                        .saturating_mul(2_u32.saturating_pow(backoff.wrong))
                        .min(MAX_PAUSE);
                    *backoff = Backoff {
                        wrong: backoff.wrong.saturating_add(1),
                        not_before: Some(Instant::now() + pause),
                    };
                }
                Ok(Some(_)) => *backoff = Backoff::default(),
                Err(_) => {}
            }
            verdict
        };
        let mut prefixes = locked(&self.prefixes);
        if let Some(prefix) = prefixes.get_mut(&secret.lookup()) {
            prefix.waiting.remove(&secret.fingerprint());
        }
        // A prefix stays in the map while a secret of it waits, and for a while after a wrong secret.
        prefixes.retain(|_, prefix| {
            !prefix.waiting.is_empty()
                || prefix
                    .backoff
                    .try_lock()
                    .is_ok_and(|backoff| backoff.is_recent())
        });
        verdict
    }

    async fn hash(&self, secret: &KeySecret) -> Verdict {
        // While this secret waited, another one may have been verified as the key.
        let undecided = match self.by_digest(secret).await? {
            Found::Key(key) => return Ok(Some(*key)),
            Found::Undecided(undecided) => undecided,
        };
        for key in undecided {
            let _core = self.hashing.acquire().await.map_err(Error::internal)?;
            self.verifications.fetch_add(1, Ordering::Relaxed);
            let (text, hash) = (secret.clone(), key.hash.clone());
            let verified =
                tokio::task::spawn_blocking(move || bcrypt::verify(text.reveal(), &hash))
                    .await
                    .map_err(Error::internal)?;
            if verified.unwrap_or(false) {
                let stored = self
                    .store
                    .keys()
                    .store_digest(&key.owner, &key.id, &secret.digest(), self.clock.now())
                    .await;
                if let Err(error) = stored {
                    tracing::warn!(%error, "Could not store a key's digest; its next verification will use bcrypt again");
                }
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Backoff {
    /// Whether a secret was wrong recently.
    fn is_recent(&self) -> bool {
        self.not_before
            .is_some_and(|moment| Instant::now() < moment + MAX_PAUSE)
    }
}

/// Constant-time comparison: the time depends only on the lengths.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |differences, (a, b)| {
        std::hint::black_box(differences | (a ^ b))
    });
    one.len() == other.len() && differences == 0
}
