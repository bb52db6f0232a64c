//! The issuer: fetches and caches its keys, and verifies its tokens.

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
use crate::sign_in::Known;
use crate::token::Token;

/// Keys older than this are fetched again in the background.
const REFRESH_AFTER: Duration = Duration::from_secs(300);
/// How many callers may wait for the issuer's response at the same time.
const MAX_WAITING: usize = 256;
/// Retry delay for callers after the issuer returned no keys.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a token was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is invalid. The reason is for the log and never sent to the client.
    #[error("{0}")]
    Invalid(&'static str),
    /// The issuer's keys are unavailable, so the token cannot be checked.
    #[error("the issuer of tokens cannot be reached")]
    Unavailable {
        /// When to retry.
        retry_after: Duration,
    },
}

/// The current time on two clocks: token claims use dates, and the age of keys is measured with a
/// monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Seconds since 1970.
    pub unix_seconds: i64,
    /// The same moment on the monotonic clock.
    pub instant: Instant,
}

/// An issuer of tokens.
pub struct Issuer {
    settings: Settings,
    http: Http,
    held: RwLock<Option<Arc<Held>>>,
    fetching: Arc<Mutex<Fetching>>,
    /// How many fetches have ended. A caller that waited compares it with the earlier number, and
    /// does not fetch again if it grew.
    ended: AtomicU64,
    waiting: Semaphore,
    /// Where people sign in.
    endpoints: Mutex<Option<Known>>,
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
    /// An issuer. The first token triggers the first fetch, so that the service starts while the
    /// issuer is down.
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
            endpoints: Mutex::default(),
        })
    }

    /// The settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The claims of a token, if it is valid.
    ///
    /// # Errors
    /// [`TokenError`].
    pub async fn verify(self: &Arc<Self>, token: &str, now: Now) -> Result<Verified, TokenError> {
        let token = Token::parse(token).map_err(TokenError::Invalid)?;
        // The claims are checked before the signature, because that is cheaper, and so that a
        // foreign token does not trigger a fetch of keys.
        let verified = Verified::check(&token.claims, &self.settings, now.unix_seconds)
            .map_err(TokenError::Invalid)?;
        let held = self.keys(now.instant).await?;
        let verdict = match held.keys.verify(&token) {
            // The issuer may have rotated its keys.
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

    pub(crate) const fn http(&self) -> &Http {
        &self.http
    }

    pub(crate) const fn known(&self) -> &Mutex<Option<Known>> {
        &self.endpoints
    }

    fn held(&self) -> Option<Arc<Held>> {
        self.held
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keys that are not too old; fetched if necessary.
    async fn keys(self: &Arc<Self>, now: Instant) -> Result<Arc<Held>, TokenError> {
        if let Some(held) = self.held() {
            let age = now.saturating_duration_since(held.at);
            if age < REFRESH_AFTER {
                return Ok(held);
            }
            if age < self.settings.keys_max_age {
                let (issuer, seen) = (Arc::clone(self), held.clone());
                // The lock check avoids spawning a task while a fetch is running.
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

    /// Fetches the keys, unless another caller is fetching them or they were fetched too often.
    /// `None` if there are none newer than `seen`.
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
        let was_fetched = self.ended.load(Ordering::Acquire) != ended;
        if !was_fetched && fetching.allowance.take(now) {
            let issuer = Arc::clone(self);
            // Runs in a task, so that callers that disconnect cannot cancel the fetch.
            fetching = tokio::spawn(issuer.fetch_now(fetching, now))
                .await
                .map_err(|_| unavailable())?;
        }
        match &fetching.failed {
            Some(FetchError::Unreachable(_)) => Err(unavailable()),
            Some(FetchError::Malformed(_) | FetchError::Refused(_)) => Ok(None),
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
                tracing::info!(issuer = %self.settings.issuer, keys = keys.len(), "Fetched the issuer's keys");
                fetching.failed = None;
                *self.held.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::new(Held { keys, at: now }));
            }
            Err(error) => {
                tracing::error!(issuer = %self.settings.issuer, %error, "Could not fetch the issuer's keys");
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
                // The keys of another issuer must not verify this issuer's tokens (Discovery 1.0,
                // section 4.3).
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
