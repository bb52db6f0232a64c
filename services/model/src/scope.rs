use serde::{Deserialize, Serialize};

/// A permission of a caller.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Fetch, search, list, count.
    Read,
    /// Store, update, restore.
    Write,
    /// Delete.
    Delete,
    /// Create, list, change and deactivate the owner's API keys.
    Manage,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Delete, Self::Manage];

    /// The name in requests, replies and tokens.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::Manage => "manage",
        }
    }

    /// The scope with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == name)
    }
}
