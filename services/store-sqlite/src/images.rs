//! Stores and loads images. Their bytes are read only when they are requested.

use std::collections::HashMap;

use context_model::{ImageBytes, ImageInput, JsonObject, NewImage, held_bytes};
use context_store::{StoreError, Taken, seal};
use diesel::prelude::*;
use diesel::sql_types::{Binary, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::failure::store_error;
use crate::owners::id_of_row;
use crate::schema::images;

/// Position, media type, metadata, data and checksum.
type ImageRow = (i64, LossyText, Option<LossyText>, Vec<u8>, Option<Vec<u8>>);

define_sql_function! {
    /// Length of a value in bytes. The length of a stored blob is in the row's header, so the blob is not read.
    fn octet_length(data: Binary) -> BigInt;
}

define_sql_function! {
    /// Length of a text in bytes.
    #[sql_name = "octet_length"]
    fn text_octet_length(text: Nullable<Text>) -> Nullable<BigInt>;
}

/// The images of an entry.
#[derive(Debug)]
pub(crate) struct Images {
    /// The images, in order.
    pub images: Vec<ImageInput>,
    /// Whether each image matches its checksum, and its metadata can be parsed.
    pub sound: bool,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            images: Vec::new(),
            sound: true,
        }
    }
}

/// Stores the images of an entry, in order.
pub(crate) fn insert(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
    given: &[NewImage],
) -> QueryResult<()> {
    let id = id_of_row(row_id);
    for (position, image) in (0i64..).zip(given) {
        let metadata = image
            .metadata
            .as_ref()
            .map(context_model::Metadata::to_json);
        let seal = seal::image(
            id,
            position,
            &image.mime_type,
            metadata.as_deref(),
            &image.data,
        );
        diesel::insert_into(images::table)
            .values((
                images::owner.eq(owner),
                images::row_id.eq(row_id),
                images::position.eq(position),
                images::mime_type.eq(&image.mime_type),
                images::metadata.eq(metadata),
                images::data.eq(&image.data[..]),
                images::seal.eq(&seal[..]),
            ))
            .execute(conn)?;
    }
    Ok(())
}

/// Deletes the images of an entry.
pub(crate) fn delete(conn: &mut SqliteConnection, owner: i64, row_id: i64) -> QueryResult<()> {
    diesel::delete(
        images::table
            .filter(images::owner.eq(owner))
            .filter(images::row_id.eq(row_id)),
    )
    .execute(conn)?;
    Ok(())
}

/// The images of an entry, in order.
pub(crate) fn of_entry(
    conn: &mut SqliteConnection,
    owner: i64,
    row_id: i64,
) -> Result<Vec<ImageInput>, StoreError> {
    let images = load(conn, owner, &[row_id], &mut Taken::default())?.remove(&row_id);
    Ok(images.unwrap_or_default().images)
}

/// Total size of the images of these entries and of their metadata in bytes, without reading them.
pub(crate) fn bytes(conn: &mut SqliteConnection, owner: i64, row_ids: &[i64]) -> QueryResult<u64> {
    let mut bytes = 0;
    // A statement for one entry stays prepared. A statement for a list would be prepared for every call.
    for &row_id in row_ids {
        let of_entry = images::table
            .filter(images::owner.eq(owner))
            .filter(images::row_id.eq(row_id));
        let lengths: Vec<(i64, Option<i64>)> = of_entry
            .select((
                octet_length(images::data),
                text_octet_length(images::metadata),
            ))
            .load(conn)?;
        bytes += lengths
            .iter()
            .map(|(data, metadata)| (data + metadata.unwrap_or(0)).unsigned_abs())
            .sum::<u64>();
    }
    Ok(bytes)
}

/// The images of these entries by row id, in order. Takes the memory of their parsed metadata.
pub(crate) fn load(
    conn: &mut SqliteConnection,
    owner: i64,
    row_ids: &[i64],
    taken: &mut Taken,
) -> Result<HashMap<i64, Images>, StoreError> {
    let mut found = HashMap::new();
    for &row_id in row_ids {
        let rows: Vec<ImageRow> = images::table
            .filter(images::owner.eq(owner))
            .filter(images::row_id.eq(row_id))
            .order(images::position)
            .select((
                images::position,
                images::mime_type,
                images::metadata,
                images::data,
                images::seal,
            ))
            .load(conn)
            .map_err(store_error)?;
        let mut images = Images::default();
        for (position, mime_type, metadata, data, seal) in rows {
            let mime_type = String::from(mime_type);
            let metadata = metadata.map(String::from);
            images.sound &= seal::agrees(seal.as_deref(), || {
                seal::image(
                    id_of_row(row_id),
                    position,
                    &mime_type,
                    metadata.as_deref(),
                    &data,
                )
            });
            let metadata: Option<JsonObject> = metadata.and_then(|json| {
                let object = serde_json::from_str(&json);
                images.sound &= object.is_ok();
                object.ok()
            });
            taken.take(metadata.as_ref().map_or(0, held_bytes) as u64)?;
            images.images.push(ImageInput {
                data: ImageBytes(data),
                mime_type: Some(mime_type),
                metadata,
            });
        }
        if !images.images.is_empty() {
            found.insert(row_id, images);
        }
    }
    Ok(found)
}
