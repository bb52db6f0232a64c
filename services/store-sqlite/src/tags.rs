//! The index from tags to entries, and the number of entries per tag.

use context_model::{Filter, TagCount, TagPrefix};
use context_store::{Page, StoreError, TagsPage};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::failure::store_error;
use crate::filter::{self, begins_with};
use crate::owners::Owner;
use crate::schema::{entry_tags, tag_counts};
use crate::sql::{self, Bind, Fragment};
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
        let counted = statement::execute(
            transaction.conn,
            "UPDATE tag_counts SET entries = entries + 1 WHERE owner = ? AND tag = ?",
            &[Value::Int(owner), Value::Text(tag)],
        )?;
        if counted == 0 {
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

#[derive(QueryableByName)]
struct Listed {
    #[diesel(sql_type = BigInt)]
    total: i64,
    #[diesel(sql_type = Nullable<Text>)]
    tag: Option<LossyText>,
    #[diesel(sql_type = Nullable<BigInt>)]
    entry_count: Option<i64>,
}

/// A page of the tags of the entries that satisfy the filter, most frequent first.
pub(crate) fn list(
    conn: &mut SqliteConnection,
    owner: &Owner,
    filter: &Filter,
    prefix: Option<&TagPrefix>,
    page: Page,
) -> Result<TagsPage, StoreError> {
    let mut select = Fragment::new("WITH counted AS MATERIALIZED (");
    select
        .append(counted(owner.owner, filter, prefix))
        // The left side has a row even where the page has none.
        .push(
            ") SELECT n.total, t.tag, t.entry_count FROM (SELECT count(*) AS total FROM counted) AS n LEFT JOIN \
             (SELECT tag, entry_count FROM counted ORDER BY entry_count DESC, tag LIMIT ",
        )
        .bind(Bind::Int(i64::from(page.limit)))
        .push(" OFFSET ")
        .bind(Bind::Int(i64::try_from(page.offset).unwrap_or(i64::MAX)))
        .push(") AS t ON true ORDER BY t.entry_count DESC, t.tag");
    let rows: Vec<Listed> = sql::query(conn, &select).map_err(store_error)?;
    let total = rows.first().map_or(0, |row| row.total);
    let tag = |row: Listed| {
        Some(TagCount {
            tag: row.tag?.into(),
            entry_count: row.entry_count?,
        })
    };
    Ok(TagsPage {
        tags: rows.into_iter().filter_map(tag).collect(),
        total,
        revision: owner.revision,
    })
}

/// The tags with their counts, in any order.
fn counted(owner: i64, filter: &Filter, prefix: Option<&TagPrefix>) -> Fragment {
    let mut select = Fragment::default();
    if *filter == Filter::default() {
        select
            .push("SELECT tag, entries AS entry_count FROM tag_counts WHERE owner = ")
            .bind(Bind::Int(owner));
        if let Some(prefix) = prefix {
            select
                .push(" AND ")
                .append(begins_with("tag", prefix.as_str()));
        }
        return select;
    }
    // Tags are read from the entries that match. The index from tags to entries would have to be read whole.
    select
        .push(
            "SELECT t.value AS tag, count(*) AS entry_count FROM entries, \
             json_each(CASE WHEN json_valid(entries.tags) THEN entries.tags ELSE '[]' END) AS t WHERE ",
        )
        .append(filter::compile(filter, owner));
    if let Some(prefix) = prefix {
        select
            .push(" AND ")
            .append(begins_with("t.value", prefix.as_str()));
    }
    select.push(" GROUP BY t.value");
    select
}
