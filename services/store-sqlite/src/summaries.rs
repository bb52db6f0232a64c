//! Finds entries without a summary, and stores summaries, which are generated after their entries are stored.

use async_trait::async_trait;
use context_model::{ThreadSet, Timestamp};
use context_store::{
    LateSummary, OwnerId, Read, Result, ScanCursor, StoreError, SummaryStore, Unsummarized,
    UnsummarizedPage, WriteOptions,
};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::failure::{Failure, store_error};
use crate::filter::within;
use crate::owners::id_of_row;
use crate::sql::{Bind, Fragment, query};
use crate::statement::{self, Value};
use crate::store::SqliteStore;
use crate::transaction::Transaction;

/// Maximum number of entries scanned in one read.
const MAX_SCANNED: i64 = 2_000;

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

#[derive(QueryableByName)]
struct Slice {
    #[diesel(sql_type = BigInt)]
    last: i64,
    #[diesel(sql_type = BigInt)]
    scanned: i64,
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

#[async_trait]
impl SummaryStore for SqliteStore {
    async fn unsummarized(
        &self,
        after: Option<&ScanCursor>,
        min_chars: u32,
        max_chars: u32,
        limit: u32,
    ) -> Result<UnsummarizedPage> {
        let after = after
            .and_then(|cursor| cursor.as_str().parse().ok())
            .unwrap_or(0);
        self.searches
            .read(None, move |conn| {
                page(conn, after, min_chars, max_chars, limit.max(1))
            })
            .await
    }

    async fn add_summary(&self, owner: &OwnerId, summary: LateSummary) -> Result<bool> {
        let bytes = summary.summary.len();
        let options = WriteOptions {
            now: Timestamp(0),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        let written = self
            .write_existing(owner, options, bytes, move |transaction| {
                add(transaction, &summary)
            })
            .await?;
        Ok(written.outcome > 0)
    }

    async fn summarized_entries(&self, owner: &OwnerId, threads: Option<ThreadSet>) -> Result<i64> {
        // An index has the entries with a summary, but not their threads.
        let lane = match threads {
            None => &self.points,
            Some(_) => &self.searches,
        };
        self.read(lane, owner, Read::default(), move |conn, owner| {
            let Some(owner) = owner else { return Ok(0) };
            let mut count = Fragment::new(
                "SELECT count(*) AS count FROM entries WHERE summary <> '' AND owner = ",
            );
            count.bind(Bind::Int(owner.owner));
            if let Some(threads) = &threads {
                count.push(" AND ").append(within("thread_id", threads));
            }
            Ok(query::<Count>(conn, &count)
                .map_err(store_error)?
                .first()
                .map_or(0, |row| row.count))
        })
        .await
    }
}

fn page(
    conn: &mut SqliteConnection,
    after: i64,
    min_chars: u32,
    max_chars: u32,
    limit: u32,
) -> Result<UnsummarizedPage, StoreError> {
    let mut slice = Fragment::new(
        "SELECT coalesce(max(row_id), 0) AS last, count(*) AS scanned \
         FROM (SELECT row_id FROM entries WHERE row_id > ",
    );
    slice
        .bind(Bind::Int(after))
        .push(" ORDER BY row_id LIMIT ")
        .bind(Bind::Int(MAX_SCANNED))
        .push(")");
    let Some(Slice { last, scanned }) = query::<Slice>(conn, &slice).map_err(store_error)?.pop()
    else {
        return Ok(UnsummarizedPage {
            entries: Vec::new(),
            next: None,
        });
    };
    let mut found = Fragment::new(
        "SELECT entries.row_id AS row_id, owners.owner_id AS owner_id, entries.version AS version, \
             substr(entries.text, 1, ",
    );
    found
        .bind(Bind::Int(i64::from(max_chars)))
        .push(") AS text FROM entries NOT INDEXED JOIN owners ON owners.owner = entries.owner");
    found
        .push(" WHERE entries.row_id > ")
        .bind(Bind::Int(after))
        .push(" AND entries.row_id <= ")
        .bind(Bind::Int(last));
    found
        .push(" AND entries.summary = '' AND length(entries.text) >= ")
        .bind(Bind::Int(i64::from(min_chars)));
    found
        .push(" ORDER BY entries.row_id LIMIT ")
        .bind(Bind::Int(i64::from(limit)));
    let rows = query::<Row>(conn, &found).map_err(store_error)?;
    let next = match rows.last() {
        Some(row) if rows.len() == limit as usize => Some(row.row_id),
        _ => (scanned == MAX_SCANNED).then_some(last),
    };
    let entry = |row: Row| Unsummarized {
        owner: OwnerId::new(row.owner_id),
        id: id_of_row(row.row_id),
        version: row.version,
        text: row.text,
    };
    Ok(UnsummarizedPage {
        entries: rows.into_iter().map(entry).collect(),
        next: next.map(|row| ScanCursor::new(row.to_string())),
    })
}

fn add(transaction: &mut Transaction<'_>, summary: &LateSummary) -> Result<u64, Failure> {
    let LateSummary {
        id,
        version,
        summary,
    } = summary;
    let Some(row_id) = transaction.owner.row_id(*id) else {
        return Ok(0);
    };
    let values = [
        Value::Text(summary),
        Value::Int(row_id),
        Value::Int(*version),
    ];
    let changed = statement::execute(
        transaction.conn,
        "UPDATE entries SET summary = ? WHERE row_id = ? AND version = ?",
        &values,
    )?;
    Ok(changed as u64)
}
