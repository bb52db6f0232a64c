//! HTTP client of one provider's API: address, authentication, timeouts, and the limit on concurrent requests.

use std::time::Duration;

use backon::Retryable as _;
use bytes::Bytes;
use context_model::{Secret, shown_url};
use futures::future::try_join_all;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::breaker::Breaker;
use super::retry;
use crate::ProviderError;
use crate::error::no_connection;

/// Maximum number of concurrent requests of one client.
pub(super) const CONCURRENT: usize = 4;
/// Minimum length of a key that is removed from messages. Shorter ones, such as `none` and `ollama`, are no secrets but
/// words that a message may contain.
const MIN_SECRET_BYTES: usize = 8;

/// The address of a provider, and how to connect to it.
#[derive(Clone)]
pub struct Access {
    /// The base address, `http://` or `https://`. Paths are appended to it.
    pub url: String,
    /// The API key, if the provider requires one.
    pub key: Option<Secret>,
    /// Timeout of one attempt, from connecting to the last byte of the response.
    pub timeout: Duration,
}

impl Access {
    /// The address, without credentials.
    #[must_use]
    pub fn address(&self) -> String {
        shown_url(self.url.trim().trim_end_matches('/'))
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, key, timeout } = self;
        f.debug_struct("Access")
            .field("url", &shown_url(url))
            .field("key", key)
            .field("timeout", timeout)
            .finish()
    }
}

/// Whether this can be the base address of a provider, to which paths are appended.
#[must_use]
pub fn is_address(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.query().is_none()
            && url.fragment().is_none()
    })
}

/// How a key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyHeader {
    Bearer,
    Named(&'static str),
}

pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    /// The headers of every request.
    headers: HeaderMap,
    key: Option<Secret>,
    timeout: Duration,
    slots: Semaphore,
    breaker: Breaker,
}

/// The failure of a request, or of one attempt.
struct Failed {
    error: ProviderError,
    /// Whether other requests would fail too. A status of 500 does not show that: some servers fail only for certain
    /// texts.
    provider_is_down: bool,
}

impl Failed {
    /// A temporary failure of the whole provider.
    fn provider_down(what: impl Into<String>) -> Self {
        Self {
            error: ProviderError::unavailable(what),
            provider_is_down: true,
        }
    }

    /// A failure that says nothing about other requests.
    fn request_only(error: ProviderError) -> Self {
        Self {
            error,
            provider_is_down: false,
        }
    }

    /// The pause that the server asked for.
    fn retry_after(&self) -> Option<Duration> {
        match self.error {
            ProviderError::Unavailable { retry_after, .. } => retry_after,
            ProviderError::Refused(_) | ProviderError::Malformed(_) => None,
        }
    }

    /// Whether another attempt may succeed soon enough.
    fn is_retryable(&self) -> bool {
        let is_soon = |retry_after| retry_after <= retry::MAX_PAUSE;
        self.error.is_retryable() && self.retry_after().is_none_or(is_soon)
    }
}

impl Client {
    /// A client for one provider. It does not connect yet.
    ///
    /// # Errors
    /// A sentence, when the address or the key cannot be used.
    pub fn new(access: &Access, key_header: KeyHeader) -> Result<Self, String> {
        let url = access.url.trim().trim_end_matches('/').to_owned();
        if !is_address(&url) {
            return Err(format!(
                "`{}` is not an address; write it as http://host:port or https://host",
                shown_url(&url)
            ));
        }
        let json = HeaderValue::from_static("application/json");
        let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, json)]);
        if let Some(key) = &access.key {
            let key = key.reveal();
            let (name, text) = match key_header {
                KeyHeader::Bearer => (header::AUTHORIZATION, format!("Bearer {key}")),
                KeyHeader::Named(name) => (HeaderName::from_static(name), key.to_owned()),
            };
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                "the key contains characters that are not allowed in a header".to_owned()
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let http = context_http::builder().timeout(access.timeout).build();
        Ok(Self {
            http: http.map_err(|error| error.to_string())?,
            url,
            headers,
            key: access.key.clone(),
            timeout: access.timeout,
            slots: Semaphore::new(CONCURRENT),
            breaker: Breaker::new(access.timeout),
        })
    }

    /// Sends this header with every request.
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// Sends JSON and returns the JSON of the response. Temporary failures are retried. Fails at once while the
    /// provider is down.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        max_response_bytes: usize,
    ) -> Result<Value, ProviderError> {
        let responses = self
            .post_all(path, std::slice::from_ref(body), max_response_bytes)
            .await?;
        responses
            .into_iter()
            .next()
            .ok_or_else(|| ProviderError::Malformed("it is missing".to_owned()))
    }

    /// As [`Client::post`], but sends several requests of one call concurrently.
    pub async fn post_all(
        &self,
        path: &str,
        bodies: &[Value],
        max_response_bytes: usize,
    ) -> Result<Vec<Value>, ProviderError> {
        let url = Url::parse(&format!("{}{path}", self.url))
            .map_err(|_| ProviderError::Refused("its address is malformed".to_owned()))?;
        // The breaker is checked after the call gets its first slot, because the provider's state may change while it
        // waits.
        let mut first = Some(self.slot().await?);
        let call = self.breaker.enter()?;
        let requests = bodies
            .iter()
            .map(|body| self.request(first.take(), &url, body, max_response_bytes));
        match try_join_all(requests).await {
            Ok(responses) => {
                call.responded();
                Ok(responses)
            }
            Err(Failed {
                error,
                provider_is_down,
            }) => {
                match &error {
                    ProviderError::Unavailable { what, retry_after } if provider_is_down => {
                        call.failed(what, *retry_after)
                    }
                    _ => call.responded(),
                }
                Err(error)
            }
        }
    }

    async fn slot(&self) -> Result<SemaphorePermit<'_>, ProviderError> {
        self.slots
            .acquire()
            .await
            .map_err(|_| ProviderError::unavailable("its client was shut down"))
    }

    async fn request(
        &self,
        slot: Option<SemaphorePermit<'_>>,
        url: &Url,
        body: &Value,
        max_response_bytes: usize,
    ) -> Result<Value, Failed> {
        let _slot = match slot {
            Some(slot) => slot,
            None => self.slot().await.map_err(Failed::request_only)?,
        };
        let body = Bytes::from(body.to_string());
        let attempt = || self.attempt(url, &body, max_response_bytes);
        let response = attempt
            .retry(retry::PAUSES)
            .when(Failed::is_retryable)
            .adjust(|failed, pause| pause.map(|pause| failed.retry_after().unwrap_or(pause)))
            .await?;
        serde_json::from_slice(&response).map_err(|_| {
            Failed::request_only(ProviderError::Malformed("it is not JSON".to_owned()))
        })
    }

    async fn attempt(
        &self,
        url: &Url,
        body: &Bytes,
        max_response_bytes: usize,
    ) -> Result<Vec<u8>, Failed> {
        let request = self
            .http
            .post(url.clone())
            .headers(self.headers.clone())
            .body(body.clone());
        let failed = |error: reqwest::Error, otherwise: &str| {
            if error.is_connect() {
                Failed::provider_down(no_connection(&error))
            } else if error.is_timeout() {
                let limit = self.timeout.as_secs_f64();
                Failed::provider_down(format!("no response within {limit} s"))
            } else {
                Failed::provider_down(otherwise)
            }
        };
        let response = request
            .send()
            .await
            .map_err(|error| failed(error, "the connection broke"))?;
        let status = response.status();
        let retry_after = retry::retry_after(response.headers());
        let body = context_http::body(response, max_response_bytes)
            .await
            .map_err(|error| failed(error, "the response ended early"))?;
        let Some(body) = body else {
            return Err(Failed::request_only(ProviderError::Malformed(format!(
                "it is longer than {max_response_bytes} bytes"
            ))));
        };
        if status.is_success() {
            return Ok(body);
        }
        let what = describe(status, &body, self.key.as_ref());
        // The quota is permanently used up, even if the status suggests a retry.
        let is_final = what.contains("insufficient_quota");
        if !retry::is_retryable(status) || is_final {
            return Err(Failed::request_only(ProviderError::Refused(what)));
        }
        Err(Failed {
            error: ProviderError::Unavailable { what, retry_after },
            provider_is_down: status != StatusCode::INTERNAL_SERVER_ERROR,
        })
    }
}

/// Describes an error response by its status and the start of its message. Most providers put the message into one of
/// these fields. The last two are those of FastAPI, whose other fields repeat the request. If the message repeats the
/// key, `***` replaces it.
fn describe(status: StatusCode, body: &[u8], key: Option<&Secret>) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let pointers = [
        "/error/message",
        "/error/code",
        "/error/param",
        "/error",
        "/detail",
        "/message",
        "/detail/0/loc/1",
        "/detail/0/msg",
    ];
    let message = pointers
        .iter()
        .filter_map(|pointer| json.pointer(pointer)?.as_str())
        .collect::<Vec<_>>()
        .join("; ");
    let mut message: String = message.chars().filter(|c| !c.is_control()).collect();
    let key = key.map_or("", Secret::reveal).trim();
    if key.len() >= MIN_SECRET_BYTES {
        message = message.replace(key, "***");
    }
    let message: String = message.chars().take(200).collect();
    if message.is_empty() {
        format!("status {status}")
    } else {
        format!("status {status}: {message}")
    }
}
