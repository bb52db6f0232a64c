//! Writes the rows of `changes`, the owner's change feed.

use context_model::Source;
use context_store::{Change, Changed};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::schema::changes;

/// Writes one change.
pub(crate) fn insert(conn: &mut SqliteConnection, owner: i64, change: &Change) -> QueryResult<()> {
    let Change {
        revision,
        at,
        kind,
        changed,
        version,
        key_id,
        commit_end,
    } = change;
    let (id, thread_id, source) = match changed {
        Changed::Context {
            id,
            thread_id,
            source,
        } => (id.to_string(), Some(thread_id), *source),
        Changed::Artifact { id } => (id.clone(), None, None),
    };
    diesel::insert_into(changes::table)
        .values((
            changes::owner.eq(owner),
            changes::revision.eq(revision),
            changes::at.eq(at.micros()),
            changes::operation.eq(kind.as_str()),
            changes::entity.eq(changed.entity()),
            changes::entity_id.eq(id),
            changes::thread_id.eq(thread_id),
            changes::version.eq(version),
            changes::key_id.eq(key_id),
            changes::source.eq(source.map(Source::as_str)),
            changes::commit_end.eq(i64::from(*commit_end)),
        ))
        .execute(conn)?;
    Ok(())
}
