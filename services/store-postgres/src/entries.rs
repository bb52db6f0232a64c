//! The rows of entries and how they become entries.

use context_model::{ContentType, Error, JsonObject, Reason, Source, Timestamp};
use context_store::{OwnerId, RowSelection, StoreError, StoredEntry};
use diesel::QueryableByName;
use diesel::sql_types::{Array, BigInt, Double, Nullable, Text};

use crate::connection::AsyncPgConnection;
use crate::failure::{Failure, unreadable};
use crate::images;
use crate::sql::{self, Bind, Fragment};

/// An entry's row, without what only conditions need.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct EntryRow {
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    #[diesel(sql_type = Text)]
    pub thread_id: String,
    #[diesel(sql_type = Text)]
    pub source: String,
    #[diesel(sql_type = BigInt)]
    pub image_count: i64,
    #[diesel(sql_type = BigInt)]
    pub version: i64,
    #[diesel(sql_type = BigInt)]
    pub created_at: i64,
    #[diesel(sql_type = BigInt)]
    pub updated_at: i64,
    #[diesel(sql_type = Array<Text>)]
    pub tags: Vec<String>,
    #[diesel(sql_type = Text)]
    pub summary: String,
    #[diesel(sql_type = Text)]
    pub metadata: String,
    #[diesel(sql_type = Text)]
    pub text: String,
}

impl EntryRow {
    fn bytes(&self) -> u64 {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + 3).sum();
        (self.text.len() + self.metadata.len() + tags + self.summary.len() + self.thread_id.len()) as u64
    }

    /// The entry, without images.
    fn into_entry(self) -> Result<StoredEntry, StoreError> {
        let Self { id, thread_id, source, image_count, version, created_at, updated_at, tags, summary, metadata, text } = self;
        Ok(StoredEntry {
            id,
            thread_id,
            source: parse_source(&source)?,
            content_type: ContentType::of(usize::from(image_count > 0)),
            text,
            summary,
            metadata: parse_metadata(&metadata)?,
            tags,
            created_at: Timestamp(created_at),
            updated_at: Timestamp(updated_at),
            version,
            images: None,
        })
    }
}

pub(crate) fn parse_source(text: &str) -> Result<Source, StoreError> {
    [Source::User, Source::Agent].into_iter().find(|source| source.as_str() == text).ok_or_else(|| unreadable("source", None))
}

pub(crate) fn parse_metadata(json: &str) -> Result<JsonObject, StoreError> {
    serde_json::from_str(json).map_err(|e| unreadable("metadata", Some(e)))
}

/// The row with this id.
pub(crate) async fn find(conn: &mut AsyncPgConnection, owner: &OwnerId, id: i64) -> Result<Option<EntryRow>, Failure> {
    let find = "SELECT id, thread_id, source, image_count, version, created_at, updated_at, tags, summary, metadata::text AS metadata, \
                text FROM context.entries WHERE owner_id = ? AND id = ?";
    let rows = sql::query(conn, Fragment::prepared(find, vec![Bind::text(owner.as_str()), Bind::Int(id)])).await?;
    Ok(rows.into_iter().next())
}

/// What a page's statement selects of the owner `o` and the entry `e`, which may be missing.
pub(crate) fn page_columns(selection: RowSelection) -> Fragment<'static> {
    let mut columns = Fragment::new(
        "o.revision, e.id, e.thread_id, e.source, e.image_count, e.version, e.created_at, e.updated_at, e.tags, e.summary, \
         e.metadata::text AS metadata, ",
    );
    match selection.text_chars {
        None => _ = columns.push("e.text"),
        Some(chars) => _ = columns.push("left(e.text, ").bind(Bind::Int(i64::from(chars))).push("::int) AS text"),
    }
    columns
}

#[derive(QueryableByName)]
pub(crate) struct PageRow {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    matches: Option<i64>,
    #[diesel(sql_type = Nullable<Double>)]
    score: Option<f64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    thread_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    source: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    image_count: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    version: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    created_at: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    updated_at: Option<i64>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    tags: Option<Vec<String>>,
    #[diesel(sql_type = Nullable<Text>)]
    summary: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    text: Option<String>,
}

impl PageRow {
    /// `None` for the row of a page without entries.
    fn into_row(self) -> Option<(EntryRow, f64)> {
        let Self {
            revision: _,
            matches: _,
            score,
            id,
            thread_id,
            source,
            image_count,
            version,
            created_at,
            updated_at,
            tags,
            summary,
            metadata,
            text,
        } = self;
        let row = EntryRow {
            id: id?,
            thread_id: thread_id?,
            source: source?,
            image_count: image_count?,
            version: version?,
            created_at: created_at?,
            updated_at: updated_at?,
            tags: tags?,
            summary: summary?,
            metadata: metadata?,
            text: text?,
        };
        Some((row, score.unwrap_or_default()))
    }
}

/// A page as it was read.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The owner's revision; `None` when the owner never wrote.
    pub revision: Option<i64>,
    /// How many entries matched, where that was asked.
    pub matches: i64,
    /// The entries in order, with their scores.
    pub entries: Vec<(StoredEntry, f64)>,
    /// Those of them that have images.
    pub with_images: Vec<i64>,
    bytes: u64,
}

/// Runs a page's statement.
///
/// # Errors
/// `RESULT_TOO_LARGE` when two or more entries exceed the bytes of the selection; no more than that is read.
pub(crate) async fn load(conn: &mut AsyncPgConnection, statement: Fragment<'_>, selection: RowSelection) -> Result<Loaded, Failure> {
    let mut loaded = Loaded::default();
    sql::each(conn, statement, Failure::Database, |row: PageRow| {
        loaded.revision = Some(row.revision);
        loaded.matches = row.matches.unwrap_or_default();
        let Some((row, score)) = row.into_row() else { return Ok(()) };
        loaded.bytes = loaded.bytes.saturating_add(row.bytes());
        if loaded.bytes > selection.max_bytes && !loaded.entries.is_empty() {
            return Err(too_large(selection));
        }
        if row.image_count > 0 {
            loaded.with_images.push(row.id);
        }
        loaded.entries.push((row.into_entry()?, score));
        Ok(())
    })
    .await?;
    Ok(loaded)
}

/// Reads the images of a page, in the transaction that read the page.
///
/// # Errors
/// `RESULT_TOO_LARGE`, before they are read.
pub(crate) async fn load_images(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    loaded: &mut Loaded,
    selection: RowSelection,
) -> Result<(), Failure> {
    if !loaded.with_images.is_empty() && loaded.entries.len() > 1 {
        let bytes = images::bytes(conn, owner, &loaded.with_images).await?;
        if loaded.bytes.saturating_add(bytes) > selection.max_bytes {
            return Err(too_large(selection));
        }
    }
    let mut images =
        if loaded.with_images.is_empty() { Default::default() } else { images::load(conn, owner, &loaded.with_images).await? };
    for (entry, _) in &mut loaded.entries {
        entry.images = Some(images.remove(&entry.id).unwrap_or_default());
    }
    Ok(())
}

fn too_large(selection: RowSelection) -> Failure {
    let limit = selection.max_bytes;
    let advice = if selection.images {
        "ask with include_images=false, or for fewer entries"
    } else {
        "ask for fewer entries (include_images=false is set already)"
    };
    Error::new(Reason::ResultTooLarge, format!("the result would exceed {limit} bytes; {advice}")).into()
}
