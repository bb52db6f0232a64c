//! Keeps the full-text index consistent with the entries.

use context_model::{ContentType, Source};
use context_text::Language;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::collection::Collection;
use crate::context_window::{ContextWindows, EntryPosition};
use crate::entries;
use crate::fts::{self, Document};
use crate::indexable::Indexable;

/// A pending change of the full-text index, applied at the end of the transaction.
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
    /// The document of an artifact.
    InsertArtifact {
        owner: i64,
        row_id: i64,
        text: Indexable,
    },
    /// Deletes the document of an entry or of an artifact.
    Delete { owner: i64, row_id: i64 },
    /// The preceding entries of this entry changed. The entry itself may have been deleted since.
    Reindex { owner: i64, row_id: i64 },
}

/// The owners' full-text tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FullText {
    pub language: Language,
}

impl FullText {
    /// Creates the table of a collection, unless it exists.
    pub fn create(self, conn: &mut SqliteConnection, collection: Collection) -> QueryResult<()> {
        fts::create_table(conn, collection, self.language)
    }
}

impl FullTextChange {
    /// The owner of the changed entry.
    pub const fn owner(&self) -> i64 {
        self.row().0
    }

    /// The owner and the row id of the changed document.
    const fn row(&self) -> (i64, i64) {
        match self {
            Self::Insert { owner, row_id, .. }
            | Self::InsertArtifact { owner, row_id, .. }
            | Self::Delete { owner, row_id }
            | Self::Reindex { owner, row_id } => (*owner, *row_id),
        }
    }

    fn apply(
        self,
        conn: &mut SqliteConnection,
        context_windows: &ContextWindows,
    ) -> QueryResult<()> {
        match self {
            Self::Delete { owner, row_id } => {
                fts::delete(conn, Collection::of_row(owner, row_id), row_id)
            }
            Self::InsertArtifact {
                owner,
                row_id,
                text,
            } => fts::insert_artifact(conn, owner, row_id, &text),
            Self::Reindex { owner, row_id } => reindex(conn, owner, row_id, context_windows),
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

/// Indexes an entry again in its current state.
fn reindex(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
    context_windows: &ContextWindows,
) -> QueryResult<()> {
    let Some(row) = entries::find(conn, row_id)? else {
        return Ok(());
    };
    let source = entries::source_or_user(&row.source);
    let position = EntryPosition {
        owner,
        thread_id: &row.thread_id,
        created_at: row.created_at,
        row_id,
    };
    let context = context_windows.of_old(conn, &position, source)?;
    let tags = entries::tags_of(conn, owner, row_id, &row.tags)?;
    let document = Document {
        row_id,
        text: &Indexable::plain(&row.text),
        context: &context,
        thread_id: &row.thread_id,
        source,
        content_type: ContentType::of(usize::from(row.image_count > 0)),
        tags: &tags,
    };
    fts::delete(conn, Collection::entries(owner), row_id)?;
    fts::insert(conn, owner, &document)
}

/// Applies the pending changes. Changes of the same row are applied in order.
pub(crate) fn apply(
    conn: &mut SqliteConnection,
    changes: &mut Vec<FullTextChange>,
    context_windows: &ContextWindows,
) -> QueryResult<()> {
    // FTS5 flushes its pending words to disk whenever a row id is lower than the previous one
    // (`sqlite3Fts5IndexBeginWrite`).
    changes.sort_by_key(FullTextChange::row);
    changes
        .drain(..)
        .try_for_each(|change| change.apply(conn, context_windows))
}
