//! Deletes entries by criteria.

use std::collections::BTreeMap;

use context_model::Source;
use context_store::rules::counts::EntryCounts;
use context_store::{ChangeKind, DeleteCriteria};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};

use crate::columns::LossyText;
use crate::context_window::EntryPosition;
use crate::entries::{source_or_user, tags_of};
use crate::failure::Failure;
use crate::filter::within;
use crate::full_text::FullTextChange;
use crate::images;
use crate::owners::id_of_row;
use crate::schema::entries as table;
use crate::sql::{self, Bind, Fragment};
use crate::tags;
use crate::threads;
use crate::transaction::Transaction;
use crate::vectors;

/// Maximum number of entries selected at a time.
const CHUNK: usize = 1000;

/// The columns that the deletion of an entry needs.
#[derive(QueryableByName)]
struct SelectedEntry {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    thread_id: String,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    source: String,
    #[diesel(sql_type = BigInt)]
    image_count: i64,
    #[diesel(sql_type = BigInt)]
    created_at: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    tags: String,
}

/// Deletes the entries that match the criteria and returns their number.
pub(crate) fn delete(
    transaction: &mut Transaction<'_>,
    criteria: &DeleteCriteria,
) -> Result<u64, Failure> {
    let mut touched: BTreeMap<String, Deleted> = BTreeMap::new();
    let mut deleted = 0u64;
    let mut from = i64::MIN;
    loop {
        let select = select(transaction, criteria, from);
        let selected: Vec<SelectedEntry> = sql::query(transaction.conn, &select)?;
        let last = selected.len() < CHUNK;
        for entry in selected {
            from = from.max(entry.created_at);
            let source = source_or_user(&entry.source);
            let of_thread = touched.entry(entry.thread_id.clone()).or_default();
            of_thread.removed += EntryCounts::of_entry(source, entry.image_count);
            of_thread.positions.push((entry.created_at, entry.row_id));
            delete_entry(transaction, &entry, source)?;
            deleted += 1;
        }
        if last {
            break;
        }
        transaction.apply_full_text()?;
    }
    for (thread_id, Deleted { removed, positions }) in touched {
        let gone = threads::after_removal(transaction, &thread_id, removed)?;
        transaction.owner.thread_count -= i64::from(gone);
        if !gone {
            reindex_following(transaction, &thread_id, positions)?;
        }
    }
    Ok(deleted)
}

/// The entries deleted from one thread.
#[derive(Default)]
struct Deleted {
    removed: EntryCounts,
    /// Creation time and row id of each entry.
    positions: Vec<(i64, i64)>,
}

/// Schedules the entries that follow deleted ones for reindexing without the deleted entries' words.
fn reindex_following(
    transaction: &mut Transaction<'_>,
    thread_id: &str,
    mut positions: Vec<(i64, i64)>,
) -> Result<(), Failure> {
    positions.sort_unstable();
    let owner = transaction.owner.owner;
    let mut next = None;
    for (created_at, row_id) in positions {
        // The following entries are the same as for the previous deleted entry, because no entry between the two is
        // left.
        if next.is_some_and(|next| (created_at, row_id) < next) {
            continue;
        }
        next = transaction.schedule_following(&EntryPosition {
            owner,
            thread_id,
            created_at,
            row_id,
        })?;
    }
    Ok(())
}

/// The next entries that match the criteria. If only a time and a source are given, they come in the order of time,
/// beginning at `from`, the time of the last deleted one. Otherwise each chunk would check the older entries of the
/// other source again.
fn select(transaction: &Transaction<'_>, criteria: &DeleteCriteria, from: i64) -> Fragment {
    let DeleteCriteria {
        within: reach,
        ids,
        threads,
        source,
        created_before,
    } = criteria;
    let mut select = Fragment::new(
        "SELECT row_id, thread_id, source, image_count, created_at, version, tags FROM entries",
    );
    if ids.is_some() {
        // Without statistics the planner may assume that the owner has fewer entries than there are ids.
        select.push(" NOT INDEXED");
    }
    select
        .push(" WHERE owner = ")
        .bind(Bind::Int(transaction.owner.owner));
    if let Some(ids) = ids {
        let row_ids: Vec<i64> = ids
            .iter()
            .filter_map(|&id| transaction.owner.row_id(id))
            .collect();
        select
            .push(" AND row_id IN (SELECT value FROM json_each(")
            .bind(Bind::Text(serde_json::json!(row_ids).to_string()))
            .push("))");
    }
    if let Some(reach) = reach {
        select.push(" AND ").append(within("thread_id", reach));
    }
    if let Some(threads) = threads {
        let threads: Vec<&str> = threads
            .iter()
            .map(context_model::ThreadId::as_str)
            .collect();
        select
            .push(" AND thread_id IN (SELECT value FROM json_each(")
            .bind(Bind::Text(serde_json::json!(threads).to_string()))
            .push("))");
    }
    if let Some(source) = source {
        select
            .push(" AND source = ")
            .bind(Bind::Text(source.as_str().to_owned()));
    }
    if let Some(before) = created_before {
        select
            .push(" AND created_at < ")
            .bind(Bind::Int(before.micros()));
    }
    let is_in_order = ids.is_none() && threads.is_none() && reach.is_none();
    if is_in_order {
        select.push(" AND created_at >= ").bind(Bind::Int(from));
    }
    if ids.is_none() && threads.is_none() && created_before.is_none() {
        // The source alone would select about half of all entries. The operation rejects it, and the store selects
        // nothing.
        select.push(" AND 0");
    }
    if is_in_order {
        select.push(" ORDER BY created_at");
    }
    select.push(&format!(" LIMIT {CHUNK}"));
    select
}

fn delete_entry(
    transaction: &mut Transaction<'_>,
    entry: &SelectedEntry,
    source: Source,
) -> Result<(), Failure> {
    let SelectedEntry {
        row_id,
        thread_id,
        source: _,
        image_count,
        created_at: _,
        version,
        tags,
    } = entry;
    let owner = transaction.owner.owner;
    let tags = tags_of(transaction.conn, owner, *row_id, tags)?;
    tags::remove(transaction, *row_id, &tags)?;
    if *image_count > 0 {
        images::delete(transaction.conn, owner, *row_id)?;
    }
    vectors::remove(transaction, *row_id)?;
    diesel::delete(table::table.find(row_id)).execute(transaction.conn)?;
    transaction.full_text(FullTextChange::Delete {
        owner,
        row_id: *row_id,
    });
    let id = id_of_row(*row_id);
    transaction.changed_entry(ChangeKind::Delete, id, thread_id, source, *version)?;
    transaction
        .owner
        .count(-EntryCounts::of_entry(source, *image_count));
    Ok(())
}

#[cfg(test)]
mod tests {
    use context_model::{NewEntry, ThreadId, Timestamp};
    use context_store::{OwnerId, Store as _, WriteOptions};

    use super::*;
    use crate::config::Config;
    use crate::store::SqliteStore;

    fn options(now: i64) -> WriteOptions {
        WriteOptions {
            now: Timestamp(now),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_source_is_deleted_up_to_a_time_in_several_chunks() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(Config::new(directory.path().join("store.db"))).unwrap();
        let owner = OwnerId::new("owner");
        for now in 1..=4 {
            let entry = |n: usize| NewEntry {
                thread_id: ThreadId::from_stored(format!("t{n}")),
                source: [Source::User, Source::Agent][n % 2],
                text: format!("text {now}"),
                images: None,
                metadata: None,
                tags: None,
            };
            let entries = (0..CHUNK).map(entry).collect();
            store
                .store_contexts(&owner, entries, false, options(now))
                .await
                .unwrap();
        }
        let criteria = DeleteCriteria {
            within: None,
            ids: None,
            threads: None,
            source: Some(Source::User),
            created_before: Some(Timestamp(4)),
        };
        let deleted = store.delete_contexts(&owner, criteria, options(5)).await;
        assert_eq!(deleted.unwrap().outcome, 3 * CHUNK as u64 / 2);
        let statistics = store.statistics(&owner, None, context_store::Read::default());
        let left = statistics.await.unwrap().by_source;
        let (user, agent) = (CHUNK as i64 / 2, 2 * CHUNK as i64);
        assert_eq!((left.user, left.agent), (user, agent));
        store.close().await;
    }
}
