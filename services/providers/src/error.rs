use std::time::Duration;

/// Why a provider call failed. No message contains a key or a text that was sent.
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
    /// The response does not fit the request: a wrong number or length of vectors, or values that are not finite.
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
