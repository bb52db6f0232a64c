//! How many texts match a query.

use context_text::Query;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use super::expression::expression;
use crate::collection::Collection;
use crate::sql::{Bind, Fragment, query};

/// For each query, the number of the collection's documents whose text matches it, counted up to `max`. The collection
/// must have a full-text table.
///
/// # Errors
/// Database errors.
pub(crate) fn frequencies(
    conn: &mut SqliteConnection,
    collection: Collection,
    queries: &[Query],
    max: u32,
) -> QueryResult<Vec<u64>> {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = BigInt)]
        entries: i64,
    }
    let expressions: Vec<String> = queries
        .iter()
        .map(|query| expression(query, false))
        .collect();
    let fts = collection.fts_table();
    let mut statement = Fragment::new(format!(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM {fts} WHERE {fts} MATCH queries.value LIMIT "
    ));
    statement
        .bind(Bind::Int(i64::from(max)))
        .push(")) AS entries FROM json_each(")
        .bind(Bind::Text(serde_json::json!(expressions).to_string()))
        .push(") AS queries ORDER BY queries.key");
    let rows: Vec<Row> = query(conn, &statement)?;
    let counts = rows.into_iter().map(|row| row.entries.unsigned_abs());
    Ok(counts.collect())
}
