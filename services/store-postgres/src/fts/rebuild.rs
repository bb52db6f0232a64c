//! Rebuilds the full-text index when the tokens of a text have changed.

use context_store::ContextWindow;
use diesel::prelude::*;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection as _};

use super::{Document, Language, words};
use crate::columns::LossyText;
use crate::context_window;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::{self, Kind};
use crate::pg::sql::{self, Bind, Fragment};
use crate::schema::entries;
use crate::settings;

/// Key of the setting that stores how the index was built.
const SETTING: &str = "fts";

/// Must be increased whenever the tokens of the same text change.
const ANALYZER_VERSION: u32 = 2;

/// Maximum number of entries indexed in one transaction, all of one owner. Where Citus distributes owners over servers,
/// only rows of one owner can be locked together.
const BATCH: i64 = 500;

/// Maximum number of texts in memory at a time. A text may have several megabytes.
const TEXTS_AT_ONCE: usize = 20;

/// Describes how the words of a text are stored: the language and the version of the analyzer.
pub(crate) fn made_with(language: &Language) -> String {
    format!("{} {ANALYZER_VERSION}", language.name())
}

/// Rebuilds the index of every entry if it was built with another language, analyzer or context window. An interrupted
/// rebuild starts again from the beginning at the next start.
pub(crate) async fn rebuild(
    conn: &mut AsyncPgConnection,
    language: &Language,
    context_window: ContextWindow,
) -> QueryResult<()> {
    let wanted = format!("{} {}", made_with(language), context_window.note());
    if settings::read(conn, SETTING).await?.as_ref() == Some(&wanted) {
        return Ok(());
    }
    let entries = reindex(conn, language).await?;
    rebuild_contexts(conn, context_window).await?;
    settings::write(conn, SETTING, &wanted).await?;
    tracing::info!(
        language = language.name(),
        context_window = context_window.entries,
        entries,
        "Full-text index built"
    );
    Ok(())
}

/// Rebuilds every context. The words of all entries must be complete.
pub(crate) async fn rebuild_contexts(
    conn: &mut AsyncPgConnection,
    context_window: ContextWindow,
) -> QueryResult<()> {
    let mut cursor = Cursor::default();
    while let Some(ids) = cursor.lock_next(conn).await? {
        context_window::rebuild(conn, &cursor.owner_id, ids, context_window).await?;
        conn.batch_execute("COMMIT").await?;
    }
    Ok(())
}

/// Rebuilds the words of every entry. Returns the number of entries.
async fn reindex(conn: &mut AsyncPgConnection, language: &Language) -> QueryResult<u64> {
    // Raw SQL for the cast to tsvector.
    const SQL: &str = concat!(
        "UPDATE context.entries SET words = ",
        words!(),
        ", words_cut = ? WHERE owner_id = ? AND id = ?"
    );
    let (mut cursor, mut indexed) = (Cursor::default(), 0_u64);
    while let Some(ids) = cursor.lock_next(conn).await? {
        for ids in ids.chunks(TEXTS_AT_ONCE) {
            let texts = entries::table
                .filter(entries::owner_id.eq(&cursor.owner_id))
                .filter(entries::id.eq_any(ids))
                .select((entries::id, entries::text));
            let texts: Vec<(i64, LossyText)> = fixed!(texts).load(conn).await?;
            for (id, LossyText(text)) in texts {
                let document = Document::new(&text, language);
                let mut binds = document.binds().to_vec();
                binds.extend([
                    Bind::Bool(document.cut),
                    Bind::text(&cursor.owner_id),
                    Bind::Int(id),
                ]);
                sql::execute(conn, Fragment::prepared(SQL, binds)).await?;
            }
        }
        conn.batch_execute("COMMIT").await?;
        indexed += ids.len() as u64;
    }
    Ok(indexed)
}

/// The progress of the rebuild over all owners' entries.
#[derive(Default)]
struct Cursor {
    owner_id: String,
    id: i64,
}

impl Cursor {
    /// Begins a transaction and locks the next entries, all of one owner. Returns `None`, without a transaction, when
    /// there are no more.
    async fn lock_next(&mut self, conn: &mut AsyncPgConnection) -> QueryResult<Option<Vec<i64>>> {
        loop {
            conn.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                .await?;
            let locked: QueryResult<Vec<i64>> = entries::table
                .filter(entries::owner_id.eq(&self.owner_id))
                .filter(entries::id.gt(self.id))
                .order(entries::id)
                .limit(BATCH)
                .select(entries::id)
                .for_update()
                .load(conn)
                .await;
            let ids = match locked {
                // A write of another service locks entries in its own order, so the two may deadlock.
                Err(error) if failure::kind(&error) == Kind::Conflict => {
                    conn.batch_execute("ROLLBACK").await?;
                    continue;
                }
                locked => locked?,
            };
            if let Some(last) = ids.last() {
                self.id = *last;
                return Ok(Some(ids));
            }
            conn.batch_execute("COMMIT").await?;
            let Some(owner_id) = next_owner(conn, &self.owner_id).await? else {
                return Ok(None);
            };
            *self = Self { owner_id, id: 0 };
        }
    }
}

/// The next owner, by name, that has entries.
async fn next_owner(conn: &mut AsyncPgConnection, after: &str) -> QueryResult<Option<String>> {
    entries::table
        .filter(entries::owner_id.gt(after))
        .order(entries::owner_id)
        .limit(1)
        .select(entries::owner_id)
        .get_result(conn)
        .await
        .optional()
}
