//! Deleting entries by criteria.

use context_store::rules::counts::EntryCounts;
use context_store::{ChangeKind, ContextWindow, DeleteCriteria, OwnerId};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::columns::SourceColumn;
use crate::context_window::{self, EntryPositions};
use crate::filter::within;
use crate::images;
use crate::pg::failure::Failure;
use crate::pg::sql::Condition;
use crate::schema::entries;
use crate::tags;
use crate::transaction::{Transaction, Writing};

/// Maximum number of entries that one statement deletes and returns.
const ENTRIES_AT_ONCE: i64 = 1000;
/// Maximum number of threads that one statement locks. Their locks stay until the transaction ends.
const THREADS_AT_ONCE: i64 = 500;

/// A request that deletes entries by criteria.
pub(crate) struct DeleteEntries {
    pub criteria: DeleteCriteria,
    pub context_window: ContextWindow,
}

#[derive(Queryable)]
struct Deleted {
    id: i64,
    thread_id: String,
    source: SourceColumn,
    image_count: i64,
    created_at: i64,
    version: i64,
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
            // A source alone would delete about half of all entries. The engine rejects such a request. If one comes
            // here all the same, nothing is deleted.
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
    /// The next threads, by name, that have entries to delete.
    async fn threads(
        &self,
        transaction: &mut Transaction<'_>,
        after: &str,
    ) -> Result<Vec<String>, Failure> {
        Ok(self
            .chosen(transaction.owner)
            .filter(entries::thread_id.gt(after))
            .select(entries::thread_id)
            .distinct()
            .order(entries::thread_id)
            .limit(THREADS_AT_ONCE)
            .load(transaction.conn)
            .await?)
    }

    async fn delete_from_locked(&self, transaction: &mut Transaction<'_>) -> Result<u64, Failure> {
        let (owner, locked) = (transaction.owner, transaction.locked_threads());
        let (mut deleted, mut positions) = (0, Vec::new());
        loop {
            let next = self
                .chosen(owner)
                .filter(entries::thread_id.eq_any(&locked))
                .select(entries::id)
                .limit(ENTRIES_AT_ONCE);
            let rows: Vec<Deleted> = diesel::delete(entries::table)
                .filter(entries::owner_id.eq(owner.as_str()))
                .filter(entries::id.eq_any(next))
                .returning((
                    entries::id,
                    entries::thread_id,
                    entries::source,
                    entries::image_count,
                    entries::created_at,
                    entries::version,
                    entries::tags,
                ))
                .load(transaction.conn)
                .await?;
            let last = i64::try_from(rows.len()).unwrap_or(i64::MAX) < ENTRIES_AT_ONCE;
            deleted += rows.len() as u64;
            positions.push(EntryPositions {
                threads: rows.iter().map(|row| row.thread_id.clone()).collect(),
                created_at: rows.iter().map(|row| row.created_at).collect(),
                ids: rows.iter().map(|row| row.id).collect(),
            });
            forget(transaction, rows).await?;
            if last {
                break;
            }
        }
        if !self.deletes_whole_threads() {
            for positions in &positions {
                let conn = &mut *transaction.conn;
                context_window::rebuild_after(conn, owner, positions, self.context_window).await?;
            }
        }
        Ok(deleted)
    }

    /// Whether whole threads are deleted, so that no remaining entry's context has words of the deleted ones.
    fn deletes_whole_threads(&self) -> bool {
        let DeleteCriteria {
            within: _,
            ids,
            threads: _,
            source,
            created_before,
        } = &self.criteria;
        ids.is_none() && source.is_none() && created_before.is_none()
    }

    /// Query for the entries that satisfy the criteria.
    fn chosen<'v>(&'v self, owner: &'v OwnerId) -> entries::BoxedQuery<'v, Pg> {
        let DeleteCriteria {
            within: reach,
            ids,
            threads,
            source,
            created_before,
        } = &self.criteria;
        let mut chosen = entries::table
            .filter(entries::owner_id.eq(owner.as_str()))
            .into_boxed();
        if let Some(ids) = ids {
            chosen = chosen.filter(entries::id.eq_any(ids));
        }
        if let Some(reach) = reach {
            chosen = chosen.filter(Condition(within("entries.thread_id", reach)));
        }
        if let Some(threads) = threads {
            let names = threads.iter().map(|thread| thread.as_str());
            chosen = chosen.filter(entries::thread_id.eq_any(names));
        }
        if let Some(source) = source {
            chosen = chosen.filter(entries::source.eq(source.as_str()));
        }
        if let Some(before) = created_before {
            chosen = chosen.filter(entries::created_at.lt(before.micros()));
        }
        chosen
    }
}

/// Deletes the rows that belong to these entries and subtracts the entries from the counts.
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
        transaction.changed_entry(ChangeKind::Delete, id, &thread_id, source, version);
    }
    tags::remove(transaction.conn, transaction.owner, &pairs).await
}
