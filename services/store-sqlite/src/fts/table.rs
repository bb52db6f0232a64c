//! Creating and filling the full-text tables.

use context_model::{ContentType, Source};
use context_store::ContextWindow;
use context_text::{Analyzer, Language};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};

use super::scope;
use crate::collection::Collection;
use crate::columns::LossyText;
use crate::context_window::{ContextWindows, EntryPosition};
use crate::entries::{source_or_user, tags_of};
use crate::indexable::Indexable;
use crate::owners::ID_BITS;
use crate::schema::{entries, meta, owners};
use crate::tokenizer::VERBATIM;

/// Must be incremented whenever the tokens of the same text change, so that older databases are reindexed.
const ANALYZER_VERSION: u32 = 2;

/// The key in `meta` for the parameters with which the tables were built.
const BUILT_WITH: &str = "fts";

/// Statements are cached only for owners whose number is at most this. diesel's cache is unbounded, and there may be
/// many owners.
const OWNERS_WITH_PREPARED_STATEMENTS: i64 = 64;

/// The indexed parts of an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Document<'e> {
    /// `entries.row_id`.
    pub row_id: i64,
    /// The text.
    pub text: &'e Indexable,
    /// The context keywords of the preceding entries, separated by spaces.
    pub context: &'e str,
    /// The thread.
    pub thread_id: &'e str,
    /// Who wrote it.
    pub source: Source,
    /// Whether it has images.
    pub content_type: ContentType,
    /// The tags.
    pub tags: &'e [String],
}

/// Creates a collection's table unless it exists.
///
/// # Errors
/// Database errors.
pub(crate) fn create_table(
    conn: &mut SqliteConnection,
    collection: Collection,
    language: Language,
) -> QueryResult<()> {
    let (table, language) = (collection.fts_table(), language.name());
    // Eight segments are merged at a time instead of four. That rewrites a third less as the index grows, for a few
    // more lookups in a search.
    conn.batch_execute(&format!(
        "CREATE VIRTUAL TABLE IF NOT EXISTS {table} USING fts5(text, ctx, scope, content='', contentless_delete=1, \
         tokenize='context {language}'); \
         INSERT INTO {table}({table}, rank) VALUES ('automerge', 8)"
    ))
}

/// Indexes an entry, which must not be in the index.
///
/// # Errors
/// Database errors.
pub(crate) fn insert(
    conn: &mut SqliteConnection,
    owner: i64,
    document: &Document<'_>,
) -> QueryResult<()> {
    let Document {
        row_id,
        text,
        context,
        thread_id,
        source,
        content_type,
        tags,
    } = document;
    let mut scope = String::with_capacity(32 + 18 * tags.len());
    scope.push(VERBATIM);
    scope.push_str(scope::source(*source));
    scope.push(' ');
    scope.push_str(scope::content_type(*content_type));
    scope.push(' ');
    scope.push_str(&scope::thread(thread_id));
    for tag in *tags {
        scope.push(' ');
        scope.push_str(&scope::tag(tag));
    }
    insert_row(
        conn,
        Collection::entries(owner),
        *row_id,
        text,
        context,
        &scope,
    )
}

/// Indexes the document of an artifact, which must not be in the index. Its scope is empty, because artifacts have no
/// thread, source, content type or tags.
///
/// # Errors
/// Database errors.
pub(crate) fn insert_artifact(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
    text: &Indexable,
) -> QueryResult<()> {
    let scope = VERBATIM.to_string();
    insert_row(conn, Collection::artifacts(owner), row_id, text, "", &scope)
}

fn insert_row(
    conn: &mut SqliteConnection,
    collection: Collection,
    row_id: i64,
    text: &Indexable,
    context: &str,
    scope: &str,
) -> QueryResult<()> {
    let mut ctx = String::with_capacity(context.len() + 4);
    // The marker makes all tokens share one position, and `-` is a token of every entry, so that the length of the
    // column is 1 for entries without context keywords too.
    ctx.push(VERBATIM);
    ctx.push_str("- ");
    ctx.push_str(context);
    Insert {
        collection,
        row_id,
        text: text.as_str(),
        ctx: &ctx,
        scope,
    }
    .execute(conn)
    .map(drop)
}

/// Removes an entry, or the document of an artifact, from the index.
///
/// # Errors
/// Database errors.
pub(crate) fn delete(
    conn: &mut SqliteConnection,
    collection: Collection,
    row_id: i64,
) -> QueryResult<()> {
    Delete { collection, row_id }.execute(conn).map(drop)
}

struct Insert<'e> {
    collection: Collection,
    row_id: i64,
    text: &'e str,
    ctx: &'e str,
    scope: &'e str,
}

struct Delete {
    collection: Collection,
    row_id: i64,
}

impl QueryFragment<Sqlite> for Insert<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        if self.collection.owner > OWNERS_WITH_PREPARED_STATEMENTS {
            out.unsafe_to_cache_prepared();
        }
        out.push_sql(&format!(
            "INSERT INTO {}(rowid, text, ctx, scope) VALUES (",
            self.collection.fts_table()
        ));
        out.push_bind_param::<BigInt, _>(&self.row_id)?;
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(self.text)?;
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(self.ctx)?;
        out.push_sql(", ");
        out.push_bind_param::<Text, _>(self.scope)?;
        out.push_sql(")");
        Ok(())
    }
}

impl QueryFragment<Sqlite> for Delete {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        if self.collection.owner > OWNERS_WITH_PREPARED_STATEMENTS {
            out.unsafe_to_cache_prepared();
        }
        out.push_sql(&format!(
            "DELETE FROM {} WHERE rowid = ",
            self.collection.fts_table()
        ));
        out.push_bind_param::<BigInt, _>(&self.row_id)
    }
}

// The SQL differs by owner, so the type does not identify the statement.
macro_rules! runs {
    ($($name:ty),*) => {$(
        impl QueryId for $name {
            type QueryId = ();
            const HAS_STATIC_QUERY_ID: bool = false;
        }

        impl RunQueryDsl<SqliteConnection> for $name {}
    )*};
}

runs!(Insert<'_>, Delete);

/// Makes the next [`rebuild`] index every entry.
///
/// # Errors
/// Database errors.
pub(crate) fn forget(conn: &mut SqliteConnection) -> QueryResult<()> {
    diesel::delete(meta::table.find(BUILT_WITH))
        .execute(conn)
        .map(drop)
}

/// The parameters that determine the indexed words of a text: the language and the version of the analyzer.
pub(crate) fn made_with(language: Language) -> String {
    format!("{} {ANALYZER_VERSION}", language.name())
}

/// Reindexes all entries when the tables were built for another language or context window or by another analyzer
/// version. Returns whether it did. Must be called with the writing connection, outside of a transaction, before the
/// first search.
///
/// Works in slices, each in its own transaction. The new parameters are stored at the end, so that an interrupted
/// rebuild is repeated.
///
/// # Errors
/// Database errors.
pub(crate) fn rebuild(
    conn: &mut SqliteConnection,
    language: Language,
    context_window: ContextWindow,
) -> QueryResult<bool> {
    let wanted = format!("{} {}", made_with(language), context_window.note());
    let mut context_windows = ContextWindows::new(context_window, Analyzer::new(language));
    let made_with: Option<String> = meta::table
        .find(BUILT_WITH)
        .select(meta::value)
        .first(conn)
        .optional()?;
    if made_with.as_deref() == Some(&*wanted) {
        return Ok(false);
    }
    conn.immediate_transaction(forget)?;
    for owner in owners::table
        .select(owners::owner)
        .order(owners::owner)
        .load::<i64>(conn)?
    {
        conn.immediate_transaction(|conn| {
            conn.batch_execute(&format!("DROP TABLE IF EXISTS fts_{owner}"))?;
            create_table(conn, Collection::entries(owner), language)
        })?;
        let mut last = owner << ID_BITS;
        while let Some(next) =
            conn.immediate_transaction(|conn| index_slice(conn, owner, last, &mut context_windows))?
        {
            last = next;
        }
    }
    conn.immediate_transaction(|conn| {
        diesel::replace_into(meta::table)
            .values((meta::key.eq(BUILT_WITH), meta::value.eq(&wanted)))
            .execute(conn)
    })?;
    Ok(true)
}

/// Indexes the entries after a row. Returns the last indexed row, or `None` when there are no more.
fn index_slice(
    conn: &mut SqliteConnection,
    owner: i64,
    after: i64,
    context_windows: &mut ContextWindows,
) -> QueryResult<Option<i64>> {
    const SLICE: usize = 1000;
    // Texts may be several megabytes long, so only this many are in memory at a time.
    const ROWS: i64 = 20;
    let mut last = after;
    let mut indexed = 0;
    while indexed < SLICE {
        let rows: Vec<(i64, LossyText, LossyText, i64, i64, LossyText, LossyText)> = entries::table
            .filter(
                entries::row_id
                    .gt(last)
                    .and(entries::row_id.lt((owner + 1) << ID_BITS)),
            )
            .order(entries::row_id)
            .limit(ROWS)
            .select((
                entries::row_id,
                entries::thread_id,
                entries::source,
                entries::image_count,
                entries::created_at,
                entries::tags,
                entries::text,
            ))
            .load(conn)?;
        let full = i64::try_from(rows.len()) == Ok(ROWS);
        for (row_id, thread_id, source, image_count, created_at, tags, text) in rows {
            // A damaged row must not keep the others from being indexed.
            let [thread_id, source, tags, text] = [thread_id, source, tags, text].map(String::from);
            let source = source_or_user(&source);
            let tags = tags_of(conn, owner, row_id, &tags)?;
            let content_type = ContentType::of(usize::from(image_count > 0));
            let position = EntryPosition {
                owner,
                thread_id: &thread_id,
                created_at,
                row_id,
            };
            let context = context_windows.of_next(conn, &position, source, &text)?;
            let text = Indexable::plain(&text);
            let document = Document {
                row_id,
                text: &text,
                context: &context,
                thread_id: &thread_id,
                source,
                content_type,
                tags: &tags,
            };
            insert(conn, owner, &document)?;
            last = row_id;
            indexed += 1;
        }
        if !full {
            return Ok(None);
        }
    }
    Ok(Some(last))
}
