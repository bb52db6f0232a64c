//! Keeps the full-text index in step with the entries.

use context_model::{ContentType, Source};
use context_text::Language;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::entries;
use crate::fts::{self, Document};
use crate::indexable::Indexable;
use crate::neighbours::{Neighbours, Place};

/// A change of the full-text index that waits for the end of the transaction.
#[derive(Debug)]
pub(crate) enum FullTextChange {
    Insert {
        owner: i64,
        row_id: i64,
        text: Indexable,
        context: String,
        thread_id: String,
        source: Source,
        content_type: ContentType,
        tags: Vec<String>,
    },
    Delete {
        owner: i64,
        row_id: i64,
    },
    /// The entry's neighbours changed. It may be gone by now.
    Renew {
        owner: i64,
        row_id: i64,
    },
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
            Self::Insert { owner, row_id, .. }
            | Self::Delete { owner, row_id }
            | Self::Renew { owner, row_id } => (*owner, *row_id),
        }
    }

    fn apply(self, conn: &mut SqliteConnection, neighbours: &Neighbours) -> QueryResult<()> {
        match self {
            Self::Delete { owner, row_id } => fts::delete(conn, owner, row_id),
            Self::Renew { owner, row_id } => renew(conn, owner, row_id, neighbours),
            Self::Insert {
                owner,
                row_id,
                text,
                context,
                thread_id,
                source,
                content_type,
                tags,
            } => {
                let document = Document {
                    row_id,
                    text: &text,
                    context: &context,
                    thread_id: &thread_id,
                    source,
                    content_type,
                    tags: &tags,
                };
                fts::insert(conn, owner, &document)
            }
        }
    }
}

/// Indexes an entry again, as it is now.
fn renew(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
    neighbours: &Neighbours,
) -> QueryResult<()> {
    let Some(row) = entries::find(conn, row_id)? else {
        return Ok(());
    };
    let place = Place {
        owner,
        thread_id: &row.thread_id,
        created_at: row.created_at,
        row_id,
    };
    let context = neighbours.of_old(conn, &place)?;
    let unreadable =
        |_| diesel::result::Error::DeserializationError("a stored entry cannot be read".into());
    let document = Document {
        row_id,
        text: &Indexable::plain(&row.text),
        context: &context,
        thread_id: &row.thread_id,
        source: entries::parse_source(&row.source).map_err(unreadable)?,
        content_type: ContentType::of(usize::from(row.image_count > 0)),
        tags: &entries::parse_tags(&row.tags).map_err(unreadable)?,
    };
    fts::delete(conn, owner, row_id)?;
    fts::insert(conn, owner, &document)
}

/// Makes the waiting changes; those of one row in order.
pub(crate) fn apply(
    conn: &mut SqliteConnection,
    changes: &mut Vec<FullTextChange>,
    neighbours: &Neighbours,
) -> QueryResult<()> {
    // FTS5 writes its pending words to disk whenever a row id is lower than the one before (`sqlite3Fts5IndexBeginWrite`).
    changes.sort_by_key(FullTextChange::row);
    changes
        .drain(..)
        .try_for_each(|change| change.apply(conn, neighbours))
}
