//! The issuer: fetches and caches its keys, and verifies its tokens.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

use crate::allowance::Allowance;
use crate::claims::Verified;
use crate::discovery::{Discovery, Endpoints};
use crate::http::{FetchError, Http};
use crate::jwks::{KeySet, Verdict};
use crate::settings::{Settings, checked};
use crate::token::Token;

/// Keys older than this are fetched again in the background.
const REFRESH_AFTER: Duration = Duration::from_secs(300);
/// Maximum number of callers that wait for the issuer's response at the same time.
const MAX_WAITING: usize = 256;
/// Number of key fetches that are allowed at once: enough for a key rotation and a failed response.
const FETCH_BURST: u32 = 4;
/// After a burst, one more fetch is allowed in each such interval.
const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Number of codes that may be exchanged at once.
const EXCHANGE_BURST: u32 = 20;
/// After a burst, one more exchange is allowed in each such interval.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// Retry delay for callers after the issuer returned no keys.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Why a token was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is invalid. The reason is for the log and never sent to the client.
    #[error("{0}")]
    Invalid(&'static str),
    /// The issuer's keys are unavailable, so the token cannot be checked.
    #[error("the keys of the issuer of tokens are not available")]
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
    cache: RwLock<Option<Arc<Fetched>>>,
    fetching: Arc<Mutex<Fetching>>,
    /// Number of fetches that have ended. If it grew while a caller waited for the lock, the caller
    /// does not fetch again.
    ended: AtomicU64,
    waiting: Semaphore,
    /// How many codes may still be exchanged. Anyone can send codes, and each costs the issuer a request.
    exchanges: std::sync::Mutex<Allowance>,
}

/// What was fetched from the issuer.
pub(crate) struct Fetched {
    keys: KeySet,
    /// The endpoints for signing in; `None` if the issuer has none, or the discovery document is not read.
    pub endpoints: Option<Endpoints>,
    fetched_at: Instant,
}

struct Fetching {
    allowance: Allowance,
    /// The error of the last fetch, if it failed.
    last_error: Option<FetchError>,
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
            allowance: Allowance::new(FETCH_BURST, FETCH_INTERVAL),
            last_error: None,
        }));
        Ok(Self {
            settings,
            http,
            cache: RwLock::default(),
            fetching,
            ended: AtomicU64::new(0),
            waiting: Semaphore::new(MAX_WAITING),
            exchanges: std::sync::Mutex::new(Allowance::new(EXCHANGE_BURST, EXCHANGE_INTERVAL)),
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
        self.check_signature(&token, now.instant).await?;
        Ok(verified)
    }

    /// Accepts a token that the issuer has signed.
    ///
    /// # Errors
    /// [`TokenError`].
    pub(crate) async fn check_signature(
        self: &Arc<Self>,
        token: &Token<'_>,
        now: Instant,
    ) -> Result<(), TokenError> {
        let fetched = self.current(now).await?;
        let verdict = match fetched.keys.verify(token) {
            // The issuer may have rotated its keys.
            Verdict::UnknownKey => match self.fetch(now, Some(&fetched)).await? {
                Some(newer) => newer.keys.verify(token),
                None => Verdict::UnknownKey,
            },
            verdict => verdict,
        };
        match verdict {
            Verdict::Good => Ok(()),
            Verdict::Bad => Err(TokenError::Invalid("its signature is wrong")),
            Verdict::UnknownKey => Err(TokenError::Invalid(
                "the issuer has no key that it could be signed with",
            )),
        }
    }

    pub(crate) const fn http(&self) -> &Http {
        &self.http
    }

    pub(crate) fn exchanges(&self) -> MutexGuard<'_, Allowance> {
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn cached(&self) -> Option<Arc<Fetched>> {
        self.cache
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The cached keys and endpoints, unless they are too old; then they are fetched. After `REFRESH_AFTER`, or half of
    /// their maximum age, they are also fetched in the background.
    ///
    /// # Errors
    /// [`TokenError::Unavailable`], also when the issuer's response cannot be used: no token can be checked then, so
    /// none is known to be invalid.
    pub(crate) async fn current(
        self: &Arc<Self>,
        now: Instant,
    ) -> Result<Arc<Fetched>, TokenError> {
        if let Some(fetched) = self.cached() {
            let age = now.saturating_duration_since(fetched.fetched_at);
            // Half of a short maximum age: otherwise every token would wait for the fetch when the keys are too old, and
            // an issuer that is away at that moment would make all of them fail at once.
            if age < REFRESH_AFTER.min(self.settings.keys_max_age / 2) {
                return Ok(fetched);
            }
            if age < self.settings.keys_max_age {
                let (issuer, seen) = (Arc::clone(self), fetched.clone());
                // The lock check avoids spawning a task while a fetch is running.
                if self.fetching.try_lock().is_ok() {
                    tokio::spawn(async move { issuer.fetch(now, Some(&seen)).await });
                }
                return Ok(fetched);
            }
        }
        let fetched = self.fetch(now, None).await?.filter(|fetched| {
            now.saturating_duration_since(fetched.fetched_at) < self.settings.keys_max_age
        });
        fetched.ok_or(TokenError::Unavailable {
            retry_after: RETRY_AFTER,
        })
    }

    /// Fetches the keys, unless another caller is fetching them or they were fetched too often.
    /// `None` if there are none newer than `seen`.
    async fn fetch(
        self: &Arc<Self>,
        now: Instant,
        seen: Option<&Arc<Fetched>>,
    ) -> Result<Option<Arc<Fetched>>, TokenError> {
        let unavailable = || TokenError::Unavailable {
            retry_after: RETRY_AFTER,
        };
        let _permit = self.waiting.try_acquire().map_err(|_| unavailable())?;
        let ended = self.ended.load(Ordering::Acquire);
        let mut fetching = Arc::clone(&self.fetching).lock_owned().await;
        let newer = || {
            self.cached()
                .filter(|fetched| seen.is_none_or(|seen| !Arc::ptr_eq(seen, fetched)))
        };
        if let (Some(seen), Some(newer)) = (seen, newer())
            && newer.fetched_at > seen.fetched_at
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
        match &fetching.last_error {
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
        let outcome = self.fetch_all().await;
        self.ended.fetch_add(1, Ordering::Release);
        match outcome {
            Ok((keys, endpoints)) => {
                tracing::info!(issuer = %self.settings.issuer, keys = keys.len(), "Fetched the issuer's keys");
                fetching.last_error = None;
                *self.cache.write().unwrap_or_else(PoisonError::into_inner) =
                    Some(Arc::new(Fetched {
                        keys,
                        endpoints,
                        fetched_at: now,
                    }));
            }
            Err(error) => {
                tracing::error!(issuer = %self.settings.issuer, %error, "Could not fetch the issuer's keys");
                fetching.last_error = Some(error);
            }
        }
        fetching
    }

    async fn fetch_all(&self) -> Result<(KeySet, Option<Endpoints>), FetchError> {
        let (jwks_url, endpoints) = match &self.settings.jwks_url {
            Some(url) => (url.clone(), None),
            None => {
                let found = self.discover().await?;
                (found.jwks_uri, found.endpoints)
            }
        };
        if endpoints.is_none() && self.settings.client.is_some() {
            tracing::error!(issuer = %self.settings.issuer, "The issuer's discovery document names no endpoints to sign in");
        }
        let keys = self.http.get(self.address(&jwks_url)?).await?;
        let keys = KeySet::parse(&keys).map_err(FetchError::Malformed)?;
        Ok((keys, endpoints))
    }

    async fn discover(&self) -> Result<Discovery, FetchError> {
        let malformed = |sentence: &str| FetchError::Malformed(sentence.to_owned());
        let document = self.address(&self.settings.discovery_url())?;
        let document = self.http.get(document).await?;
        let discovery: Discovery = serde_json::from_slice(&document)
            .map_err(|_| malformed("its discovery document cannot be read"))?;
        // The keys of another issuer must not verify this issuer's tokens (Discovery 1.0,
        // section 4.3).
        if discovery.issuer != self.settings.issuer {
            return Err(malformed("its discovery document names another issuer"));
        }
        Ok(discovery)
    }

    /// Parses an address that requests to the issuer may be sent to: https, or http on this machine for a local issuer.
    ///
    /// # Errors
    /// [`FetchError::Malformed`].
    pub(crate) fn address(&self, url: &str) -> Result<reqwest::Url, FetchError> {
        checked(url, self.settings.is_local()).map_err(FetchError::Malformed)
    }
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
