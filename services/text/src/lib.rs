//! Skeleton: the types the store is written against.

/// A parsed query and what to use when nothing matches it strictly.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// What must match.
    pub query: Query,
    /// What to try when nothing matches `query`.
    pub fallback: Option<Query>,
}

/// What to find.
#[derive(Debug, Clone, PartialEq)]
pub enum Query {}
