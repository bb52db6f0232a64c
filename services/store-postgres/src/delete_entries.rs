//! Deleting entries by criteria.

use context_store::rules::counts::EntryCounts;
use context_store::{DeleteCriteria, Neighbourhood};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Text};

use crate::columns::SourceColumn;
use crate::filter::within;
use crate::images;
use crate::neighbours::{self, Places};
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::tags;
use crate::transaction::{ChangeKind, Transaction, Writing};

/// Entries held in memory at a time.
const ENTRIES_AT_ONCE: i64 = 1000;
/// Threads worked on at a time.
const THREADS_AT_ONCE: i64 = 500;

/// Entries to delete.
pub(crate) struct DeleteEntries {
    pub criteria: DeleteCriteria,
    pub neighbourhood: Neighbourhood,
}

#[derive(QueryableByName)]
struct Deleted {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
    thread_id: String,
    #[diesel(sql_type = Text)]
    source: SourceColumn,
    #[diesel(sql_type = BigInt)]
    image_count: i64,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Array<Text>)]
    tags: Vec<String>,
}

impl Writing for DeleteEntries {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let DeleteCriteria {
            within: _,
            ids,
            threads,
            source: _,
            created_before,
        } = &self.criteria;
        if ids.is_none() && threads.is_none() && created_before.is_none() {
            // A source alone would delete half of everything; the operation refuses it, and so does the store.
            return Ok(0);
        }
        let (mut deleted, mut after) = (0, String::new());
        loop {
            let threads = self.threads(transaction, &after).await?;
            let Some(last) = threads.last().cloned() else {
                return Ok(deleted);
            };
            let more = i64::try_from(threads.len()).unwrap_or(i64::MAX) == THREADS_AT_ONCE;
            transaction.lock_threads(threads).await?;
            deleted += self.delete_from_locked(transaction).await?;
            transaction.find_ends_of_threads().await?;
            transaction.write_threads().await?;
            if !more {
                return Ok(deleted);
            }
            after = last;
        }
    }
}

impl DeleteEntries {
    /// The next threads, by name, that have something to delete.
    async fn threads(
        &self,
        transaction: &mut Transaction<'_>,
        after: &str,
    ) -> Result<Vec<String>, Failure> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = Text)]
            thread_id: String,
        }
        let mut select =
            Fragment::new("SELECT DISTINCT thread_id FROM context.entries WHERE thread_id > ");
        select
            .bind(Bind::text(after))
            .push(" AND ")
            .append(self.criteria(transaction));
        select
            .push(" ORDER BY thread_id LIMIT ")
            .bind(Bind::Int(THREADS_AT_ONCE));
        let rows: Vec<Row> = sql::query(transaction.conn, select).await?;
        Ok(rows.into_iter().map(|row| row.thread_id).collect())
    }

    async fn delete_from_locked(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let locked = transaction.locked_threads();
        let mut deleted = 0;
        loop {
            let mut delete = Fragment::new("DELETE FROM context.entries WHERE owner_id = ");
            delete.bind(Bind::text(transaction.owner.as_str()));
            delete
                .push(" AND id IN (SELECT id FROM context.entries WHERE thread_id = ANY(")
                .bind(Bind::texts(&locked))
                .push(") AND ");
            delete
                .append(self.criteria(transaction))
                .push(" LIMIT ")
                .bind(Bind::Int(ENTRIES_AT_ONCE));
            delete
                .push(") RETURNING id, thread_id, source, image_count, created_at, version, tags");
            let rows: Vec<Deleted> = sql::query(transaction.conn, delete).await?;
            let last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < ENTRIES_AT_ONCE;
            deleted += rows.len() as u64;
            self.take_words_along(transaction, &rows).await?;
            forget(transaction, rows).await?;
            if last {
                return Ok(deleted);
            }
        }
    }

    /// Makes the contexts of what stays after these entries anew.
    async fn take_words_along(
        &self,
        transaction: &mut Transaction<'_>,
        rows: &[Deleted],
    ) -> Result<(), Failure> {
        let DeleteCriteria {
            within: _,
            ids,
            threads: _,
            source,
            created_before,
        } = &self.criteria;
        if ids.is_none() && source.is_none() && created_before.is_none() {
            // Nothing of their threads stays.
            return Ok(());
        }
        let places = Places {
            threads: rows.iter().map(|row| row.thread_id.clone()).collect(),
            created_at: rows.iter().map(|row| row.created_at).collect(),
            ids: rows.iter().map(|row| row.id).collect(),
        };
        // What goes next needs no context.
        let going = Some(self.criteria(transaction));
        neighbours::renew_after(
            transaction.conn,
            transaction.owner,
            &places,
            going,
            self.neighbourhood,
        )
        .await?;
        Ok(())
    }

    fn criteria<'v>(&'v self, transaction: &Transaction<'v>) -> Fragment<'v> {
        let DeleteCriteria {
            within: reach,
            ids,
            threads,
            source,
            created_before,
        } = &self.criteria;
        let mut criteria = Fragment::new("owner_id = ");
        criteria.bind(Bind::text(transaction.owner.as_str()));
        if let Some(ids) = ids {
            criteria
                .push(" AND id = ANY(")
                .bind(Bind::ints(ids.iter().copied()))
                .push(")");
        }
        if let Some(reach) = reach {
            criteria.push(" AND ").append(within("thread_id", reach));
        }
        if let Some(threads) = threads {
            let threads = Bind::Texts(
                threads
                    .iter()
                    .map(|thread| thread.as_str().into())
                    .collect(),
            );
            criteria
                .push(" AND thread_id = ANY(")
                .bind(threads)
                .push(")");
        }
        if let Some(source) = source {
            criteria
                .push(" AND source = ")
                .bind(Bind::text(source.as_str()));
        }
        if let Some(before) = created_before {
            criteria
                .push(" AND created_at < ")
                .bind(Bind::Int(before.micros()));
        }
        criteria
    }
}

/// Deletes what belongs to these entries and counts them out.
async fn forget(transaction: &mut Transaction<'_>, rows: Vec<Deleted>) -> Result<(), Failure> {
    let with_images: Vec<i64> = rows
        .iter()
        .filter(|row| row.image_count > 0)
        .map(|row| row.id)
        .collect();
    if !with_images.is_empty() {
        images::delete(transaction.conn, transaction.owner, &with_images).await?;
    }
    if let Some(vectors) = &mut transaction.vectors {
        vectors.remove(rows.iter().map(|row| row.id));
    }
    let mut pairs = Vec::new();
    for row in rows {
        let Deleted {
            id,
            thread_id,
            source: SourceColumn(source),
            image_count,
            created_at: _,
            version,
            tags,
        } = row;
        pairs.extend(tags.into_iter().map(|tag| (id, tag)));
        let removed = EntryCounts::of_entry(source, image_count);
        if let Some(thread) = transaction.thread(&thread_id) {
            thread.count(-removed);
        }
        transaction.counts -= removed;
        transaction.changed(ChangeKind::Delete, id, &thread_id, version);
    }
    tags::remove(transaction.conn, transaction.owner, &pairs).await
}
