//! Verifying a key that is not remembered: by its digest, or by bcrypt when an older version stored it without one.
//!
//! A digest decides in microseconds. bcrypt takes 60 to 90 ms on purpose, so that it is bounded: for each lookup prefix one
//! secret is verified at a time, wrong ones make the next one wait, and over all prefixes half of the cores are used. What
//! has begun runs to its end, even when its caller has gone: hanging up must not make room for another attempt.

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

/// Secrets of one prefix that may wait for bcrypt, and of all.
const MAX_WAITING: usize = 16;
const MAX_WAITING_IN_ALL: usize = 4_096;
/// How long a request waits for bcrypt. The verification goes on, so that a valid key is known when it comes again.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a wrong secret: at first, and at most. It doubles with each wrong one in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_millis(800);

type Verdict = Result<Option<StoredKey>>;

/// Finds the stored key that a secret is.
pub(super) struct Verifier {
    shared: Arc<SharedState>,
}

struct SharedState {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// The prefixes of stored keys without a digest, for which something waits or was wrong.
    prefixes: Mutex<HashMap<[u8; 32], Prefix>>,
    hashing: Semaphore,
    verifications: AtomicU64,
}

#[derive(Default)]
struct Prefix {
    /// What is being verified, by fingerprint: requests with one secret share one verification.
    waiting: HashMap<[u8; 32], Shared<BoxFuture<'static, Verdict>>>,
    turn: Arc<tokio::sync::Mutex<Turn>>,
}

/// How many wrong secrets there were in a row, and when the next one may be verified.
#[derive(Default)]
struct Turn {
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

    /// How often bcrypt ran.
    pub fn verifications(&self) -> u64 {
        self.shared.verifications.load(Ordering::Relaxed)
    }

    /// The stored key that this secret is, when it is valid now.
    ///
    /// # Errors
    /// `OVERLOADED` when too many secrets of one prefix wait for bcrypt; the store's errors.
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
                    let running =
                        tokio::spawn(self.shared.clone().run(secret.clone(), prefix.turn.clone()));
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

/// What the digests say.
enum Found {
    /// It is this key.
    Key(Box<StoredKey>),
    /// It may be one of these, which have no digest.
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
        turn: Arc<tokio::sync::Mutex<Turn>>,
    ) -> Verdict {
        let verdict = {
            let mut turn = turn.lock().await;
            if let Some(moment) = turn.not_before {
                tokio::time::sleep_until(moment).await;
            }
            let verdict = self.hash(&secret).await;
            match &verdict {
                Ok(None) => {
                    let pause = FIRST_PAUSE
                        .saturating_mul(2_u32.saturating_pow(turn.wrong))
                        .min(LAST_PAUSE);
                    *turn = Turn {
                        wrong: turn.wrong.saturating_add(1),
                        not_before: Some(Instant::now() + pause),
                    };
                }
                Ok(Some(_)) => *turn = Turn::default(),
                Err(_) => {}
            }
            verdict
        };
        let mut prefixes = locked(&self.prefixes);
        if let Some(prefix) = prefixes.get_mut(&secret.lookup()) {
            prefix.waiting.remove(&secret.fingerprint());
        }
        // A prefix is remembered for as long as something waits, or must wait because of it.
        prefixes.retain(|_, prefix| {
            !prefix.waiting.is_empty() || prefix.turn.try_lock().is_ok_and(|turn| turn.pauses())
        });
        verdict
    }

    async fn hash(&self, secret: &KeySecret) -> Verdict {
        // While this one waited, another secret may have turned out to be the key.
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
                    tracing::warn!(%error, "The digest of a key was not written; its next verification is as slow as this one");
                }
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Turn {
    fn pauses(&self) -> bool {
        self.not_before
            .is_some_and(|moment| Instant::now() < moment + LAST_PAUSE)
    }
}

/// Whether two texts are the same, in a time that depends on their lengths alone.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |differences, (a, b)| {
        std::hint::black_box(differences | (a ^ b))
    });
    one.len() == other.len() && differences == 0
}
