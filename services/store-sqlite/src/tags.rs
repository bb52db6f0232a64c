//! The index from tags to entries, and the number of entries per tag.

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::schema::{entry_tags, tag_counts};
use crate::statement::{self, Value};
use crate::transaction::Transaction;

/// Adds an entry's tags to the index.
pub(crate) fn add<'t>(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    tags: impl IntoIterator<Item = &'t String>,
) -> QueryResult<()> {
    let owner = transaction.owner.owner;
    for tag in tags {
        diesel::insert_into(entry_tags::table)
            .values((
                entry_tags::owner.eq(owner),
                entry_tags::tag.eq(tag),
                entry_tags::row_id.eq(row_id),
            ))
            .execute(transaction.conn)?;
        let known = statement::execute(
            transaction.conn,
            "UPDATE tag_counts SET entries = entries + 1 WHERE owner = ? AND tag = ?",
            &[Value::Int(owner), Value::Text(tag)],
        )?;
        if known == 0 {
            diesel::insert_into(tag_counts::table)
                .values((
                    tag_counts::owner.eq(owner),
                    tag_counts::tag.eq(tag),
                    tag_counts::entries.eq(1),
                ))
                .execute(transaction.conn)?;
            transaction.owner.tag_count += 1;
        }
    }
    Ok(())
}

/// Removes an entry's tags from the index.
pub(crate) fn remove<'t>(
    transaction: &mut Transaction<'_>,
    row_id: i64,
    tags: impl IntoIterator<Item = &'t String>,
) -> QueryResult<()> {
    let owner = transaction.owner.owner;
    for tag in tags {
        diesel::delete(entry_tags::table.find((owner, tag, row_id))).execute(transaction.conn)?;
        transaction.owner.tag_count -= i64::from(release(transaction.conn, owner, tag)?);
    }
    Ok(())
}

/// Decrements the count of a tag. Returns whether the tag is no longer used.
fn release(conn: &mut SqliteConnection, owner: i64, tag: &str) -> QueryResult<bool> {
    let of_tag = [Value::Int(owner), Value::Text(tag)];
    statement::execute(
        conn,
        "UPDATE tag_counts SET entries = entries - 1 WHERE owner = ? AND tag = ?",
        &of_tag,
    )?;
    let unused = statement::execute(
        conn,
        "DELETE FROM tag_counts WHERE owner = ? AND tag = ? AND entries <= 0",
        &of_tag,
    )?;
    Ok(unused > 0)
}
