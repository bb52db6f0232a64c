//! Reads pages of the feed of changes, and removes old changes from it.

use std::sync::Arc;

use async_trait::async_trait;
use context_model::{Error, Reason};
use context_store::{
    Change, ChangeNotifier, ChangeRow, ChangeStore, Feed, OwnerId, Read, Result, Retention,
};
use diesel::dsl::min;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::compaction;
use crate::failure::store_error;
use crate::owners::Owner;
use crate::schema::{changes, owners};
use crate::store::SqliteStore;

#[derive(Queryable, Selectable)]
#[diesel(table_name = changes)]
struct Row {
    revision: i64,
    at: i64,
    operation: String,
    entity: String,
    entity_id: String,
    thread_id: Option<String>,
    version: Option<i64>,
    key_id: Option<String>,
    source: Option<String>,
    commit_end: i64,
}

impl From<Row> for ChangeRow {
    fn from(row: Row) -> Self {
        let Row {
            revision,
            at,
            operation,
            entity,
            entity_id,
            thread_id,
            version,
            key_id,
            source,
            commit_end,
        } = row;
        Self {
            revision,
            at,
            operation,
            entity,
            entity_id,
            thread_id,
            source,
            version,
            key_id,
            commit_end: commit_end != 0,
        }
    }
}

#[async_trait]
impl ChangeStore for SqliteStore {
    async fn feed(&self, owner: &OwnerId, from: i64, limit: u32, read: Read) -> Result<Feed> {
        if self.is_copy() {
            let sentence = "this service is a copy, which has no feed of changes; follow the service that it copies";
            return Err(Error::new(Reason::FeatureUnavailable, sentence).into());
        }
        self.read(&self.points, owner, read, move |conn, owner| match owner {
            Some(owner) => page(conn, owner, from, limit),
            None => Ok(Feed::of_no_owner()),
        })
        .await
    }

    async fn compact(&self, retention: Retention) -> Result<u64> {
        // Usually nothing is due. A read finds that out without waiting for the writer.
        let due = self.searches.read(None, move |conn| {
            compaction::due(conn, &retention).map_err(store_error)
        });
        if due.await?.is_none() {
            return Ok(0);
        }
        self.write_without_owner(move |conn, _| compaction::compact(conn, &retention))
            .await
    }

    fn notifier(&self) -> &Arc<ChangeNotifier> {
        &self.notifier
    }
}

fn page(conn: &mut SqliteConnection, owner: &Owner, from: i64, limit: u32) -> Result<Feed> {
    let of_owner = || changes::table.filter(changes::owner.eq(owner.owner));
    let incarnation = owners::table
        .find(owner.owner)
        .select(owners::incarnation)
        .get_result(conn)
        .map_err(store_error)?;
    let oldest: Option<i64> = of_owner()
        .select(min(changes::revision))
        .get_result(conn)
        .map_err(store_error)?;
    let rows: Vec<Row> = of_owner()
        .filter(changes::revision.ge(from))
        .order(changes::revision)
        .limit(limit.into())
        .select(Row::as_select())
        .load(conn)
        .map_err(store_error)?;
    Ok(Feed {
        incarnation,
        revision: owner.revision,
        oldest: oldest.unwrap_or(owner.revision + 1),
        is_behind: false,
        changes: rows
            .into_iter()
            .map(|row| Change::try_from(ChangeRow::from(row)))
            .collect::<Result<_>>()?,
    })
}
