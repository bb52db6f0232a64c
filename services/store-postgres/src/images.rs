//! The bytes of images, read only when asked for.

use std::collections::HashMap;

use context_model::{ImageBytes, ImageInput, Metadata, NewImage};
use context_store::{OwnerId, seal};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};

use crate::connection::AsyncPgConnection;
use crate::failure::Failure;
use crate::sql::{self, Bind, Fragment};

#[derive(QueryableByName)]
struct ImageRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Text)]
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
    let delete = "DELETE FROM context.images WHERE owner_id = ? AND id = ANY(?)";
    sql::execute(conn, Fragment::prepared(delete, of(owner, ids))).await?;
    Ok(())
}

/// An entry's images, in order.
pub(crate) async fn of_entry(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
) -> Result<Vec<ImageInput>, Failure> {
    let images = load(conn, owner, &[id]).await?.remove(&id);
    Ok(images.unwrap_or_default().images)
}

/// Bytes of the images of these entries, without reading them.
pub(crate) async fn bytes(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    ids: &[i64],
) -> Result<u64, Failure> {
    #[derive(QueryableByName)]
    struct Size {
        #[diesel(sql_type = BigInt)]
        bytes: i64,
    }
    // The length of a stored value is beside it.
    let sum = "SELECT coalesce(sum(octet_length(data)), 0)::bigint AS bytes FROM context.images WHERE owner_id = ? AND id = ANY(?)";
    let rows: Vec<Size> = sql::query(conn, Fragment::prepared(sum, of(owner, ids))).await?;
    Ok(rows
        .first()
        .and_then(|row| u64::try_from(row.bytes).ok())
        .unwrap_or(0))
}

/// The images of these entries by id, each entry's in order.
pub(crate) async fn load(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    ids: &[i64],
) -> Result<HashMap<i64, Images>, Failure> {
    let select = "SELECT id, position, mime_type, metadata::text AS metadata, data, seal FROM context.images WHERE owner_id = ? AND id = ANY(?) \
                  ORDER BY id, position";
    let mut found: HashMap<i64, Images> = HashMap::new();
    for row in sql::query::<ImageRow>(conn, Fragment::prepared(select, of(owner, ids))).await? {
        let ImageRow {
            id,
            mime_type,
            metadata,
            position,
            data,
            seal,
        } = row;
        let images = found.entry(id).or_default();
        images.sound &= seal::agrees(seal.as_deref(), || {
            seal::image(id, position, &mime_type, metadata.as_deref(), &data)
        });
        let metadata = metadata.and_then(|json| {
            let object = serde_json::from_str(&json);
            images.sound &= object.is_ok();
            object.ok()
        });
        images.images.push(ImageInput {
            data: ImageBytes(data),
            mime_type: Some(mime_type),
            metadata,
        });
    }
    Ok(found)
}

fn of<'v>(owner: &'v OwnerId, ids: &[i64]) -> Vec<Bind<'v>> {
    vec![Bind::text(owner.as_str()), Bind::ints(ids.iter().copied())]
}
