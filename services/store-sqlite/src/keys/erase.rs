//! Owners: counting their objects, and deleting all of them.

use context_store::{OwnerId, OwnerSummary};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use crate::collection::Collection;
use crate::failure::Failure;
use crate::schema::erased_owners;
use crate::sql::{self, Bind, Fragment};
use crate::transaction::Transaction;
use crate::vectors;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    contexts: i64,
    #[diesel(sql_type = BigInt)]
    artifacts: i64,
    #[diesel(sql_type = BigInt)]
    keys: i64,
}

/// The owner with this number, or the first 10 000 owners in the order of their ids.
pub(crate) fn summaries(
    conn: &mut SqliteConnection,
    owner: Option<i64>,
) -> QueryResult<Vec<OwnerSummary>> {
    let mut select = Fragment::new(
        "SELECT o.owner_id, o.entry_count AS contexts, \
         (SELECT count(*) FROM artifacts a WHERE a.owner = o.owner) AS artifacts, \
         (SELECT count(*) FROM api_keys k WHERE k.owner = o.owner AND k.deactivated_at IS NULL) AS keys FROM owners o",
    );
    if let Some(owner) = owner {
        select.push(" WHERE o.owner = ").bind(Bind::Int(owner));
    }
    select.push(" ORDER BY o.owner_id LIMIT 10000");
    let rows: Vec<Row> = sql::query(conn, &select)?;
    let summary = |Row {
                       owner_id,
                       contexts,
                       artifacts,
                       keys,
                   }| OwnerSummary {
        owner: OwnerId::new(owner_id),
        contexts,
        artifacts,
        keys,
    };
    Ok(rows.into_iter().map(summary).collect())
}

#[derive(QueryableByName)]
struct Entry {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Deletes the owner of this transaction. The tables to delete from are read from the database schema, so that
/// future tables are included. Only the owner's next id remains.
pub(crate) fn erase(transaction: &mut Transaction<'_>) -> Result<Option<OwnerSummary>, Failure> {
    let owner = transaction.owner.owner;
    let summary = summaries(transaction.conn, Some(owner))?.pop();
    // Removed one by one, because each of them must be removed from the in-memory index.
    let mut embedded = Fragment::new("SELECT DISTINCT row_id FROM chunks WHERE owner = ");
    embedded.bind(Bind::Int(owner));
    for Entry { row_id } in sql::query::<Entry>(transaction.conn, &embedded)? {
        vectors::remove(transaction, row_id)?;
    }
    let tables = Fragment::new(
        "SELECT t.name FROM sqlite_schema t WHERE t.type = 'table' AND t.sql NOT LIKE 'CREATE VIRTUAL%' \
         AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) c WHERE c.name = 'owner')",
    );
    for Name { name } in sql::query::<Name>(transaction.conn, &tables)? {
        // The name comes from our own migrations, never from a caller. The owner is a number.
        diesel::sql_query(format!("DELETE FROM \"{name}\" WHERE owner = {owner}"))
            .execute(transaction.conn)?;
    }
    for collection in [Collection::entries(owner), Collection::artifacts(owner)] {
        transaction
            .conn
            .batch_execute(&format!("DROP TABLE IF EXISTS {}", collection.fts_table()))?;
    }
    diesel::replace_into(erased_owners::table)
        .values((
            erased_owners::owner_id.eq(&transaction.owner.owner_id),
            erased_owners::next_id.eq(transaction.owner.next_id),
        ))
        .execute(transaction.conn)?;
    transaction.erased();
    Ok(summary)
}
