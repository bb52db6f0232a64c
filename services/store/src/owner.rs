//! Owners.

use std::sync::Arc;

/// The owner (tenant) of entries: `default` when authentication is off. Not empty, without U+0000.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// The owner of everything stored without authentication.
    pub const DEFAULT: &'static str = "default";

    /// An owner by name.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for OwnerId {
    fn default() -> Self {
        Self::new(Self::DEFAULT)
    }
}
