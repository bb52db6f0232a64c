//! Indexing everything again when the tokens of a text have changed.

use context_store::Neighbourhood;
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};
use diesel_async::SimpleAsyncConnection as _;

use super::{Document, Language};
use crate::connection::AsyncPgConnection;
use crate::neighbours;
use crate::sql::{self, Bind, Fragment};

/// Grows whenever the tokens of the same text change.
const ANALYZER_VERSION: u32 = 2;

/// Entries indexed in one transaction, all of one owner: where owners are spread over servers, only rows of one owner can
/// be locked together.
const BATCH: i64 = 500;

/// Indexes every entry again when the index was made with another language, analyzer or neighbourhood. Interrupted, it begins anew at
/// the next start.
pub(crate) async fn rebuild(conn: &mut AsyncPgConnection, language: &Language, neighbourhood: Neighbourhood) -> diesel::QueryResult<()> {
    #[derive(QueryableByName)]
    struct Setting {
        #[diesel(sql_type = Text)]
        value: String,
    }
    let wanted = format!("{} {ANALYZER_VERSION} {}", language.name(), neighbourhood.note());
    let read = Fragment::prepared("SELECT value FROM context.settings WHERE key = 'fts'", Vec::new());
    let found: Option<String> = sql::query::<Setting>(conn, read).await?.into_iter().next().map(|row| row.value);
    if found.as_deref() == Some(&wanted) {
        return Ok(());
    }
    let entries = reindex(conn, language).await?;
    renew_contexts(conn, neighbourhood).await?;
    let write = "INSERT INTO context.settings (key, value) VALUES ('fts', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    sql::execute(conn, Fragment::prepared(write, vec![Bind::text(wanted)])).await?;
    tracing::info!(language = language.name(), entries, "The full-text index is made for this language");
    Ok(())
}

/// Makes every context anew, from words that are all made already.
pub(crate) async fn renew_contexts(conn: &mut AsyncPgConnection, neighbourhood: Neighbourhood) -> diesel::QueryResult<()> {
    #[derive(QueryableByName)]
    struct Entry {
        #[diesel(sql_type = BigInt)]
        id: i64,
    }
    let mut owner = next_owner(conn, "").await?;
    while let Some(owner_id) = owner {
        let mut id = Some(0_i64);
        while let Some(after) = id {
            conn.batch_execute("BEGIN").await?;
            let next = "SELECT id FROM context.entries WHERE owner_id = ? AND id > ? ORDER BY id LIMIT ? FOR UPDATE";
            let binds = vec![Bind::text(&owner_id), Bind::Int(after), Bind::Int(BATCH)];
            let batch: Vec<Entry> = sql::query(conn, Fragment::prepared(next, binds)).await?;
            if !batch.is_empty() {
                neighbours::renew(conn, &owner_id, batch.iter().map(|entry| entry.id).collect(), neighbourhood).await?;
            }
            conn.batch_execute("COMMIT").await?;
            id = batch.last().map(|last| last.id);
        }
        owner = next_owner(conn, &owner_id).await?;
    }
    Ok(())
}

/// The owner after this one that has entries.
async fn next_owner(conn: &mut AsyncPgConnection, after: &str) -> diesel::QueryResult<Option<String>> {
    #[derive(QueryableByName)]
    struct Owner {
        #[diesel(sql_type = Text)]
        owner_id: String,
    }
    let next = "SELECT owner_id FROM context.entries WHERE owner_id > ? ORDER BY owner_id LIMIT 1";
    Ok(sql::query::<Owner>(conn, Fragment::prepared(next, vec![Bind::text(after)])).await?.pop().map(|row| row.owner_id))
}

async fn reindex(conn: &mut AsyncPgConnection, language: &Language) -> diesel::QueryResult<u64> {
    #[derive(QueryableByName)]
    struct Entry {
        #[diesel(sql_type = BigInt)]
        id: i64,
        #[diesel(sql_type = Text)]
        text: String,
    }
    let (mut owner, mut indexed) = (next_owner(conn, "").await?, 0_u64);
    while let Some(owner_id) = owner {
        let mut id = Some(0_i64);
        while let Some(after) = id {
            conn.batch_execute("BEGIN").await?;
            let next = "SELECT id, text FROM context.entries WHERE owner_id = ? AND id > ? ORDER BY id LIMIT ? FOR UPDATE";
            let binds = vec![Bind::text(&owner_id), Bind::Int(after), Bind::Int(BATCH)];
            let batch: Vec<Entry> = sql::query(conn, Fragment::prepared(next, binds)).await?;
            for entry in &batch {
                let document = Document::new(&entry.text, language);
                let mut update = Fragment::new("UPDATE context.entries SET words = ");
                update.append(document.expression()).push(", words_cut = ").bind(Bind::Bool(document.cut));
                update.push(" WHERE owner_id = ").bind(Bind::text(&owner_id)).push(" AND id = ").bind(Bind::Int(entry.id));
                sql::execute(conn, update).await?;
            }
            conn.batch_execute("COMMIT").await?;
            indexed += batch.len() as u64;
            id = batch.last().map(|last| last.id);
        }
        owner = next_owner(conn, &owner_id).await?;
    }
    Ok(indexed)
}
