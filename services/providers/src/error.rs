use std::time::Duration;

/// Why a provider gave no answer. No message holds a key or a text that was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// It cannot be reached, is overloaded or did not answer in time; a later call may succeed.
    #[error("the provider does not answer: {what}")]
    Unavailable {
        /// What happened.
        what: String,
        /// When to ask again, if it said.
        retry_after: Option<Duration>,
    },
    /// It refuses what it was asked: a wrong key, an unknown model, a text it does not take. Asking again does not
    /// help.
    #[error("the provider refuses the request: {0}")]
    Refused(String),
    /// Its answer is not what was asked for: another number of vectors, another length, values that are not finite.
    #[error("the provider's answer is not usable: {0}")]
    Malformed(String),
}

impl ProviderError {
    /// An error that may pass.
    #[must_use]
    pub fn unavailable(what: impl Into<String>) -> Self {
        Self::Unavailable {
            what: what.into(),
            retry_after: None,
        }
    }

    /// Whether a later call with the same request may succeed.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}
