//! How far a migration came.

use serde::{Deserialize, Serialize};

use super::row::Cell;

/// Kept in the target while it is being filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where the rows come from.
    pub from: String,
    /// A checksum of the source's owners and revisions: it tells a source that changed since.
    pub state: String,
    /// The last batch that was written.
    pub at: Option<Position>,
}

/// A place in the order in which rows are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The owner.
    pub owner: String,
    /// The table; `None` when all of the owner's rows are there.
    pub table: Option<String>,
    /// The key of the last row.
    pub after: Vec<Cell>,
}

impl Mark {
    /// As it is kept.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Reads what was kept; `None` when another program wrote it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
