use std::time::Duration;

/// Why a provider call failed. A message quotes the start of the provider's own error message, which may repeat a part
/// of a text that was sent. It contains the key only if the key has fewer than 8 bytes and the provider repeats it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The provider cannot be reached, is overloaded or did not respond in time. A later call may succeed.
    #[error("the provider does not respond: {what}")]
    Unavailable {
        /// What happened.
        what: String,
        /// How long to wait before a retry: what the provider asks for, or what is left of the pause after failures.
        /// `None` if neither is known.
        retry_after: Option<Duration>,
    },
    /// The provider rejects the request because of a wrong key, an unknown model or an unacceptable text. A retry does
    /// not help.
    #[error("the provider rejected the request: {0}")]
    Refused(String),
    /// The response cannot be used: for example, it is not JSON, or it has a wrong number or length of vectors. Also an
    /// internal failure of a model inside the service.
    #[error("the provider's response is not usable: {0}")]
    Malformed(String),
}

impl ProviderError {
    /// A temporary error.
    #[must_use]
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self::Unavailable {
            what: what.into(),
            retry_after: None,
        }
    }

    /// The error as a sentence about this provider, for example "the embedding provider at http://host".
    #[must_use]
    pub fn sentence(&self, provider: &str) -> String {
        match self {
            Self::Unavailable { what, .. } => format!("{provider} does not respond: {what}"),
            Self::Refused(what) => format!("{provider} rejected the request: {what}"),
            Self::Malformed(what) => format!("the response of {provider} is not usable: {what}"),
        }
    }

    /// Whether a later call with the same request may succeed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// What failed when a request could not connect. Over https it may also be TLS, which reqwest does not distinguish.
pub(crate) fn no_connection(error: &reqwest::Error) -> &'static str {
    if error.url().is_some_and(|url| url.scheme() == "https") {
        "connection refused, host unreachable or TLS failed (for example, the certificate is not trusted)"
    } else {
        "connection refused or host unreachable"
    }
}
