//! The rows of entries and their conversion to entries.

use context_model::{ContentType, Error, JsonObject, ObjectText, Reason, Source, Timestamp};
use context_store::seal::{self, Checked, Part, StoredContent};
use context_store::{RowSelection, StoreError, StoredEntry, Taken, unreadable};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::cancel;
use crate::columns::LossyText;
use crate::failure::store_error;
use crate::images::{self, Images};
use crate::owners::id_of_row;
use crate::schema::{entries, entry_tags};

/// An entry's row, without the columns that are only used in conditions.
#[derive(Debug, Clone, Queryable, Selectable)]
#[diesel(table_name = entries)]
pub(crate) struct EntryRow {
    pub row_id: i64,
    #[diesel(deserialize_as = LossyText)]
    pub thread_id: String,
    #[diesel(deserialize_as = LossyText)]
    pub source: String,
    pub image_count: i64,
    pub version: i64,
    pub created_at: i64,
    pub updated_at: i64,
    #[diesel(deserialize_as = LossyText)]
    pub tags: String,
    #[diesel(deserialize_as = LossyText)]
    pub summary: String,
    #[diesel(deserialize_as = LossyText)]
    pub metadata: String,
    #[diesel(deserialize_as = LossyText)]
    pub text: String,
    pub seal: Option<Vec<u8>>,
}

impl EntryRow {
    fn bytes(&self) -> u64 {
        (self.text.len()
            + self.metadata.len()
            + self.tags.len()
            + self.summary.len()
            + self.thread_id.len()) as u64
    }

    /// The content that the checksums cover.
    pub fn content(&self) -> StoredContent<'_> {
        let Self {
            row_id,
            version,
            metadata,
            text,
            seal,
            ..
        } = self;
        StoredContent {
            id: id_of_row(*row_id),
            version: *version,
            seal: seal.as_deref(),
            text,
            metadata,
        }
    }

    /// The entry, without images. At most `text_chars` characters of the text were read.
    pub fn into_entry(self, text_chars: Option<u32>) -> StoredEntry {
        let checked = seal::check_entry(&self.content(), seal::is_whole(&self.text, text_chars));
        let Self {
            row_id,
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
            seal: _,
        } = self;
        let mut damage = if let Checked::Damaged(part) = checked {
            Some(part)
        } else {
            None
        };
        let metadata = ObjectText::from_slice(metadata.as_bytes()).unwrap_or_else(|_| {
            damage.get_or_insert(Part::Metadata);
            ObjectText::default()
        });
        let tags = parse_tags(&tags).unwrap_or_else(|_| {
            damage.get_or_insert(Part::Tags);
            Vec::new()
        });
        let source = Source::named(&source).unwrap_or_else(|| {
            damage.get_or_insert(Part::Source);
            Source::User
        });
        StoredEntry {
            id: id_of_row(row_id),
            thread_id,
            source,
            content_type: ContentType::of(usize::from(image_count > 0)),
            text,
            summary,
            metadata,
            tags,
            created_at: Timestamp(created_at),
            updated_at: Timestamp(updated_at),
            version,
            images: None,
            damage,
        }
    }
}

pub(crate) fn parse_source(text: &str) -> Result<Source, StoreError> {
    Source::named(text).ok_or_else(|| unreadable("source", None))
}

pub(crate) fn parse_metadata(json: &str) -> Result<JsonObject, StoreError> {
    serde_json::from_str(json).map_err(|e| unreadable("metadata", Some(e)))
}

/// The source, for work that must not stop at a damaged row: its deletion and the full-text index.
pub(crate) fn source_or_user(text: &str) -> Source {
    Source::named(text).unwrap_or(Source::User)
}

pub(crate) fn parse_tags(json: &str) -> Result<Vec<String>, StoreError> {
    serde_json::from_str(json).map_err(|e| unreadable("tags", Some(e)))
}

/// The tags of a row. If its own list is damaged, they are read from the index of tags, which takes a scan of the
/// owner's tags.
pub(crate) fn tags_of(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
    json: &str,
) -> QueryResult<Vec<String>> {
    if let Ok(tags) = parse_tags(json)
        && !json.contains(char::REPLACEMENT_CHARACTER)
    {
        return Ok(tags);
    }
    let tags: Vec<LossyText> = entry_tags::table
        .filter(entry_tags::owner.eq(owner))
        .filter(entry_tags::row_id.eq(row_id))
        .order(entry_tags::tag)
        .select(entry_tags::tag)
        .load(conn)?;
    Ok(tags.into_iter().map(String::from).collect())
}

pub(crate) fn tags_json(tags: &[String]) -> String {
    serde_json::json!(tags).to_string()
}

diesel::define_sql_function! {
    /// SQLite's `substr`, which counts in characters.
    fn substr(text: diesel::sql_types::Text, start: diesel::sql_types::BigInt, length: diesel::sql_types::BigInt) -> diesel::sql_types::Text;
}

/// The row with this row id. The text is truncated to its first characters.
fn find_start(
    conn: &mut SqliteConnection,
    row_id: i64,
    chars: u32,
) -> QueryResult<Option<EntryRow>> {
    entries::table
        .find(row_id)
        .select((
            entries::row_id,
            entries::thread_id,
            entries::source,
            entries::image_count,
            entries::version,
            entries::created_at,
            entries::updated_at,
            entries::tags,
            entries::summary,
            entries::metadata,
            substr(entries::text, 1, i64::from(chars)),
            entries::seal,
        ))
        .get_result(conn)
        .optional()
}

/// The row with this row id.
pub(crate) fn find(conn: &mut SqliteConnection, row_id: i64) -> QueryResult<Option<EntryRow>> {
    entries::table
        .find(row_id)
        .select(EntryRow::as_select())
        .get_result(conn)
        .optional()
}

/// The entries with these row ids, in the same order. Unknown ids are skipped.
///
/// # Errors
/// `RESULT_TOO_LARGE` when two or more entries exceed the bytes of the selection, and `OVERLOADED` when they exceed its
/// memory budget. Reading stops there.
pub(crate) fn load(
    conn: &mut SqliteConnection,
    owner: i64,
    row_ids: &[i64],
    selection: &RowSelection,
) -> Result<Vec<StoredEntry>, StoreError> {
    let (entries, taken) = load_taking(conn, owner, row_ids, selection)?;
    taken.keep();
    Ok(entries)
}

/// Like [`load`], for a read that may run again: the bytes taken from the memory budget are given back unless the
/// caller keeps them.
pub(crate) fn load_taking(
    conn: &mut SqliteConnection,
    owner: i64,
    row_ids: &[i64],
    selection: &RowSelection,
) -> Result<(Vec<StoredEntry>, Taken), StoreError> {
    let mut taken = Taken::new(selection.memory.clone());
    let mut found = Vec::with_capacity(row_ids.len());
    let mut with_images = Vec::new();
    let mut bytes = 0u64;
    for &row_id in row_ids {
        // Each row is a statement of its own, too short for SQLite's own cancellation check.
        cancel::check().map_err(store_error)?;
        let row = match selection.text_chars {
            None => find(conn, row_id),
            Some(chars) => find_start(conn, row_id, chars),
        };
        let Some(row) = row.map_err(store_error)? else {
            continue;
        };
        bytes = bytes.saturating_add(row.bytes());
        taken.take(row.bytes())?;
        if bytes > selection.max_bytes && !found.is_empty() {
            return Err(too_large(selection));
        }
        if row.image_count > 0 {
            with_images.push(row_id);
        }
        let image_count = row.image_count;
        found.push((row_id, image_count, row.into_entry(selection.text_chars)));
    }
    if selection.images {
        if !with_images.is_empty() {
            let image_bytes = images::bytes(conn, owner, &with_images).map_err(store_error)?;
            if found.len() > 1 && bytes.saturating_add(image_bytes) > selection.max_bytes {
                return Err(too_large(selection));
            }
            taken.take(image_bytes)?;
        }
        let mut images = images::load(conn, owner, &with_images, &mut taken)?;
        for (row_id, image_count, entry) in &mut found {
            let Images { images, sound } = images.remove(row_id).unwrap_or_default();
            if !sound || i64::try_from(images.len()) != Ok(*image_count) {
                entry.damage.get_or_insert(Part::Images);
            }
            entry.images = Some(images);
        }
    }
    let entries = found.into_iter().map(|(_, _, entry)| entry).collect();
    Ok((entries, taken))
}

fn too_large(selection: &RowSelection) -> StoreError {
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
