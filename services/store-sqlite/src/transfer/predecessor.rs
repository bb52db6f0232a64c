//! Reads a database file of an mcp-context-server.

use std::collections::HashMap;
use std::path::Path;

use async_trait::async_trait;
use context_model::Timestamp;
use context_store::transfer::TransferError;
use context_store::transfer::predecessor::{
    Listed, OldDatabase, OldEntry, OldId, OldImage, OldTime,
};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use super::Worker;
use crate::sql::{self, Bind, Fragment};

/// The differences between versions of mcp-context-server, as far as the columns show them.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// Ids are UUIDs: version 3.
    uuids: bool,
    /// Entries have summaries: version 2 or later.
    summaries: bool,
    /// Entries count their updates: version 3.
    versions: bool,
}

/// A file of an mcp-context-server, read in one transaction.
pub(super) struct OldFile {
    worker: Worker,
    shape: Shape,
}

#[derive(QueryableByName)]
struct ColumnRow {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    kind: String,
}

impl OldFile {
    pub async fn open(mut worker: Worker, path: &Path) -> Result<Self, TransferError> {
        let columns =
            Fragment::new("SELECT name, type AS kind FROM pragma_table_info('context_entries')");
        let columns: Vec<ColumnRow> = worker
            .run(move |conn| sql::query::<ColumnRow>(conn, &columns))
            .await?;
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
            return Err(TransferError::Refused(format!(
                "the database {} was made neither by this service nor by an mcp-context-server",
                path.display()
            )));
        }
        let uuids = columns
            .iter()
            .any(|column| column.name == "id" && column.kind.eq_ignore_ascii_case("text"));
        let shape = Shape {
            uuids,
            summaries: has("summary"),
            versions: has("version"),
        };
        Ok(Self { worker, shape })
    }
}

// The queries cast values to text, because SQLite stores any type in any column.
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
    #[diesel(sql_type = Nullable<Text>)]
    created_at: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    updated_at: Option<String>,
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
    fn old_id(self, text: &str) -> Option<OldId> {
        if self.uuids {
            OldId::parse_uuid(text)
        } else {
            text.parse().ok().map(OldId::Number)
        }
    }

    fn bind(self, id: OldId) -> Bind {
        match id {
            OldId::Number(number) => Bind::Int(number),
            OldId::Uuid(_) => Bind::Text(id.to_string()),
        }
    }

    /// A list of ids as a subquery with one bound value.
    fn among(self, ids: &[OldId]) -> Fragment {
        let ids: Vec<serde_json::Value> = ids
            .iter()
            .map(|id| match id {
                OldId::Number(number) => (*number).into(),
                OldId::Uuid(_) => id.to_string().into(),
            })
            .collect();
        let mut list = Fragment::new("(SELECT value FROM json_each(");
        list.bind(Bind::Text(serde_json::json!(ids).to_string()))
            .push("))");
        list
    }
}

/// Parses a time. The old server writes UTC, with or without an explicit offset.
fn moment(text: Option<String>) -> OldTime {
    let Some(text) = text else {
        return OldTime::Missing;
    };
    match Timestamp::parse(&text, false) {
        Ok(time) => OldTime::At(time.micros()),
        Err(_) => OldTime::Unreadable(text),
    }
}

#[async_trait]
impl OldDatabase for OldFile {
    fn shown(&self) -> &str {
        &self.worker.shown
    }

    async fn list(&mut self) -> Result<Vec<Listed>, TransferError> {
        let (shape, shown) = (self.shape, self.worker.shown.clone());
        let mut select = Fragment::new(
            "SELECT CAST(e.id AS TEXT) AS id, \
                 octet_length(coalesce(e.text_content, '')) + octet_length(coalesce(e.metadata, '')) AS bytes, \
                 (SELECT count(*) FROM image_attachments i WHERE i.context_entry_id = e.id) AS images \
             FROM context_entries e ORDER BY ",
        );
        select.push(if shape.uuids {
            "e.created_at, e.id"
        } else {
            "e.id"
        });
        let rows: Vec<ListRow> = self
            .worker
            .run(move |conn| sql::query::<ListRow>(conn, &select))
            .await?;
        let small = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
        let listed = |ListRow { id, bytes, images }| match shape.old_id(&id) {
            Some(id) => Ok(Listed {
                id,
                bytes: small(bytes),
                images: small(images),
            }),
            None => Err(TransferError::Refused(format!(
                "the entry `{id}` of {shown} has an id that is not a {}",
                shape.name()
            ))),
        };
        rows.into_iter().map(listed).collect()
    }

    async fn entries(&mut self, ids: &[OldId]) -> Result<Vec<OldEntry>, TransferError> {
        let shape = self.shape;
        let mut select = Fragment::new(
            "SELECT CAST(id AS TEXT) AS id, CAST(thread_id AS TEXT) AS thread_id, \
                 CAST(source AS TEXT) AS source, CAST(text_content AS TEXT) AS text, \
                 CAST(metadata AS TEXT) AS metadata, CAST(created_at AS TEXT) AS created_at, \
                 CAST(updated_at AS TEXT) AS updated_at, ",
        );
        select.push(if shape.summaries {
            "CAST(summary AS TEXT) AS summary, "
        } else {
            "NULL AS summary, "
        });
        select.push(if shape.versions {
            "version AS changes"
        } else {
            "0 AS changes"
        });
        select
            .push(" FROM context_entries WHERE id IN ")
            .append(shape.among(ids));
        let mut tags = Fragment::new(
            "SELECT CAST(context_entry_id AS TEXT) AS id, CAST(tag AS TEXT) AS tag \
             FROM tags WHERE context_entry_id IN ",
        );
        tags.append(shape.among(ids))
            .push(" ORDER BY context_entry_id, tag");
        let read = move |conn: &mut diesel::sqlite::SqliteConnection| {
            Ok::<_, diesel::result::Error>((
                sql::query::<EntryRow>(conn, &select)?,
                sql::query::<TagRow>(conn, &tags)?,
            ))
        };
        let (rows, tags) = self.worker.run(read).await?;
        let mut found: HashMap<OldId, OldEntry> = HashMap::with_capacity(rows.len());
        for EntryRow {
            id,
            thread_id,
            source,
            text,
            metadata,
            summary,
            created_at,
            updated_at,
            changes,
        } in rows
        {
            let Some(id) = shape.old_id(&id) else {
                continue;
            };
            let (text, created_at, updated_at) = (
                text.unwrap_or_default(),
                moment(created_at),
                moment(updated_at),
            );
            let tags = Vec::new();
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
        let gone = |id: &OldId| {
            TransferError::Refused(format!(
                "the entry {id} of {} cannot be read",
                self.worker.shown
            ))
        };
        ids.iter()
            .map(|id| found.remove(id).ok_or_else(|| gone(id)))
            .collect()
    }

    async fn images(&mut self, id: OldId) -> Result<Vec<OldImage>, TransferError> {
        let mut select = Fragment::new(
            "SELECT CAST(image_data AS BLOB) AS data, CAST(mime_type AS TEXT) AS mime_type, \
                 CAST(image_metadata AS TEXT) AS metadata \
             FROM image_attachments WHERE context_entry_id = ",
        );
        select
            .bind(self.shape.bind(id))
            .push(" ORDER BY position, id");
        let rows: Vec<ImageRow> = self
            .worker
            .run(move |conn| sql::query::<ImageRow>(conn, &select))
            .await?;
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

impl Shape {
    const fn name(self) -> &'static str {
        if self.uuids { "UUID" } else { "number" }
    }
}
