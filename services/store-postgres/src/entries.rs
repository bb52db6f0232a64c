//! The rows of entries, and their conversion to entries.

use context_model::{ContentType, Error, ObjectText, Reason, Timestamp};
use context_store::seal::{self, Checked, Part, StoredContent};
use context_store::{OwnerId, RowSelection, StoredEntry, Taken};
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Binary, Double, Nullable, Text};
use diesel_async::RunQueryDsl;

use crate::columns::{LossyText, MetadataText, SourceColumn};
use crate::images::{self, Images};
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::schema::entries;

/// An entry's row, without its summary and the columns that only conditions use.
#[derive(Debug, Queryable)]
pub(crate) struct EntryRow {
    pub id: i64,
    pub thread_id: String,
    pub source: SourceColumn,
    pub image_count: i64,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    pub tags: Vec<String>,
    pub metadata: LossyText,
    pub text: LossyText,
    pub seal: Option<Vec<u8>>,
}

impl EntryRow {
    /// The content that its checksums cover.
    pub fn content(&self) -> StoredContent<'_> {
        let Self {
            id,
            version,
            metadata,
            text,
            seal,
            ..
        } = self;
        StoredContent {
            id: *id,
            version: *version,
            seal: seal.as_deref(),
            text: &text.0,
            metadata: &metadata.0,
        }
    }
}

/// The row with this id.
pub(crate) async fn find(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
) -> Result<Option<EntryRow>, Failure> {
    Ok(entries::table
        .find((owner.as_str(), id))
        .select((
            entries::id,
            entries::thread_id,
            entries::source,
            entries::image_count,
            entries::version,
            entries::created_at,
            entries::updated_at,
            entries::tags,
            entries::metadata,
            entries::text,
            entries::seal,
        ))
        .get_result(conn)
        .await
        .optional()?)
}

/// The columns of a page's statement, in the order of [`PageRow`], except `matches` and `score`, which come first. `o`
/// is the owner and `e` the entry, which may be missing.
pub(crate) fn page_columns(selection: &RowSelection) -> Fragment<'static> {
    let text = match selection.text_chars {
        None => Fragment::new("e.text"),
        Some(chars) => fragment!("left(e.text, ?::int) AS text", Bind::Int(i64::from(chars))),
    };
    fragment!(
        "o.revision, e.id, e.thread_id, e.source, e.image_count, e.version, e.created_at, e.updated_at, e.tags, e.summary, \
         e.seal, e.metadata::text AS metadata, {text}",
        text,
    )
}

/// A row of a page. Columns are read by position: looking them up by name would cost as much as reading them.
#[derive(Queryable)]
struct PageRow {
    matches: Option<i64>,
    score: Option<f64>,
    revision: i64,
    id: Option<i64>,
    thread_id: Option<String>,
    source: Option<SourceColumn>,
    image_count: Option<i64>,
    version: Option<i64>,
    created_at: Option<i64>,
    updated_at: Option<i64>,
    tags: Option<Vec<String>>,
    summary: Option<LossyText>,
    seal: Option<Vec<u8>>,
    metadata: Option<MetadataText>,
    text: Option<LossyText>,
}

type PageColumns = (
    Nullable<BigInt>,
    Nullable<Double>,
    BigInt,
    Nullable<BigInt>,
    Nullable<Text>,
    Nullable<Text>,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Nullable<BigInt>,
    Nullable<Array<Text>>,
    Nullable<Text>,
    Nullable<Binary>,
    Nullable<Text>,
    Nullable<Text>,
);

/// An entry of a page.
struct Paged {
    /// The entry without images.
    entry: StoredEntry,
    score: f64,
    image_count: i64,
    /// Its approximate size in a reply, in bytes.
    bytes: u64,
}

impl PageRow {
    /// `None` for the row of a page without entries. At most `text_chars` characters of the text were read.
    fn into_entry(self, text_chars: Option<u32>) -> Option<Paged> {
        let Self {
            matches: _,
            score,
            revision: _,
            id,
            thread_id,
            source,
            image_count,
            version,
            created_at,
            updated_at,
            tags,
            summary,
            seal,
            metadata,
            text,
        } = self;
        let (id, version, image_count) = (id?, version?, image_count?);
        let (SourceColumn(source), MetadataText(metadata), LossyText(text)) =
            (source?, metadata?, text?);
        let LossyText(summary) = summary?;
        let json = metadata.as_ref().map_or("", ObjectText::as_str);
        let content = StoredContent {
            id,
            version,
            seal: seal.as_deref(),
            text: &text,
            metadata: json,
        };
        let damage = match seal::check_entry(&content, seal::is_whole(&text, text_chars)) {
            Checked::Damaged(part) => Some(part),
            Checked::Sound | Checked::Unsealed => metadata.is_none().then_some(Part::Metadata),
        };
        let entry = StoredEntry {
            id,
            thread_id: thread_id?,
            source,
            content_type: ContentType::of(usize::from(image_count > 0)),
            text,
            summary,
            metadata: metadata.unwrap_or_default(),
            tags: tags?,
            created_at: Timestamp(created_at?),
            updated_at: Timestamp(updated_at?),
            version,
            images: None,
            damage,
        };
        let tags: usize = entry.tags.iter().map(|tag| tag.len() + 3).sum();
        let bytes = (entry.text.len()
            + entry.metadata.as_str().len()
            + tags
            + entry.summary.len()
            + entry.thread_id.len()) as u64;
        Some(Paged {
            entry,
            score: score.unwrap_or_default(),
            image_count,
            bytes,
        })
    }
}

/// A page as read from the database.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The owner's revision. `None` when the owner has never written.
    pub revision: Option<i64>,
    /// The number of matching entries, if requested.
    pub matches: i64,
    /// The entries in order, with their scores.
    pub entries: Vec<(StoredEntry, f64)>,
    /// The entries that have images, and the number of their images.
    pub with_images: Vec<(i64, i64)>,
    /// Whether the statement found more entries than were read.
    pub has_more: bool,
    /// The memory that it takes.
    pub taken: Taken,
    bytes: u64,
}

/// Runs a page's statement, and reads at most `limit` entries.
///
/// # Errors
/// `RESULT_TOO_LARGE` when two or more entries exceed the byte limit of the selection, `OVERLOADED` when there is no
/// memory for them. Reading stops there.
pub(crate) async fn load(
    conn: &mut AsyncPgConnection,
    statement: Fragment<'_>,
    selection: &RowSelection,
    limit: usize,
) -> Result<Loaded, Failure> {
    let mut loaded = Loaded {
        taken: Taken::new(selection.memory.clone()),
        ..Loaded::default()
    };
    sql::each_in_order::<PageColumns, PageRow, _>(conn, statement, Failure::Database, |row| {
        loaded.revision = Some(row.revision);
        loaded.matches = row.matches.unwrap_or_default();
        if loaded.entries.len() == limit {
            loaded.has_more = true;
            return Ok(());
        }
        let Some(Paged {
            entry,
            score,
            image_count,
            bytes,
        }) = row.into_entry(selection.text_chars)
        else {
            return Ok(());
        };
        loaded.bytes = loaded.bytes.saturating_add(bytes);
        loaded.taken.take(bytes)?;
        if loaded.bytes > selection.max_bytes && !loaded.entries.is_empty() {
            return Err(too_large(selection));
        }
        if image_count > 0 {
            loaded.with_images.push((entry.id, image_count));
        }
        loaded.entries.push((entry, score));
        Ok(())
    })
    .await?;
    Ok(loaded)
}

/// Reads a page's images, in the transaction that read the page.
///
/// # Errors
/// `RESULT_TOO_LARGE` before any image is read; `OVERLOADED`.
pub(crate) async fn load_images(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    loaded: &mut Loaded,
    selection: &RowSelection,
) -> Result<(), Failure> {
    let ids: Vec<i64> = loaded.with_images.iter().map(|(id, _)| *id).collect();
    let mut images = if ids.is_empty() {
        Default::default()
    } else {
        let bytes = images::bytes(conn, owner, &ids).await?;
        if loaded.entries.len() > 1 && loaded.bytes.saturating_add(bytes) > selection.max_bytes {
            return Err(too_large(selection));
        }
        loaded.taken.take(bytes)?;
        images::load(conn, owner, &ids, &mut loaded.taken).await?
    };
    for (entry, _) in &mut loaded.entries {
        let Images { images, sound } = images.remove(&entry.id).unwrap_or_default();
        let count = loaded
            .with_images
            .iter()
            .find(|(id, _)| *id == entry.id)
            .map_or(0, |(_, count)| *count);
        if !sound || i64::try_from(images.len()) != Ok(count) {
            entry.damage.get_or_insert(Part::Images);
        }
        entry.images = Some(images);
    }
    Ok(())
}

fn too_large(selection: &RowSelection) -> Failure {
    let limit = selection.max_bytes;
    let advice = if selection.images {
        "ask with include_images=false, or for fewer entries"
    } else {
        "ask for fewer entries (include_images=false is set already)"
    };
    Error::new(
        Reason::ResultTooLarge,
        format!("the result would exceed {limit} bytes; {advice}"),
    )
    .into()
}
