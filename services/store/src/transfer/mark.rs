//! The position that a migration has reached.

use serde::{Deserialize, Serialize};

use super::row::Cell;

/// The position of a migration, stored in the target while it is being filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Where the rows come from.
    pub from: String,
    /// A checksum of the source's owners, revisions and next ids. It detects that entries or artifacts of the source
    /// changed. A predecessor's database has no revisions: there it detects only another number of entries or another
    /// highest id.
    pub state: String,
    /// The last batch that was written.
    pub at: Option<Position>,
}

/// A position in the order in which rows are written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The owner.
    pub owner: String,
    /// The table. `None` when all rows of the owner are written.
    pub table: Option<String>,
    /// The key of the last row.
    pub after: Vec<Cell>,
}

impl Mark {
    /// The stored form.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::json!(self).to_string()
    }

    /// Parses the stored form. `None` when another version of the program wrote it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
