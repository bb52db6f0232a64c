//! The bytes of images, read only when asked for.

use std::collections::HashMap;

use context_model::{ImageBytes, ImageInput, NewImage};
use context_store::StoreError;
use context_store::seal;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::failure::store_error;
use crate::owners::id_of_row;
use crate::schema::images;
use crate::sql::{self, Bind, Fragment};

#[derive(QueryableByName)]
struct ImageRow {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = Text, deserialize_as = LossyText)]
    mime_type: String,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
    #[diesel(sql_type = BigInt)]
    position: i64,
    #[diesel(sql_type = Binary)]
    data: Vec<u8>,
    #[diesel(sql_type = Nullable<Binary>)]
    seal: Option<Vec<u8>>,
}

/// An entry's images.
#[derive(Debug)]
pub(crate) struct Images {
    /// In order.
    pub images: Vec<ImageInput>,
    /// Whether each is what was stored.
    pub sound: bool,
}

impl Default for Images {
    fn default() -> Self {
        Self { images: Vec::new(), sound: true }
    }
}

#[derive(QueryableByName)]
struct Size {
    #[diesel(sql_type = BigInt)]
    bytes: i64,
}

/// Stores an entry's images in order.
pub(crate) fn insert(conn: &mut SqliteConnection, owner: i64, row_id: i64, given: &[NewImage]) -> QueryResult<()> {
    let id = id_of_row(row_id);
    for (position, image) in (0i64..).zip(given) {
        let metadata = image.metadata.as_ref().map(context_model::Metadata::to_json);
        let seal = seal::image(id, position, &image.mime_type, metadata.as_deref(), &image.data);
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

/// Deletes an entry's images.
pub(crate) fn delete(conn: &mut SqliteConnection, owner: i64, row_id: i64) -> QueryResult<()> {
    diesel::delete(images::table.filter(images::owner.eq(owner)).filter(images::row_id.eq(row_id))).execute(conn)?;
    Ok(())
}

/// Whether an entry has exactly these images.
pub(crate) fn same(conn: &mut SqliteConnection, owner: i64, row_id: i64, given: &[NewImage]) -> Result<bool, StoreError> {
    let stored = load(conn, owner, &[row_id])?.remove(&row_id).unwrap_or_default().images;
    Ok(stored.len() == given.len()
        && stored.iter().zip(given).all(|(stored, given)| {
            let ImageInput { data, mime_type, metadata } = stored;
            let NewImage { data: given_data, mime_type: given_type, metadata: given_metadata } = given;
            data.0 == *given_data
                && mime_type.as_deref() == Some(given_type.as_str())
                && metadata.as_ref() == given_metadata.as_ref().map(context_model::Metadata::as_object)
        }))
}

/// Bytes of the images of these entries, without reading them.
pub(crate) fn bytes(conn: &mut SqliteConnection, owner: i64, row_ids: &[i64]) -> QueryResult<u64> {
    // octet_length of a stored blob is in the row's header.
    let mut size = Fragment::new("SELECT CAST(total(octet_length(data)) AS INTEGER) AS bytes");
    size.append(of_rows(owner, row_ids));
    let rows: Vec<Size> = sql::query(conn, &size)?;
    Ok(rows.first().and_then(|row| u64::try_from(row.bytes).ok()).unwrap_or(0))
}

/// The images of these entries by row id, each entry's in order.
pub(crate) fn load(conn: &mut SqliteConnection, owner: i64, row_ids: &[i64]) -> Result<HashMap<i64, Images>, StoreError> {
    let mut found: HashMap<i64, Images> = HashMap::new();
    if row_ids.is_empty() {
        return Ok(found);
    }
    let mut select = Fragment::new("SELECT row_id, position, mime_type, metadata, data, seal");
    select.append(of_rows(owner, row_ids)).push(" ORDER BY row_id, position");
    for row in sql::query::<ImageRow>(conn, &select).map_err(store_error)? {
        let ImageRow { row_id, mime_type, metadata, position, data, seal } = row;
        let images = found.entry(row_id).or_default();
        images.sound &= seal::agrees(seal.as_deref(), || seal::image(id_of_row(row_id), position, &mime_type, metadata.as_deref(), &data));
        let metadata = metadata.and_then(|json| {
            let object = serde_json::from_str(&json);
            images.sound &= object.is_ok();
            object.ok()
        });
        images.images.push(ImageInput { data: ImageBytes(data), mime_type: Some(mime_type), metadata });
    }
    Ok(found)
}

fn of_rows(owner: i64, row_ids: &[i64]) -> Fragment {
    let mut rows = Fragment::new(" FROM images WHERE owner = ");
    rows.bind(Bind::Int(owner)).push(" AND row_id IN (SELECT value FROM json_each(");
    rows.bind(Bind::Text(serde_json::json!(row_ids).to_string())).push("))");
    rows
}
