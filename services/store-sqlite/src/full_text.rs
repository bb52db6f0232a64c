//! Keeps the full-text index in step with the entries.

use context_model::{ContentType, Source};
use context_text::Language;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::fts::{self, Document};
use crate::indexable::Indexable;

/// A change of the full-text index that waits for the end of the transaction.
#[derive(Debug)]
pub(crate) enum FullTextChange {
    Insert { owner: i64, row_id: i64, text: Indexable, thread_id: String, source: Source, content_type: ContentType, tags: Vec<String> },
    Delete { owner: i64, row_id: i64 },
}

/// The owners' full-text tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FullText {
    pub language: Language,
}

impl FullText {
    /// Makes the table of an owner that has none.
    pub fn create(self, conn: &mut SqliteConnection, owner: i64) -> QueryResult<()> {
        fts::create_table(conn, owner, self.language)
    }
}

impl FullTextChange {
    /// Whose entry it is about.
    pub const fn owner(&self) -> i64 {
        self.row().0
    }

    /// What the change is about.
    const fn row(&self) -> (i64, i64) {
        match self {
            Self::Insert { owner, row_id, .. } | Self::Delete { owner, row_id } => (*owner, *row_id),
        }
    }

    fn apply(self, conn: &mut SqliteConnection) -> QueryResult<()> {
        match self {
            Self::Delete { owner, row_id } => fts::delete(conn, owner, row_id),
            Self::Insert { owner, row_id, text, thread_id, source, content_type, tags } => {
                let document = Document { row_id, text: &text, thread_id: &thread_id, source, content_type, tags: &tags };
                fts::insert(conn, owner, &document)
            }
        }
    }
}

/// Makes the waiting changes; those of one row in order.
pub(crate) fn apply(conn: &mut SqliteConnection, changes: &mut Vec<FullTextChange>) -> QueryResult<()> {
    // FTS5 writes its pending words to disk whenever a row id is lower than the one before (`sqlite3Fts5IndexBeginWrite`).
    changes.sort_by_key(FullTextChange::row);
    changes.drain(..).try_for_each(|change| change.apply(conn))
}
