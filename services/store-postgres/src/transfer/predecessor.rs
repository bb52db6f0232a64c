//! Reads the tables of an mcp-context-server, the predecessor of this service.

use std::collections::HashMap;

use async_trait::async_trait;
use context_store::transfer::TransferError;
use context_store::transfer::predecessor::{
    Listed, OldDatabase, OldEntry, OldId, OldImage, OldTime,
};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::Link;
use crate::pg::sql::{self, Bind, Fragment, fragment};

/// The version of the predecessor's tables, as their columns show it.
#[derive(Debug, Clone)]
struct Shape {
    /// The schema of the tables, quoted.
    schema: String,
    /// Ids are UUIDs (version 3).
    uuids: bool,
    /// Entries have summaries (since version 2).
    summaries: bool,
    /// Entries count their changes (version 3).
    versions: bool,
}

/// The predecessor's tables, read in one snapshot.
pub(super) struct OldTables {
    link: Link,
    shape: Shape,
}

#[derive(QueryableByName)]
struct ColumnRow {
    #[diesel(sql_type = Text)]
    schema: String,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    kind: String,
}

impl OldTables {
    pub async fn open(mut link: Link) -> Result<Self, TransferError> {
        let Link { conn, shown, .. } = &mut link;
        // The old server's schema is configurable (`public` by default), so every schema is searched.
        let columns = "SELECT quote_ident(c.table_schema) AS schema, c.column_name::text AS name, c.data_type::text AS kind \
                       FROM information_schema.columns AS c WHERE c.table_name = 'context_entries'";
        let columns: Vec<ColumnRow> = sql::query(conn, Fragment::prepared(columns, Vec::new()))
            .await
            .map_err(Link::failed(shown))?;
        let mut schemas: Vec<&str> = columns
            .iter()
            .map(|column| column.schema.as_str())
            .collect();
        schemas.sort_unstable();
        schemas.dedup();
        let refused = |why: String| Err(TransferError::Refused(why));
        let schema = match schemas.as_slice() {
            [] => {
                return refused(format!(
                    "the database {shown} was made neither by this service nor by an mcp-context-server"
                ));
            }
            [one] => (*one).to_owned(),
            several => {
                return refused(format!(
                    "the database {shown} has several tables `context_entries`, in the schemas {}; \
                     use a role that sees only one",
                    several.join(", ")
                ));
            }
        };
        let has = |name: &str| columns.iter().any(|column| column.name == name);
        if ![
            "id",
            "thread_id",
            "source",
            "text_content",
            "metadata",
            "created_at",
        ]
        .into_iter()
        .all(has)
        {
            return refused(format!(
                "the table {schema}.context_entries of {shown} was not made by an mcp-context-server"
            ));
        }
        let uuids = columns
            .iter()
            .any(|column| column.name == "id" && column.kind == "uuid");
        let shape = Shape {
            schema,
            uuids,
            summaries: has("summary"),
            versions: has("version"),
        };
        Ok(Self { link, shape })
    }
}

#[derive(QueryableByName)]
struct ListRow {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = BigInt)]
    bytes: i64,
    #[diesel(sql_type = BigInt)]
    images: i64,
}

#[derive(QueryableByName)]
struct EntryRow {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    thread_id: String,
    #[diesel(sql_type = Text)]
    source: String,
    #[diesel(sql_type = Nullable<Text>)]
    text: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    summary: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    created_at: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    created_text: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    updated_at: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    updated_text: Option<String>,
    #[diesel(sql_type = BigInt)]
    changes: i64,
}

#[derive(QueryableByName)]
struct TagRow {
    #[diesel(sql_type = Text)]
    id: String,
    #[diesel(sql_type = Text)]
    tag: String,
}

#[derive(QueryableByName)]
struct ImageRow {
    #[diesel(sql_type = Binary)]
    data: Vec<u8>,
    #[diesel(sql_type = Text)]
    mime_type: String,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
}

impl Shape {
    fn old_id(&self, text: &str) -> Option<OldId> {
        if self.uuids {
            OldId::parse_uuid(text)
        } else {
            text.parse().ok().map(OldId::Number)
        }
    }

    /// The condition that a column is one of these ids.
    fn among(&self, ids: &[OldId]) -> Fragment<'static> {
        if self.uuids {
            let ids = ids.iter().map(|id| id.to_string().into());
            return fragment!("= ANY(?::uuid[])", Bind::Texts(ids.collect()));
        }
        let number = |id: &OldId| match id {
            OldId::Number(number) => *number,
            _ => 0,
        };
        fragment!("= ANY(?)", Bind::ints(ids.iter().map(number)))
    }

    /// The schema as a fragment of a statement.
    fn schema(&self) -> Fragment<'static> {
        Fragment::new(self.schema.clone())
    }
}

/// Selects a timestamptz column twice: in microseconds, NULL outside of the years 1 to 9999, and as text.
macro_rules! micros {
    ($name:literal) => {
        concat!(
            "CASE WHEN ",
            $name,
            "_at BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00' \
             THEN (extract(epoch FROM ",
            $name,
            "_at) * 1000000)::bigint END AS ",
            $name,
            "_at, ",
            $name,
            "_at::text AS ",
            $name,
            "_text"
        )
    };
}

fn moment(micros: Option<i64>, text: Option<String>) -> OldTime {
    match (micros, text) {
        (Some(micros), _) => OldTime::At(micros),
        (None, Some(text)) => OldTime::Unreadable(text),
        (None, None) => OldTime::Missing,
    }
}

#[async_trait]
impl OldDatabase for OldTables {
    fn shown(&self) -> &str {
        &self.link.shown
    }

    async fn list(&mut self) -> Result<Vec<Listed>, TransferError> {
        let (shape, Link { conn, shown, .. }) = (&self.shape, &mut self.link);
        let order = if shape.uuids {
            "e.created_at, e.id"
        } else {
            "e.id"
        };
        // Raw SQL here and below: the tables belong to another program, and their schema and columns vary.
        let select = fragment!(
            "SELECT e.id::text AS id, (coalesce(octet_length(e.text_content), 0) + coalesce(pg_column_size(e.metadata), 0))::bigint AS bytes, \
             (SELECT count(*) FROM {schema}.image_attachments AS i WHERE i.context_entry_id = e.id) AS images \
             FROM {schema}.context_entries AS e ORDER BY {order}",
            shape.schema(),
            shape.schema(),
            Fragment::new(order),
        );
        let rows: Vec<ListRow> = sql::query(conn, select)
            .await
            .map_err(Link::failed(shown))?;
        let small = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let listed = |ListRow { id, bytes, images }| match shape.old_id(&id) {
            Some(id) => Ok(Listed {
                id,
                bytes: small(bytes),
                images: small(images),
            }),
            None => Err(TransferError::Refused(format!(
                "the entry `{id}` of {shown} has an id of an unknown kind"
            ))),
        };
        rows.into_iter().map(listed).collect()
    }

    async fn entries(&mut self, ids: &[OldId]) -> Result<Vec<OldEntry>, TransferError> {
        let (shape, Link { conn, shown, .. }) = (&self.shape, &mut self.link);
        let summary = if shape.summaries {
            "summary"
        } else {
            "NULL::text"
        };
        let changes = if shape.versions {
            "version::bigint"
        } else {
            "0::bigint"
        };
        let select = fragment!(
            concat!(
                "SELECT id::text AS id, thread_id, source, text_content AS text, metadata::text AS metadata, ",
                micros!("created"),
                ", ",
                micros!("updated"),
                ", {summary} AS summary, {changes} AS changes FROM {schema}.context_entries WHERE id {among}"
            ),
            Fragment::new(summary),
            Fragment::new(changes),
            shape.schema(),
            shape.among(ids),
        );
        let rows: Vec<EntryRow> = sql::query(conn, select)
            .await
            .map_err(Link::failed(shown))?;
        let tags = fragment!(
            "SELECT context_entry_id::text AS id, tag FROM {schema}.tags WHERE context_entry_id {among}",
            shape.schema(),
            shape.among(ids),
        );
        let tags: Vec<TagRow> = sql::query(conn, tags).await.map_err(Link::failed(shown))?;
        let mut found: HashMap<OldId, OldEntry> = HashMap::with_capacity(rows.len());
        for EntryRow {
            id,
            thread_id,
            source,
            text,
            metadata,
            summary,
            created_at,
            created_text,
            updated_at,
            updated_text,
            changes,
        } in rows
        {
            let Some(id) = shape.old_id(&id) else {
                continue;
            };
            let (text, tags) = (text.unwrap_or_default(), Vec::new());
            let created_at = moment(created_at, created_text);
            let updated_at = moment(updated_at, updated_text);
            found.insert(
                id,
                OldEntry {
                    thread_id,
                    source,
                    text,
                    metadata,
                    summary,
                    created_at,
                    updated_at,
                    changes,
                    tags,
                },
            );
        }
        for TagRow { id, tag } in tags {
            if let Some(entry) = shape.old_id(&id).and_then(|id| found.get_mut(&id)) {
                entry.tags.push(tag);
            }
        }
        let missing = |id: &OldId| {
            TransferError::Refused(format!("the entry {id} of {shown} cannot be read"))
        };
        ids.iter()
            .map(|id| found.remove(id).ok_or_else(|| missing(id)))
            .collect()
    }

    async fn images(&mut self, id: OldId) -> Result<Vec<OldImage>, TransferError> {
        let (shape, Link { conn, shown, .. }) = (&self.shape, &mut self.link);
        let select = fragment!(
            "SELECT image_data AS data, mime_type, image_metadata::text AS metadata FROM {schema}.image_attachments \
             WHERE context_entry_id {among} ORDER BY position, id",
            shape.schema(),
            shape.among(&[id]),
        );
        let rows: Vec<ImageRow> = sql::query(conn, select)
            .await
            .map_err(Link::failed(shown))?;
        Ok(rows
            .into_iter()
            .map(
                |ImageRow {
                     data,
                     mime_type,
                     metadata,
                 }| OldImage {
                    data,
                    mime_type,
                    metadata,
                },
            )
            .collect())
    }
}
