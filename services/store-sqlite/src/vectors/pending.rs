//! Pending entries and artifacts: those without vectors of a set.

use context_model::ThreadSet;
use context_store::rules::artifact::document_text;
use context_store::{
    Embedding, LateEmbedding, OwnerId, ScanCursor, StoreError, Unembedded, UnembeddedPage,
};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;

use super::write;
use crate::artifacts::documents;
use crate::columns::LossyText;
use crate::entries;
use crate::failure::{Failure, store_error};
use crate::filter::within;
use crate::owners::id_of_row;
use crate::schema::chunks;
use crate::sql::{Bind, Fragment, query};
use crate::transaction::Transaction;

/// Maximum number of entries scanned in one read. Documents of artifacts are not counted.
const MAX_SCANNED: i64 = 10_000;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    text: String,
}

/// The end of a slice of entries.
#[derive(QueryableByName)]
struct Last {
    /// The last row of the slice.
    #[diesel(sql_type = BigInt)]
    last: i64,
    /// Number of rows in the slice.
    #[diesel(sql_type = BigInt)]
    scanned: i64,
}

/// The entries and documents of artifacts after this row that have no vectors of the set. The row ids of documents are
/// negative, so they come first.
pub(super) fn page(
    conn: &mut SqliteConnection,
    set_id: i64,
    after: i64,
    limit: u32,
) -> Result<UnembeddedPage, StoreError> {
    let documents = match after {
        ..0 => pending_documents(conn, set_id, after, limit)?,
        0.. => Vec::new(),
    };
    if let Some((last, _)) = documents.last() {
        let next = Some(ScanCursor::new(last.to_string()));
        let entries = documents
            .into_iter()
            .map(|(_, document)| document)
            .collect();
        return Ok(UnembeddedPage { entries, next });
    }
    let after = after.max(0);
    let mut slice = Fragment::new(
        "SELECT coalesce(max(row_id), 0) AS last, count(*) AS scanned \
         FROM (SELECT row_id FROM entries WHERE row_id > ",
    );
    slice
        .bind(Bind::Int(after))
        .push(" ORDER BY row_id LIMIT ")
        .bind(Bind::Int(MAX_SCANNED))
        .push(")");
    let slice = query::<Last>(conn, &slice).map_err(store_error)?.pop();
    let Some(Last { last, scanned }) = slice.filter(|slice| slice.scanned > 0) else {
        return Ok(UnembeddedPage {
            entries: Vec::new(),
            next: None,
        });
    };
    let limit = limit.max(1);
    let mut found = Fragment::new(
        "SELECT entries.row_id AS row_id, owners.owner_id AS owner_id, entries.version AS version, \
             entries.text AS text \
         FROM entries NOT INDEXED \
         JOIN owners ON owners.owner = entries.owner \
         WHERE entries.row_id > ",
    );
    found
        .bind(Bind::Int(after))
        .push(" AND entries.row_id <= ")
        .bind(Bind::Int(last));
    found
        .push(
            " AND NOT EXISTS (SELECT 1 FROM chunks \
             WHERE chunks.row_id = entries.row_id AND chunks.set_id = ",
        )
        .bind(Bind::Int(set_id));
    found
        .push(") ORDER BY entries.row_id LIMIT ")
        .bind(Bind::Int(i64::from(limit)));
    let rows = query::<Row>(conn, &found).map_err(store_error)?;
    let is_full = rows.len() == limit as usize;
    let next = match rows.last() {
        Some(row) if is_full => Some(row.row_id),
        _ => (scanned == MAX_SCANNED).then_some(last),
    };
    let next = next.map(|row| ScanCursor::new(row.to_string()));
    let entries = rows
        .into_iter()
        .map(|row| Unembedded {
            owner: OwnerId::new(row.owner_id),
            id: id_of_row(row.row_id),
            artifact_id: None,
            version: row.version,
            text: row.text,
        })
        .collect();
    Ok(UnembeddedPage { entries, next })
}

/// The documents of artifacts after this row that have no vectors of the set, with their row ids.
fn pending_documents(
    conn: &mut SqliteConnection,
    set_id: i64,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, Unembedded)>, StoreError> {
    #[derive(QueryableByName)]
    struct Document {
        #[diesel(sql_type = BigInt)]
        row_id: i64,
        #[diesel(sql_type = Text)]
        owner_id: String,
        #[diesel(sql_type = Text)]
        artifact_id: String,
        #[diesel(sql_type = BigInt)]
        version: i64,
        #[diesel(sql_type = Text, deserialize_as = LossyText)]
        title: String,
        #[diesel(sql_type = Text, deserialize_as = LossyText)]
        content: String,
    }
    let mut found = Fragment::new(
        "SELECT d.row_id, o.owner_id, d.artifact_id, d.version, v.title, v.content \
         FROM artifact_documents AS d NOT INDEXED \
         JOIN owners AS o ON o.owner = d.owner \
         JOIN artifact_versions AS v \
             ON v.owner = d.owner AND v.artifact_id = d.artifact_id AND v.version = d.version \
         WHERE d.row_id > ",
    );
    found
        .bind(Bind::Int(after))
        .push(" AND NOT EXISTS (SELECT 1 FROM chunks WHERE chunks.row_id = d.row_id AND chunks.set_id = ")
        .bind(Bind::Int(set_id));
    found
        .push(") ORDER BY d.row_id LIMIT ")
        .bind(Bind::Int(i64::from(limit.max(1))));
    let rows = query::<Document>(conn, &found).map_err(store_error)?;
    let document = |row: Document| {
        let unembedded = Unembedded {
            owner: OwnerId::new(row.owner_id),
            id: id_of_row(row.row_id),
            artifact_id: Some(row.artifact_id),
            version: row.version,
            text: document_text(&row.title, &row.content),
        };
        (row.row_id, unembedded)
    };
    Ok(rows.into_iter().map(document).collect())
}

/// Number of entries and artifacts of all owners.
pub(super) fn count_all(conn: &mut SqliteConnection) -> Result<i64, StoreError> {
    #[derive(QueryableByName)]
    struct Sum {
        #[diesel(sql_type = BigInt)]
        entries: i64,
    }
    let select = Fragment::new(
        "SELECT coalesce(sum(entry_count), 0) + (SELECT count(*) FROM artifact_documents) AS entries FROM owners",
    );
    let rows = query::<Sum>(conn, &select).map_err(store_error)?;
    Ok(rows.first().map_or(0, |row| row.entries))
}

/// Number of the owner's entries in these threads that have vectors of the set.
pub(super) fn embedded_within(
    conn: &mut SqliteConnection,
    set_id: i64,
    owner: i64,
    threads: &ThreadSet,
) -> Result<i64, StoreError> {
    #[derive(QueryableByName)]
    struct Count {
        #[diesel(sql_type = BigInt)]
        count: i64,
    }
    let mut select = Fragment::new("SELECT count(*) AS count FROM entries WHERE owner = ");
    select
        .bind(Bind::Int(owner))
        .push(" AND ")
        .append(within("thread_id", threads));
    select
        .push(
            " AND EXISTS (SELECT 1 FROM chunks \
             WHERE chunks.row_id = entries.row_id AND chunks.set_id = ",
        )
        .bind(Bind::Int(set_id));
    select.push(")");
    Ok(query::<Count>(conn, &select)
        .map_err(store_error)?
        .first()
        .map_or(0, |row| row.count))
}

/// Stores vectors of entries and artifacts that have not changed since they were read and still have none. Returns how
/// many got theirs.
pub(super) fn add(
    transaction: &mut Transaction<'_>,
    embeddings: &[LateEmbedding],
) -> Result<u64, Failure> {
    let mut added = 0;
    for LateEmbedding {
        id,
        version,
        embedded,
    } in embeddings
    {
        let Some(row_id) = transaction.owner.row_id(*id) else {
            continue;
        };
        let stored_version = match row_id {
            ..0 => documents::version_of(transaction.conn, transaction.owner.owner, row_id)?,
            0.. => entries::find(transaction.conn, row_id)?.map(|entry| entry.version),
        };
        let Some(set_id) = write::set_of(transaction, &embedded.model) else {
            continue;
        };
        let existing = chunks::table
            .filter(chunks::row_id.eq(row_id).and(chunks::set_id.eq(set_id)))
            .select(chunks::chunk_id)
            .limit(1)
            .load::<i64>(transaction.conn)?;
        if stored_version != Some(*version) || !existing.is_empty() {
            continue;
        }
        write::insert(transaction, row_id, &Embedding::Now(embedded.clone()))?;
        added += 1;
    }
    Ok(added)
}
