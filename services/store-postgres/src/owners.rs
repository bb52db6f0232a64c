//! Ids for new entries, leased in blocks.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use context_store::OwnerId;
use context_store::rules::ids;
use diesel::dsl::max;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::schema::{entries, owner_ids};

/// Number of ids that are leased from the database beyond those that a write needs now. When the service stops, the
/// unused ids of a block are never used.
const BLOCK: i64 = 128;
/// Maximum number of owners whose blocks are kept in memory.
const CACHED_OWNERS: usize = 10_000;

/// Ids that this process has leased and not used yet.
#[derive(Debug, Default)]
pub(crate) struct Ids(Mutex<HashMap<String, Range<i64>>>);

impl Ids {
    /// Returns `count` new ids of an owner, ascending. Ids are leased outside of any transaction, so a rollback does
    /// not return them.
    pub async fn take(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
        count: usize,
    ) -> Result<Vec<i64>, Failure> {
        let wanted = i64::try_from(count).unwrap_or(i64::MAX);
        if let Some(ids) = self.take_leased(owner, wanted) {
            return Ok(ids.collect());
        }
        let leased = lease(conn, owner, wanted.saturating_add(BLOCK)).await?;
        let ids = leased.start..leased.start + wanted;
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.len() >= CACHED_OWNERS {
            blocks.clear();
        }
        blocks.insert(owner.as_str().to_owned(), ids.end..leased.end);
        Ok(ids.collect())
    }

    /// Returns unused ids. If other operations took ids in the meantime, these ids stay unused.
    pub fn give_back(&self, owner: &OwnerId, unused: &[i64]) {
        let (Some(&first), Some(&last)) = (unused.first(), unused.last()) else {
            return;
        };
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = blocks
            .get_mut(owner.as_str())
            .filter(|block| block.start == last + 1)
        {
            block.start = first;
        }
    }

    /// Drops the owner's block, and moves its next id past the ids of all its entries. This is needed after a failover
    /// to an asynchronous standby: the standby may not know of a lease, and leases the same ids again.
    pub async fn skip_used_ids(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<(), Failure> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(owner.as_str());
        let of_owner = entries::table.filter(entries::owner_id.eq(owner.as_str()));
        let used: Option<i64> = of_owner.select(max(entries::id)).get_result(conn).await?;
        let next = used.unwrap_or(0).saturating_add(1);
        let behind = owner_ids::table
            .find(owner.as_str())
            .filter(owner_ids::next_id.lt(next));
        let skip = diesel::update(behind).set(owner_ids::next_id.eq(next));
        fixed!(skip).execute(conn).await?;
        Ok(())
    }

    fn take_leased(&self, owner: &OwnerId, wanted: i64) -> Option<Range<i64>> {
        let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let block = blocks.get_mut(owner.as_str())?;
        if block.end - block.start < wanted {
            return None;
        }
        let ids = block.start..block.start + wanted;
        block.start = ids.end;
        Some(ids)
    }
}

async fn lease(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    count: i64,
) -> Result<Range<i64>, Failure> {
    let lease = diesel::insert_into(owner_ids::table)
        .values((
            owner_ids::owner_id.eq(owner.as_str()),
            owner_ids::next_id.eq(count.saturating_add(1)),
        ))
        .on_conflict(owner_ids::owner_id)
        .do_update()
        .set(owner_ids::next_id.eq(owner_ids::next_id + count))
        .returning(owner_ids::next_id);
    let next: i64 = fixed!(lease).get_result(conn).await?;
    Ok(ids::leased(count, next)?)
}
