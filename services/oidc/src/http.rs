//! Fetching a small document from the issuer.

use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode, Url, header};

/// The longest document that is read.
const MAX_BYTES: usize = 256 * 1024;
/// Timeout for one document, from the connection to its last byte.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Why a document was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    /// The issuer did not respond, or responded with an error. A later fetch may succeed.
    #[error("{0}")]
    Unreachable(String),
    /// The issuer refused the request.
    #[error("it responded with status {0}")]
    Refused(u16),
    /// The response cannot be used.
    #[error("{0}")]
    Malformed(String),
}

pub(crate) struct Http(Client);

impl Http {
    /// A client that trusts the certificates that this system trusts. With `local` it also allows http.
    ///
    /// # Errors
    /// The client cannot be built. The error is a sentence.
    pub fn new(local: bool) -> Result<Self, String> {
        // No connection is reused, because minutes pass between two requests.
        context_http::builder()
            .https_only(!local)
            .pool_max_idle_per_host(0)
            .timeout(TIMEOUT)
            .build()
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// The bytes of a document.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn get(&self, url: Url) -> Result<Vec<u8>, FetchError> {
        fetched(self.0.get(url), false).await
    }

    /// The bytes of the response to a form. `user` is the name and the password of the sender.
    ///
    /// # Errors
    /// [`FetchError`]; `Refused` for the statuses with which a form is refused (RFC 6749, section 5.2).
    pub async fn post(
        &self,
        url: Url,
        form: String,
        user: Option<(String, String)>,
    ) -> Result<Vec<u8>, FetchError> {
        let request = self
            .0
            .post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        let request = match user {
            Some((name, password)) => request.basic_auth(name, Some(password)),
            None => request,
        };
        fetched(request, true).await
    }
}

/// The body of the response. A refused form is `Refused`, unlike an issuer that does not work.
async fn fetched(request: RequestBuilder, is_form: bool) -> Result<Vec<u8>, FetchError> {
    let failed = |error: reqwest::Error, otherwise: &str| {
        FetchError::Unreachable(if error.is_timeout() {
            format!("it did not respond within {} s", TIMEOUT.as_secs())
        } else {
            otherwise.to_owned()
        })
    };
    let response = request
        .header(header::ACCEPT, "application/json")
        .send()
        .await
        .map_err(|error| failed(error, "it cannot be reached"))?;
    let status = response.status().as_u16();
    if is_form && matches!(status, 400 | 401 | 403) {
        return Err(FetchError::Refused(status));
    }
    if response.status() != StatusCode::OK {
        return Err(FetchError::Unreachable(format!(
            "it responded with status {status}"
        )));
    }
    context_http::body(response, MAX_BYTES)
        .await
        .map_err(|error| failed(error, "its response ended early"))?
        .ok_or_else(|| FetchError::Malformed(format!("it is longer than {MAX_BYTES} bytes")))
}
