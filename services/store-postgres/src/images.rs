//! Images. Their bytes are read only on request.

use std::collections::HashMap;

use context_model::{ImageBytes, ImageInput, JsonObject, Metadata, NewImage, held_bytes};
use context_store::{OwnerId, Taken, seal};
use diesel::prelude::*;
use diesel::sql_types::{Binary, Nullable, Text};
use diesel_async::RunQueryDsl;

use crate::columns::LossyText;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};
use crate::schema::images;

define_sql_function! {
    /// Length of a value in bytes. PostgreSQL stores the length, so the value itself is not read.
    fn octet_length(data: Binary) -> Integer;
}

define_sql_function! {
    /// Length of a text in bytes.
    #[sql_name = "octet_length"]
    fn text_octet_length(text: Nullable<Text>) -> Nullable<Integer>;
}

/// Id, position, media type, metadata, data and checksum.
type ImageRow = (
    i64,
    i64,
    LossyText,
    Option<LossyText>,
    Vec<u8>,
    Option<Vec<u8>>,
);

/// An entry's images.
#[derive(Debug)]
pub(crate) struct Images {
    /// The images in order.
    pub images: Vec<ImageInput>,
    /// Whether each image matches its checksum and has readable metadata.
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

/// Stores an entry's images in order.
pub(crate) async fn insert(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
    given: &[NewImage],
) -> Result<(), Failure> {
    if given.is_empty() {
        return Ok(());
    }
    // Raw SQL for `unnest`: one statement for any number of images.
    let insert = "INSERT INTO context.images (owner_id, id, position, mime_type, metadata, data, seal) \
                  SELECT ?, ?, i.place - 1, i.mime_type, i.metadata::json, i.data, i.seal \
                  FROM unnest(?, ?, ?, ?) WITH ORDINALITY AS i(mime_type, metadata, data, seal, place)";
    let metadata: Vec<Option<String>> = given
        .iter()
        .map(|image| image.metadata.as_ref().map(Metadata::to_json))
        .collect();
    let sealed = given.iter().zip(&metadata).zip(0..);
    let seals: Vec<_> = sealed
        .map(|((image, metadata), position)| {
            seal::image(
                id,
                position,
                &image.mime_type,
                metadata.as_deref(),
                &image.data,
            )
        })
        .collect();
    let binds = vec![
        Bind::text(owner.as_str()),
        Bind::Int(id),
        Bind::Texts(
            given
                .iter()
                .map(|image| image.mime_type.as_str().into())
                .collect(),
        ),
        Bind::OptionalTexts(
            metadata
                .iter()
                .map(|json| json.as_deref().map(Into::into))
                .collect(),
        ),
        Bind::ByteStrings(given.iter().map(|image| &image.data[..]).collect()),
        Bind::ByteStrings(seals.iter().map(|seal| &seal[..]).collect()),
    ];
    sql::send(conn, Fragment::prepared(insert, binds)).await?;
    Ok(())
}

/// Deletes the images of these entries.
pub(crate) async fn delete(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    ids: &[i64],
) -> Result<(), Failure> {
    let delete = diesel::delete(
        images::table
            .filter(images::owner_id.eq(owner.as_str()))
            .filter(images::id.eq_any(ids)),
    );
    fixed!(delete).execute(conn).await?;
    Ok(())
}

/// An entry's images, in order.
pub(crate) async fn of_entry(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
) -> Result<Vec<ImageInput>, Failure> {
    let images = load(conn, owner, &[id], &mut Taken::default()).await?;
    let images = images.into_values().next();
    Ok(images.unwrap_or_default().images)
}

/// Total bytes of these entries' images and of their metadata, without loading them.
pub(crate) async fn bytes(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    ids: &[i64],
) -> Result<u64, Failure> {
    let lengths = images::table
        .filter(images::owner_id.eq(owner.as_str()))
        .filter(images::id.eq_any(ids))
        .select((
            octet_length(images::data),
            text_octet_length(images::metadata.cast::<Nullable<Text>>()),
        ));
    let lengths: Vec<(i32, Option<i32>)> = fixed!(lengths).load(conn).await?;
    let bytes = |length: i32| u64::from(length.unsigned_abs());
    Ok(lengths
        .into_iter()
        .map(|(data, metadata)| bytes(data) + metadata.map_or(0, bytes))
        .sum())
}

/// The images of these entries by entry id, each entry's images in order. Takes the memory of their parsed metadata.
pub(crate) async fn load(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    ids: &[i64],
    taken: &mut Taken,
) -> Result<HashMap<i64, Images>, Failure> {
    let rows = images::table
        .filter(images::owner_id.eq(owner.as_str()))
        .filter(images::id.eq_any(ids))
        .order((images::id, images::position))
        .select((
            images::id,
            images::position,
            images::mime_type,
            images::metadata,
            images::data,
            images::seal,
        ));
    let rows: Vec<ImageRow> = fixed!(rows).load(conn).await?;
    let mut found: HashMap<i64, Images> = HashMap::new();
    for (id, position, LossyText(mime_type), metadata, data, seal) in rows {
        let metadata = metadata.map(|LossyText(json)| json);
        let images = found.entry(id).or_default();
        images.sound &= seal::agrees(seal.as_deref(), || {
            seal::image(id, position, &mime_type, metadata.as_deref(), &data)
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
    Ok(found)
}
