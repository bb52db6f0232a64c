//! The index from tags to entries, and the list of tags.

use std::sync::Arc;

use context_model::{Filter, MetadataPath, TagCount, TagPrefix};
use context_store::{DocumentKind, OwnerId, Page, TagsPage};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};

use crate::filter::{self, begins_with};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::Reading;

/// Adds an entry's tags to the index.
pub(crate) async fn add(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
    tags: &[&String],
) -> Result<(), Failure> {
    if tags.is_empty() {
        return Ok(());
    }
    // Raw SQL for `unnest`: the same statement for any number of tags.
    let insert = "INSERT INTO context.entry_tags (owner_id, tag, id) SELECT ?, t.tag, ? FROM unnest(?) AS t(tag)";
    let tags = Bind::Texts(tags.iter().map(|tag| tag.as_str().into()).collect());
    sql::execute(
        conn,
        Fragment::prepared(
            insert,
            vec![Bind::text(owner.as_str()), Bind::Int(id), tags],
        ),
    )
    .await?;
    Ok(())
}

/// Removes these pairs of an entry's id and a tag from the index.
pub(crate) async fn remove(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    pairs: &[(i64, String)],
) -> Result<(), Failure> {
    if pairs.is_empty() {
        return Ok(());
    }
    // Raw SQL for `unnest`: the same statement for any number of pairs.
    let delete = "DELETE FROM context.entry_tags AS t USING unnest(?, ?) AS gone(id, tag) \
                  WHERE t.owner_id = ? AND t.tag = gone.tag AND t.id = gone.id";
    let ids = Bind::ints(pairs.iter().map(|(id, _)| *id));
    let tags = Bind::Texts(pairs.iter().map(|(_, tag)| tag.as_str().into()).collect());
    sql::execute(
        conn,
        Fragment::prepared(delete, vec![ids, tags, Bind::text(owner.as_str())]),
    )
    .await?;
    Ok(())
}

/// A page of the tags of the entries that satisfy a filter, most frequent first.
pub(crate) struct List {
    pub filter: Filter,
    pub prefix: Option<TagPrefix>,
    pub page: Page,
    pub indexed: Arc<[MetadataPath]>,
}

#[derive(QueryableByName)]
struct Listed {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = BigInt)]
    total: i64,
    #[diesel(sql_type = Nullable<Text>)]
    tag: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    entry_count: Option<i64>,
}

impl Reading for List {
    type Outcome = TagsPage;

    fn empty(&self) -> TagsPage {
        TagsPage::EMPTY
    }

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.indexed))
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, TagsPage)>, Failure> {
        // Raw SQL for the CTE and LATERAL: the tags are counted once, and the owner has a row even where the page has
        // none.
        let select = fragment!(
            "WITH counted AS ({counted}) SELECT o.revision, (SELECT count(*) FROM counted) AS total, t.tag, t.entry_count \
             FROM context.owners AS o LEFT JOIN LATERAL \
             (SELECT tag, entry_count FROM counted ORDER BY entry_count DESC, tag LIMIT ? OFFSET ?) AS t ON true \
             WHERE o.owner_id = ? ORDER BY t.entry_count DESC, t.tag",
            self.counted(owner),
            Bind::Int(i64::from(self.page.limit)),
            Bind::Int(i64::try_from(self.page.offset).unwrap_or(i64::MAX)),
            Bind::text(owner.as_str()),
        );
        let rows: Vec<Listed> = sql::query(conn, select).await?;
        let Some(first) = rows.as_slice().first() else {
            return Ok(None);
        };
        let (revision, total) = (first.revision, first.total);
        let tag = |row: Listed| {
            Some(TagCount {
                tag: row.tag?,
                entry_count: row.entry_count?,
            })
        };
        let tags = rows.into_iter().filter_map(tag).collect();
        Ok(Some((
            revision,
            TagsPage {
                tags,
                total,
                revision,
            },
        )))
    }
}

impl List {
    /// The tags with their counts, in any order.
    fn counted<'v>(&'v self, owner: &'v OwnerId) -> Fragment<'v> {
        let mut select = if self.filter == Filter::default() {
            fragment!(
                "SELECT tag, count(*) AS entry_count FROM context.entry_tags WHERE owner_id = ?",
                Bind::text(owner.as_str()),
            )
        } else {
            // Tags are read from the entries that match. The index from tags to entries would have to be read whole.
            fragment!(
                "SELECT tag, count(*) AS entry_count FROM context.entries AS entries \
                 CROSS JOIN LATERAL unnest(entries.tags) AS tag WHERE {filter}",
                filter::compile(
                    DocumentKind::Context,
                    &self.filter,
                    owner.as_str(),
                    &self.indexed
                ),
            )
        };
        if let Some(prefix) = &self.prefix {
            select
                .push(" AND ")
                .append(begins_with("tag", prefix.as_str()));
        }
        select.push(" GROUP BY tag");
        select
    }
}
