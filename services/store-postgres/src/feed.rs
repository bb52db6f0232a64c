//! Reads pages of the feed of changes, and removes old changes from it.

use std::sync::Arc;

use async_trait::async_trait;
use context_store::{
    Change, ChangeNotifier, ChangeRow, ChangeStore, Feed, OwnerId, Read, Result, Retention,
};
use diesel::dsl::min;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::compaction;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::read::{self, Reading};
use crate::schema::{changes, owners};
use crate::store::PostgresStore;

#[async_trait]
impl ChangeStore for PostgresStore {
    async fn feed(&self, owner: &OwnerId, from: i64, limit: u32, read: Read) -> Result<Feed> {
        let statement_timeout = self.statement_timeout();
        let page = Page {
            from,
            limit,
            statement_timeout,
        };
        self.read(owner, read, page).await
    }

    async fn compact(&self, retention: Retention) -> Result<u64> {
        self.inner.soundness.check()?;
        let mut lease = self.inner.pool.get(None).await?;
        let moved = compaction::compact(lease.conn(), &retention).await;
        self.inner.pool.observe(&moved);
        let moved = moved.inspect_err(|failure| failure.note_damage(&self.inner.soundness))?;
        lease.give_back();
        Ok(moved)
    }

    fn notifier(&self) -> &Arc<ChangeNotifier> {
        &self.inner.commits.notifier
    }
}

struct Page {
    from: i64,
    limit: u32,
    statement_timeout: std::time::Duration,
}

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
    commit_end: bool,
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
            commit_end,
        }
    }
}

impl Reading for Page {
    type Outcome = Feed;

    fn empty(&self) -> Feed {
        Feed::of_no_owner()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> std::result::Result<Option<(i64, Feed)>, Failure> {
        read::begin(conn, self.statement_timeout).await?;
        let of_owner = || changes::table.filter(changes::owner_id.eq(owner.as_str()));
        let head: Option<(i64, String)> = owners::table
            .find(owner.as_str())
            .select((owners::revision, owners::incarnation))
            .get_result(conn)
            .await
            .optional()?;
        let reached = head.as_ref().map_or(0, |(revision, _)| *revision);
        let is_behind = reached < self.from && read::is_standby(conn).await?;
        let Some((revision, incarnation)) = head else {
            read::commit(conn).await?;
            let feed = Feed {
                is_behind,
                ..Feed::of_no_owner()
            };
            return Ok(Some((0, feed)));
        };
        let oldest: Option<i64> = of_owner()
            .select(min(changes::revision))
            .get_result(conn)
            .await?;
        let rows: Vec<Row> = of_owner()
            .filter(changes::revision.ge(self.from))
            .order(changes::revision)
            .limit(self.limit.into())
            .select(Row::as_select())
            .load(conn)
            .await?;
        read::commit(conn).await?;
        let feed = Feed {
            incarnation,
            revision,
            oldest: oldest.unwrap_or(revision + 1),
            is_behind,
            changes: rows
                .into_iter()
                .map(|row| Change::try_from(ChangeRow::from(row)))
                .collect::<Result<_>>()?,
        };
        Ok(Some((revision, feed)))
    }
}
