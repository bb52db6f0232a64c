//! The issuer: its keys, kept as long as they are good, and the tokens they verify.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use crate::allowance::Allowance;
use crate::claims::Verified;
use crate::http::{FetchError, Http};
use crate::jwks::{KeySet, Verdict};
use crate::settings::{Settings, checked};
use crate::token::Token;

/// Keys older than this are fetched again, beside the requests.
const REFRESH_AFTER: Duration = Duration::from_secs(300);
/// Callers that may wait for the issuer's answer at a time.
const MAX_WAITING: usize = 256;
/// When a caller may try again after the issuer gave no keys.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a token was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is not valid. What is wrong is for the log, never for whoever sent it.
    #[error("{0}")]
    Invalid(&'static str),
    /// Nobody can tell, because the issuer's keys cannot be had.
    #[error("the issuer of tokens cannot be reached")]
    Unavailable {
        /// When to try again.
        retry_after: Duration,
    },
}

/// A moment, on the two clocks that matter: tokens have dates, keys have ages.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// The same moment on the clock that is never set back.
    pub instant: Instant,
}

/// An issuer of tokens.
pub struct Issuer {
    settings: Settings,
    http: Http,
    held: RwLock<Option<Arc<Held>>>,
    fetching: Arc<Mutex<Fetching>>,
    /// How often a fetch has ended; whoever waited for one sees by it that another is not needed.
    ended: AtomicU64,
    waiting: Semaphore,
}

struct Held {
    keys: KeySet,
    at: Instant,
}

struct Fetching {
    allowance: Allowance,
    failed: Option<FetchError>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Issuer {
    /// An issuer. Nothing is fetched before a token comes, so that the service starts while the issuer is away.
    ///
    /// # Errors
    /// A sentence about settings that cannot be used.
    pub fn new(settings: Settings) -> Result<Self, String> {
        settings.check()?;
        let http = Http::new(settings.is_local())?;
        let fetching = Arc::new(Mutex::new(Fetching {
            allowance: Allowance::new(),
            failed: None,
        }));
        Ok(Self {
            settings,
            http,
            held: RwLock::default(),
            fetching,
            ended: AtomicU64::new(0),
            waiting: Semaphore::new(MAX_WAITING),
        })
    }

    /// Whose tokens are accepted.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What a token says, when it is valid.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn verify(self: &Arc<Self>, token: &str, now: Now) -> Result<Verified, TokenError> {
        let token = Token::parse(token).map_err(TokenError::Invalid)?;
        // Before the signature, because it costs less; a token of somebody else's makes nobody fetch keys.
        let verified = Verified::check(&token.claims, &self.settings, now.unix_seconds)
            .map_err(TokenError::Invalid)?;
        let held = self.keys(now.instant).await?;
        let verdict = match held.keys.verify(&token) {
            // The issuer may have new keys.
            Verdict::UnknownKey => match self.fetch(now.instant, Some(&held)).await? {
                Some(newer) => newer.keys.verify(&token),
                None => Verdict::UnknownKey,
            },
            verdict => verdict,
        };
        match verdict {
            Verdict::Good => Ok(verified),
            Verdict::Bad => Err(TokenError::Invalid("its signature is wrong")),
            Verdict::UnknownKey => Err(TokenError::Invalid(
                "the issuer has no key that it could be signed with",
            )),
        }
    }

    fn held(&self) -> Option<Arc<Held>> {
        self.held
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keys that are not too old.
    async fn keys(self: &Arc<Self>, now: Instant) -> Result<Arc<Held>, TokenError> {
        if let Some(held) = self.held() {
            let age = now.saturating_duration_since(held.at);
            if age < REFRESH_AFTER {
                return Ok(held);
            }
            if age < self.settings.keys_max_age {
                let (issuer, seen) = (Arc::clone(self), held.clone());
                // Only one of them does more than look.
                if self.fetching.try_lock().is_ok() {
                    tokio::spawn(async move { issuer.fetch(now, Some(&seen)).await });
                }
                return Ok(held);
            }
        }
        let held = self
            .fetch(now, None)
            .await?
            .filter(|held| now.saturating_duration_since(held.at) < self.settings.keys_max_age);
        held.ok_or(TokenError::Invalid(
            "the issuer has no keys that can be used",
        ))
    }

    /// Fetches the keys, unless somebody does so already or did so too often; `None` when there are none newer than those
    /// that were `seen`.
    async fn fetch(
        self: &Arc<Self>,
        now: Instant,
        seen: Option<&Arc<Held>>,
    ) -> Result<Option<Arc<Held>>, TokenError> {
        let unavailable = || TokenError::Unavailable {
            retry_after: RETRY_AFTER,
        };
        let _place = self.waiting.try_acquire().map_err(|_| unavailable())?;
        let ended = self.ended.load(Ordering::Acquire);
        let mut fetching = Arc::clone(&self.fetching).lock_owned().await;
        let newer = || {
            self.held()
                .filter(|held| seen.is_none_or(|seen| !Arc::ptr_eq(seen, held)))
        };
        if let (Some(seen), Some(newer)) = (seen, newer())
            && newer.at > seen.at
        {
            return Ok(Some(newer));
        }
        let somebody_did = self.ended.load(Ordering::Acquire) != ended;
        if !somebody_did && fetching.allowance.take(now) {
            let issuer = Arc::clone(self);
            // A task of its own, so that callers who ask and go away cannot keep the keys from ever coming.
            fetching = tokio::spawn(issuer.fetch_now(fetching, now))
                .await
                .map_err(|_| unavailable())?;
        }
        match &fetching.failed {
            Some(FetchError::Unreachable(_)) => Err(unavailable()),
            Some(FetchError::Malformed(_)) => Ok(None),
            None => Ok(newer()),
        }
    }

    async fn fetch_now(
        self: Arc<Self>,
        mut fetching: OwnedMutexGuard<Fetching>,
        now: Instant,
    ) -> OwnedMutexGuard<Fetching> {
        let outcome = self.fetch_keys().await;
        self.ended.fetch_add(1, Ordering::Release);
        match outcome {
            Ok(keys) => {
                tracing::info!(issuer = %self.settings.issuer, keys = keys.len(), "Fetched the keys of the issuer");
                fetching.failed = None;
                *self.held.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::new(Held { keys, at: now }));
            }
            Err(error) => {
                tracing::error!(issuer = %self.settings.issuer, %error, "The keys of the issuer cannot be had");
                fetching.failed = Some(error);
            }
        }
        fetching
    }

    async fn fetch_keys(&self) -> Result<KeySet, FetchError> {
        let local = self.settings.is_local();
        let address = |url: &str, local| checked(url, local).map_err(FetchError::Malformed);
        let keys = match &self.settings.jwks_url {
            Some(url) => address(url, local)?,
            None => {
                let document = self
                    .http
                    .get(address(&self.settings.discovery_url(), local)?)
                    .await?;
                let discovery: Discovery = serde_json::from_slice(&document).map_err(|_| {
                    FetchError::Malformed("its discovery document cannot be read".to_owned())
                })?;
                // Another's keys must not verify this one's tokens (Discovery 1.0, section 4.3).
                if discovery.issuer != self.settings.issuer {
                    return Err(FetchError::Malformed(
                        "its discovery document names another issuer".to_owned(),
                    ));
                }
                address(&discovery.jwks_uri, local)?
            }
        };
        KeySet::parse(&self.http.get(keys).await?).map_err(FetchError::Malformed)
    }
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
