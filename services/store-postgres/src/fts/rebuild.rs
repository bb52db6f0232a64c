//! Indexing everything again when the tokens of a text have changed.

use context_store::Neighbourhood;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};
use diesel_async::SimpleAsyncConnection as _;

use super::{Document, Language};
use crate::neighbours;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Bind, Fragment};

/// Grows whenever the tokens of the same text change.
const ANALYZER_VERSION: u32 = 2;

/// Entries indexed in one transaction, all of one owner: where owners are spread over servers, only rows of one owner can
/// be locked together.
const BATCH: i64 = 500;

/// Indexes every entry again when the index was made with another language, analyzer or neighbourhood. Interrupted, it begins anew at
/// the next start.
pub(crate) async fn rebuild(
    conn: &mut AsyncPgConnection,
    language: &Language,
    neighbourhood: Neighbourhood,
) -> diesel::QueryResult<()> {
    #[derive(QueryableByName)]
    struct Setting {
        #[diesel(sql_type = Text)]
        value: String,
    }
    let wanted = format!(
        "{} {ANALYZER_VERSION} {}",
        language.name(),
        neighbourhood.note()
    );
    let read = Fragment::prepared(
        "SELECT value FROM context.settings WHERE key = 'fts'",
        Vec::new(),
    );
    let found: Option<String> = sql::query::<Setting>(conn, read)
        .await?
        .into_iter()
        .next()
        .map(|row| row.value);
    if found.as_deref() == Some(&wanted) {
        return Ok(());
    }
    let entries = reindex(conn, language).await?;
    renew_contexts(conn, neighbourhood).await?;
    let write = "INSERT INTO context.settings (key, value) VALUES ('fts', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    sql::execute(conn, Fragment::prepared(write, vec![Bind::text(wanted)])).await?;
    tracing::info!(
        language = language.name(),
        entries,
        "The full-text index is made for this language"
    );
    Ok(())
}

/// Makes every context anew, from words that are all made already.
pub(crate) async fn renew_contexts(
    conn: &mut AsyncPgConnection,
    neighbourhood: Neighbourhood,
) -> diesel::QueryResult<()> {
    let mut place = Place::default();
    while let Some(batch) = place.lock_next(conn, "''").await? {
        neighbours::renew(
            conn,
            &place.owner_id,
            batch.iter().map(|entry| entry.id).collect(),
            neighbourhood,
        )
        .await?;
        conn.batch_execute("COMMIT").await?;
    }
    Ok(())
}

/// Makes the words of every entry anew, and gives the number of entries.
async fn reindex(conn: &mut AsyncPgConnection, language: &Language) -> diesel::QueryResult<u64> {
    let (mut place, mut indexed) = (Place::default(), 0_u64);
    while let Some(batch) = place.lock_next(conn, "text").await? {
        for entry in &batch {
            let document = Document::new(&entry.text, language);
            let mut update = Fragment::new("UPDATE context.entries SET words = ");
            update
                .append(document.expression())
                .push(", words_cut = ")
                .bind(Bind::Bool(document.cut));
            update
                .push(" WHERE owner_id = ")
                .bind(Bind::text(&place.owner_id))
                .push(" AND id = ")
                .bind(Bind::Int(entry.id));
            sql::execute(conn, update).await?;
        }
        conn.batch_execute("COMMIT").await?;
        indexed += batch.len() as u64;
    }
    Ok(indexed)
}

#[derive(QueryableByName)]
struct Entry {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    text: String,
}

/// How far the entries of all owners are done.
#[derive(Default)]
struct Place {
    owner_id: String,
    id: i64,
}

impl Place {
    /// Begins a transaction and locks the next entries, all of one owner, with `text` in SQL as their text; `None` and no
    /// transaction when there are no more.
    async fn lock_next(
        &mut self,
        conn: &mut AsyncPgConnection,
        text: &'static str,
    ) -> diesel::QueryResult<Option<Vec<Entry>>> {
        loop {
            conn.batch_execute("BEGIN").await?;
            let mut next = Fragment::new("SELECT id, ");
            next.push(text)
                .push(" AS text FROM context.entries WHERE owner_id = ")
                .bind(Bind::text(&self.owner_id));
            next.push(" AND id > ")
                .bind(Bind::Int(self.id))
                .push(" ORDER BY id LIMIT ")
                .bind(Bind::Int(BATCH))
                .push(" FOR UPDATE");
            let batch: Vec<Entry> = sql::query(conn, next).await?;
            if let Some(last) = batch.last() {
                self.id = last.id;
                return Ok(Some(batch));
            }
            conn.batch_execute("COMMIT").await?;
            let Some(owner_id) = next_owner(conn, &self.owner_id).await? else {
                return Ok(None);
            };
            *self = Self { owner_id, id: 0 };
        }
    }
}

/// The owner after this one that has entries.
async fn next_owner(
    conn: &mut AsyncPgConnection,
    after: &str,
) -> diesel::QueryResult<Option<String>> {
    #[derive(QueryableByName)]
    struct Owner {
        #[diesel(sql_type = Text)]
        owner_id: String,
    }
    let next = "SELECT owner_id FROM context.entries WHERE owner_id > ? ORDER BY owner_id LIMIT 1";
    Ok(
        sql::query::<Owner>(conn, Fragment::prepared(next, vec![Bind::text(after)]))
            .await?
            .pop()
            .map(|row| row.owner_id),
    )
}
