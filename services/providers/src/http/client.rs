//! One provider's API: where it is, who we are to it, and how patient we are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use context_model::shown_url;
use futures::future::try_join_all;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::breaker::Breaker;
use super::retry;
use crate::ProviderError;

/// Requests to one provider at a time.
pub(super) const CONCURRENT: usize = 4;
/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A key that must not be shown: prints as `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A key.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Where a provider is and how it is reached.
#[derive(Clone)]
pub struct Access {
    /// The address that paths are appended to, `http://` or `https://`.
    pub url: String,
    /// The key, when it wants one.
    pub key: Option<Secret>,
    /// How long one attempt may take, from the connection to the last byte of the answer.
    pub patience: Duration,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { url, key, patience } = self;
        f.debug_struct("Access")
            .field("url", &shown_url(url))
            .field("key", key)
            .field("patience", patience)
            .finish()
    }
}

/// How a key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyHeader {
    Bearer,
    Named(&'static str),
}

pub(super) struct Client {
    http: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    url: String,
    key: Option<(HeaderName, HeaderValue)>,
    /// A header of every request.
    header: Option<(HeaderName, HeaderValue)>,
    patience: Duration,
    places: Semaphore,
    breaker: Breaker,
}

/// What came of one attempt.
enum Attempt {
    Done(Bytes),
    /// Another one may do better.
    Again(Trouble),
    Over(ProviderError),
}

/// Why there was no answer that can be used.
struct Trouble {
    what: String,
    /// The pause that the server asked for.
    asked: Option<Duration>,
    /// Whether that is about the server and not about what it was asked: some fail with status 500 for certain texts.
    is_away: bool,
}

impl Trouble {
    fn away(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            asked: None,
            is_away: true,
        }
    }
}

/// Why a request failed, and whether any other one would.
struct Failed {
    error: ProviderError,
    is_away: bool,
}

impl Client {
    /// # Errors
    /// A sentence: an address or a key that cannot be used.
    pub fn new(access: &Access, key_header: KeyHeader) -> Result<Self, String> {
        let url = access.url.trim().trim_end_matches('/').to_owned();
        let parsed: Uri = url
            .parse()
            .map_err(|_| format!("`{}` is not an address", shown_url(&url)))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https"))
            || parsed.host().is_none()
            || parsed.query().is_some()
        {
            return Err(format!(
                "`{}` is not an address; write it as http://host:port or https://host",
                shown_url(&url)
            ));
        }
        let key = match &access.key {
            None => None,
            Some(Secret(key)) => {
                let (name, text) = match key_header {
                    KeyHeader::Bearer => (header::AUTHORIZATION, format!("Bearer {key}")),
                    KeyHeader::Named(name) => (HeaderName::from_static(name), key.clone()),
                };
                let mut value = HeaderValue::from_str(&text)
                    .map_err(|_| "the key has characters that no key has".to_owned())?;
                value.set_sensitive(true);
                Some((name, value))
            }
        };
        let connector = connector()?;
        // Redirects are not followed: a key must not reach another host.
        let http = HyperClient::builder(TokioExecutor::new()).build(connector);
        Ok(Self {
            http,
            url,
            key,
            header: None,
            patience: access.patience,
            places: Semaphore::new(CONCURRENT),
            breaker: Breaker::new(access.patience),
        })
    }

    /// Sends this header with every request.
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.header = Some((
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        ));
        self
    }

    /// Sends JSON and gives the JSON of the answer, after some attempts where that helps. Fails at once while the provider is
    /// away.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        max_answer: usize,
    ) -> Result<Value, ProviderError> {
        let answers = self
            .post_all(path, std::slice::from_ref(body), max_answer)
            .await?;
        answers
            .into_iter()
            .next()
            .ok_or_else(|| ProviderError::Malformed("there is none".to_owned()))
    }

    /// As [`Client::post`], with several requests of one call, together.
    pub async fn post_all(
        &self,
        path: &str,
        bodies: &[Value],
        max_answer: usize,
    ) -> Result<Vec<Value>, ProviderError> {
        let uri: Uri = format!("{}{path}", self.url)
            .parse()
            .map_err(|_| ProviderError::Refused("its address is malformed".to_owned()))?;
        // Only then: what is known of the provider may change while the call waits for its first place.
        let mut first = Some(self.place().await?);
        let call = self.breaker.enter()?;
        let requests = bodies
            .iter()
            .map(|body| self.request(first.take(), &uri, body, max_answer));
        match try_join_all(requests).await {
            Ok(answers) => {
                call.answered();
                Ok(answers)
            }
            Err(Failed { error, is_away }) => {
                match &error {
                    ProviderError::Unavailable { what, retry_after } if is_away => {
                        call.failed(what, *retry_after)
                    }
                    _ => call.answered(),
                }
                Err(error)
            }
        }
    }

    async fn place(&self) -> Result<SemaphorePermit<'_>, ProviderError> {
        self.places
            .acquire()
            .await
            .map_err(|_| ProviderError::unavailable("it is not used any more"))
    }

    async fn request(
        &self,
        place: Option<SemaphorePermit<'_>>,
        uri: &Uri,
        body: &Value,
        max_answer: usize,
    ) -> Result<Value, Failed> {
        let over = |error| Failed {
            error,
            is_away: false,
        };
        let _place = match place {
            Some(place) => place,
            None => self.place().await.map_err(over)?,
        };
        let body = Bytes::from(body.to_string());
        let mut failed = 0;
        loop {
            let attempt = tokio::time::timeout(self.patience, self.attempt(uri, &body, max_answer));
            let late = |_| {
                Attempt::Again(Trouble::away(format!(
                    "no answer within {} s",
                    self.patience.as_secs_f64()
                )))
            };
            let Trouble {
                what,
                asked,
                is_away,
            } = match attempt.await.unwrap_or_else(late) {
                Attempt::Done(answer) => {
                    return serde_json::from_slice(&answer)
                        .map_err(|_| over(ProviderError::Malformed("it is not JSON".to_owned())));
                }
                Attempt::Over(error) => return Err(over(error)),
                Attempt::Again(trouble) => trouble,
            };
            failed += 1;
            if failed >= retry::ATTEMPTS || asked.is_some_and(|asked| asked > retry::LONGEST_PAUSE)
            {
                return Err(Failed {
                    error: ProviderError::Unavailable {
                        what,
                        retry_after: asked,
                    },
                    is_away,
                });
            }
            tokio::time::sleep(asked.unwrap_or_else(|| retry::pause(failed))).await;
        }
    }

    async fn attempt(&self, uri: &Uri, body: &Bytes, max_answer: usize) -> Attempt {
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        request.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        for (name, value) in self.key.iter().chain(&self.header) {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(error) if error.is_connect() => {
                return Attempt::Again(Trouble::away("it cannot be connected to"));
            }
            Err(_) => return Attempt::Again(Trouble::away("the connection broke")),
        };
        let (parts, body) = response.into_parts();
        let body = match Limited::new(body, max_answer).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Attempt::Over(ProviderError::Malformed(format!(
                    "it is longer than {max_answer} bytes"
                )));
            }
            Err(_) => return Attempt::Again(Trouble::away("the answer broke off")),
        };
        let status = parts.status;
        if status.is_success() {
            return Attempt::Done(body);
        }
        let what = describe(status, &body);
        // Used up for good, whatever the status says.
        let is_final = what.contains("insufficient_quota");
        if retry::may_pass(status) && !is_final {
            let is_away = status != StatusCode::INTERNAL_SERVER_ERROR;
            Attempt::Again(Trouble {
                what,
                asked: retry::retry_after(&parts.headers),
                is_away,
            })
        } else {
            Attempt::Over(ProviderError::Refused(what))
        }
    }
}

/// Connections over http and https, with the certificates that this system trusts.
///
/// # Errors
/// A sentence.
pub(crate) fn connector() -> Result<HttpsConnector<HttpConnector>, String> {
    let mut roots = rustls::RootCertStore::empty();
    // Without any, https fails with a clear error and http works.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .map_err(|error| error.to_string())?
    .with_root_certificates(roots)
    .with_no_client_auth();
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(CONNECT_PATIENCE));
    connector.set_nodelay(true);
    Ok(hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector))
}

/// What an error answer says: its status, and the start of the message that most providers put into one of these places. The
/// last two are those of FastAPI, which repeats the request elsewhere in its answer.
fn describe(status: StatusCode, body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let places = [
        "/error/message",
        "/error/code",
        "/error/param",
        "/error",
        "/detail",
        "/message",
        "/detail/0/loc/1",
        "/detail/0/msg",
    ];
    let said = places
        .iter()
        .filter_map(|place| json.pointer(place)?.as_str())
        .collect::<Vec<_>>()
        .join("; ");
    let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
    if said.is_empty() {
        format!("status {status}")
    } else {
        format!("status {status}: {said}")
    }
}
