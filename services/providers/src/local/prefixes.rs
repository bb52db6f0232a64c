//! The prefixes that a model expects before texts.

use crate::Role;

/// The prefixes of queries and documents. Empty if the model expects none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefixes {
    /// Prefix of queries.
    pub query: String,
    /// Prefix of documents.
    pub document: String,
}

impl Prefixes {
    /// The prefix for a text of this role.
    #[must_use]
    pub fn of(&self, role: Role) -> &str {
        match role {
            Role::Query => &self.query,
            Role::Document | Role::LateDocument => &self.document,
        }
    }
}
