//! Signing in with a browser: the authorization code flow (RFC 6749, section 4.1) with PKCE (RFC 7636).

use std::sync::Arc;
use std::time::{Duration, Instant};

use context_model::Secret;
use reqwest::Url;
use serde::Deserialize;

use crate::http::FetchError;
use crate::issuer::{Issuer, Now, TokenError};
use crate::settings::checked;

/// Endpoints older than this are read again from the discovery document.
const ENDPOINTS_MAX_AGE: Duration = Duration::from_secs(300);
/// Longest code or verifier. RFC 7636 allows verifiers of 128 characters; codes have no limit.
const MAX_CODE_BYTES: usize = 4096;
/// Retry delay for callers after the issuer did not respond.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// As which client the issuer knows this service.
#[derive(Debug, Clone)]
pub struct Client {
    /// The client's id.
    pub id: String,
    /// The client's secret; `None` for a public client.
    pub secret: Option<Secret>,
    /// The address of the page, to which the issuer sends the browser back.
    pub redirect_url: String,
    /// The scopes to ask for, separated by spaces.
    pub scopes: String,
}

/// Why signing in failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// No client is configured.
    #[error("signing in with the issuer is off")]
    Off,
    /// The issuer does not accept the code, or gave no token that this service accepts. The reason is for the log.
    #[error("{0}")]
    Refused(String),
    /// The issuer cannot be asked.
    #[error("the issuer of tokens cannot be reached")]
    Unavailable {
        /// When to retry.
        retry_after: Duration,
    },
}

/// Where the issuer signs people in, from its discovery document.
#[derive(Debug, Clone, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    /// Absent means `client_secret_basic` (Discovery 1.0, section 3).
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// What the issuer said last, and when it was asked.
#[derive(Debug)]
pub(crate) struct Known {
    outcome: Result<Arc<Endpoints>, SignInError>,
    at: Instant,
}

#[derive(Deserialize)]
struct Tokens {
    access_token: Option<String>,
    id_token: Option<String>,
}

fn unavailable(error: &FetchError) -> SignInError {
    tracing::error!(%error, "Could not sign in with the issuer");
    SignInError::Unavailable {
        retry_after: RETRY_AFTER,
    }
}

impl Issuer {
    /// The address at which the issuer signs a person in, without `state` and `code_challenge`, which the page adds.
    ///
    /// # Errors
    /// [`SignInError`].
    pub async fn authorization_url(&self, now: Instant) -> Result<String, SignInError> {
        let client = self.client()?;
        let endpoints = self.endpoints(now).await?;
        let mut url = checked(
            &endpoints.authorization_endpoint,
            self.settings().is_local(),
        )
        .map_err(|sentence| unavailable(&FetchError::Malformed(sentence)))?;
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &client.redirect_url),
            ("scope", &client.scopes),
        ]);
        Ok(url.into())
    }

    /// Exchanges a code for a token that this service accepts: the access token or, if that is not one, the ID token.
    ///
    /// # Errors
    /// [`SignInError`].
    pub async fn exchange(
        self: &Arc<Self>,
        code: &str,
        verifier: &str,
        now: Now,
    ) -> Result<String, SignInError> {
        let client = self.client()?;
        if code.len() > MAX_CODE_BYTES || verifier.len() > MAX_CODE_BYTES {
            return Err(SignInError::Refused("the code is too long".to_owned()));
        }
        let endpoints = self.endpoints(now.instant).await?;
        let url = checked(&endpoints.token_endpoint, self.settings().is_local())
            .map_err(|sentence| unavailable(&FetchError::Malformed(sentence)))?;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &client.redirect_url),
            ("client_id", &client.id),
            ("code_verifier", verifier),
        ];
        let mut basic = None;
        if let Some(secret) = &client.secret {
            let methods = endpoints.token_endpoint_auth_methods_supported.as_deref();
            let is_in_body = methods.is_some_and(|methods| {
                let takes = |wanted: &str| methods.iter().any(|method| method == wanted);
                takes("client_secret_post") && !takes("client_secret_basic")
            });
            if is_in_body {
                form.push(("client_secret", secret.reveal()));
            } else {
                // Both parts are form-encoded first (RFC 6749, section 2.3.1).
                basic = Some((encoded(&client.id), encoded(secret.reveal())));
            }
        }
        let reply = self.http().post(url, form_text(&form), basic).await;
        let reply = reply.map_err(|error| match error {
            FetchError::Refused(status) => {
                SignInError::Refused(format!("the issuer answered the code with status {status}"))
            }
            error => unavailable(&error),
        })?;
        let Tokens {
            access_token,
            id_token,
        } = serde_json::from_slice(&reply)
            .map_err(|_| SignInError::Refused("the issuer's tokens cannot be read".to_owned()))?;
        let mut reason = "the issuer gave no token".to_owned();
        for token in [access_token, id_token].into_iter().flatten() {
            match self.verify(&token, now).await {
                Ok(_) => return Ok(token),
                Err(TokenError::Invalid(why)) => {
                    reason = format!("the issuer's token is not accepted: {why}");
                }
                Err(TokenError::Unavailable { retry_after }) => {
                    return Err(SignInError::Unavailable { retry_after });
                }
            }
        }
        Err(SignInError::Refused(reason))
    }

    fn client(&self) -> Result<&Client, SignInError> {
        self.settings().client.as_ref().ok_or(SignInError::Off)
    }

    async fn endpoints(&self, now: Instant) -> Result<Arc<Endpoints>, SignInError> {
        // One caller asks the issuer. The others wait for what it learns, also that the issuer does not respond.
        let mut known = self.known().lock().await;
        if let Some(Known { outcome, at }) = &*known {
            let max_age = match outcome {
                Ok(_) => ENDPOINTS_MAX_AGE,
                Err(_) => RETRY_AFTER,
            };
            if now.saturating_duration_since(*at) < max_age {
                return outcome.clone();
            }
        }
        let outcome = self.discovered().await.map_err(|error| unavailable(&error));
        *known = Some(Known {
            outcome: outcome.clone(),
            at: now,
        });
        outcome
    }

    async fn discovered(&self) -> Result<Arc<Endpoints>, FetchError> {
        let malformed = |sentence: &str| FetchError::Malformed(sentence.to_owned());
        let settings = self.settings();
        let url = checked(&settings.discovery_url(), settings.is_local())
            .map_err(FetchError::Malformed)?;
        let document = self.http().get(url).await?;
        let endpoints: Endpoints = serde_json::from_slice(&document)
            .map_err(|_| malformed("its discovery document names no endpoints to sign in"))?;
        if endpoints.issuer != settings.issuer {
            return Err(malformed("its discovery document names another issuer"));
        }
        Ok(Arc::new(endpoints))
    }
}

/// A text as a form has it.
fn encoded(text: &str) -> String {
    let pair = form_text(&[("", text)]);
    pair.trim_start_matches('=').to_owned()
}

/// A form as the body of a request.
fn form_text(pairs: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("http://localhost") else {
        return String::new();
    };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}
