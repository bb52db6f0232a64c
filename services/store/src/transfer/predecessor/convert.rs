//! Converts old entries into our rows.

use std::collections::HashMap;

use context_model::{JsonObject, Metadata, Tags, Violations};
use serde_json::Value;

use super::old::{OldEntry, OldId, OldImage};
use crate::seal::{self, EntrySeal};
use crate::transfer::row::{Cell, Row};

/// The metadata key under which an entry's UUID from mcp-context-server 3 is stored.
pub const ID_KEY: &str = "mcp_context_server_id";

/// The metadata key under which metadata that is not a JSON object or violates a rule of this service is stored as
/// text.
pub const METADATA_KEY: &str = "mcp_context_server_metadata";

/// Maximum size in bytes of a value that is stored as text.
const MAX_TEXT_BYTES: usize = 500_000;

/// A row of `entries`.
pub(super) fn entry(
    number: i64,
    id: OldId,
    images: u32,
    old: OldEntry,
    numbers: &HashMap<u128, i64>,
) -> Row {
    let OldEntry {
        thread_id,
        source,
        text,
        metadata,
        summary,
        created_at,
        updated_at,
        changes,
        tags,
    } = old;
    let created_at = moment(created_at, updated_at);
    let metadata = with_id(metadata_of(metadata.as_deref(), numbers), id);
    // A tag that violates a rule is dropped, not the entry.
    let tags = tags
        .into_iter()
        .map(|tag| stored(&tag).chars().take(Tags::MAX_CHARS).collect())
        .take(Tags::MAX)
        .collect();
    let version = changes.max(0).saturating_add(1);
    let (metadata, text) = (Metadata::from_stored(metadata).to_json(), stored(&text));
    let seal = EntrySeal::of(version, &text, &metadata).to_bytes(number);
    Row(vec![
        Cell::Int(number),
        Cell::Text(thread(&thread_id)),
        Cell::Text(source),
        Cell::Int(images.into()),
        Cell::Int(version),
        Cell::Int(created_at),
        Cell::Int(updated_at.unwrap_or(created_at).max(created_at)),
        Cell::List(Tags::parse(tags, "tags", &mut Violations::default()).into_vec()),
        Cell::Text(stored(&summary.unwrap_or_default())),
        Cell::Text(metadata),
        Cell::Text(text),
        Cell::Bytes(seal.to_vec()),
    ])
}

/// A row of `changes`.
pub(super) fn change(revision: i64, number: i64, old: &OldEntry) -> Row {
    let text = |text: &str| Cell::Text(text.to_owned());
    Row(vec![
        Cell::Int(revision),
        Cell::Int(moment(old.created_at, old.updated_at)),
        text("create"),
        text("context"),
        Cell::Text(number.to_string()),
        Cell::Text(thread(&old.thread_id)),
        Cell::Int(1),
        Cell::Null,
        text(&old.source),
        Cell::Int(1),
    ])
}

/// A row of `images`.
pub(super) fn image(number: i64, position: i64, old: OldImage) -> Row {
    let OldImage {
        data,
        mime_type,
        metadata,
    } = old;
    let metadata = metadata
        .as_deref()
        .and_then(object)
        .map(|metadata| Metadata::from_stored(metadata).to_json());
    let mime_type = stored(&mime_type);
    let seal = seal::image(number, position, &mime_type, metadata.as_deref(), &data);
    Row(vec![
        Cell::Int(number),
        Cell::Int(position),
        Cell::Text(mime_type),
        metadata.map_or(Cell::Null, Cell::Text),
        Cell::Bytes(data),
        Cell::Bytes(seal.to_vec()),
    ])
}

fn moment(created_at: Option<i64>, updated_at: Option<i64>) -> i64 {
    created_at.or(updated_at).unwrap_or(0)
}

/// Our databases do not store U+0000.
fn stored(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Threads are looked up by their trimmed names.
fn thread(given: &str) -> String {
    stored(given.trim())
}

fn metadata_of(json: Option<&str>, numbers: &HashMap<u128, i64>) -> JsonObject {
    let Some(json) = json
        .map(str::trim)
        .filter(|json| !json.is_empty() && *json != "null")
    else {
        return JsonObject::new();
    };
    if let Some(mut metadata) = object(json) {
        renumber(&mut metadata, numbers);
        return metadata;
    }
    let mut text = stored(json);
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= MAX_TEXT_BYTES)
        .last();
    text.truncate(end.unwrap_or(0));
    JsonObject::from_iter([(METADATA_KEY.to_owned(), Value::String(text))])
}

/// The parsed object, if it follows the rules of this service.
fn object(json: &str) -> Option<JsonObject> {
    let object: JsonObject = serde_json::from_str(json).ok()?;
    Metadata::parse(object, "metadata", &mut Violations::default()).map(Metadata::into_object)
}

fn with_id(mut metadata: JsonObject, id: OldId) -> JsonObject {
    if let OldId::Uuid(_) = id {
        metadata.insert(ID_KEY.to_owned(), Value::String(id.to_string()));
    }
    metadata
}

/// Replaces the UUIDs of referenced entries by their new numbers.
fn renumber(metadata: &mut JsonObject, numbers: &HashMap<u128, i64>) {
    let Some(Value::Array(ids)) = metadata
        .get_mut("references")
        .and_then(|references| references.get_mut("context_ids"))
    else {
        return;
    };
    for id in ids {
        if let Some(OldId::Uuid(bits)) = id.as_str().and_then(OldId::parse_uuid)
            && let Some(number) = numbers.get(&bits)
        {
            *id = Value::from(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::Table;

    const UUID: &str = "0199d1f0c0de7abc8123456789abcdef";

    fn row(old: OldEntry) -> Row {
        let id = OldId::parse_uuid(UUID).unwrap();
        let OldId::Uuid(bits) = id else {
            unreachable!("it is one")
        };
        entry(7, id, 0, old, &HashMap::from([(bits, 7)]))
    }

    fn metadata(json: &str) -> Value {
        let row = row(OldEntry {
            metadata: Some(json.to_owned()),
            ..OldEntry::default()
        });
        serde_json::from_str(row.text(Table::named("entries").unwrap(), "metadata")).unwrap()
    }

    #[test]
    fn a_uuid_is_kept_and_references_to_it_become_numbers() {
        let other = "0199d1f0-c0de-7abc-8123-000000000000";
        let found = metadata(&format!(
            r#"{{"a": 1, "references": {{"context_ids": ["{UUID}", "{other}", 5, null]}}}}"#
        ));
        assert_eq!(
            found["references"]["context_ids"],
            serde_json::json!([7, other, 5, null])
        );
        assert_eq!(
            (found["a"].clone(), found[ID_KEY].clone()),
            (1.into(), UUID.into())
        );
    }

    #[test]
    fn metadata_that_breaks_a_rule_is_kept_as_text() {
        for json in [
            "[1, 2]",
            "{\"a\": NaN}",
            "{\"a\": 18446744073709551615}",
            "nonsense \u{0}",
        ] {
            assert_eq!(
                metadata(json)[METADATA_KEY],
                Value::String(stored(json)),
                "{json}"
            );
        }
        assert_eq!(metadata("null").as_object().unwrap().len(), 1);
    }

    #[test]
    fn texts_tags_and_times_are_made_to_keep_the_rules() {
        let old = OldEntry {
            thread_id: " t ".to_owned(),
            text: "a\0b".to_owned(),
            tags: vec![" B ".to_owned(), "b".to_owned(), "x".repeat(200)],
            created_at: Some(10),
            updated_at: Some(5),
            ..OldEntry::default()
        };
        let (row, table) = (row(old), Table::named("entries").unwrap());
        assert_eq!(
            (row.text(table, "thread_id"), row.text(table, "text")),
            ("t", "a\u{fffd}b")
        );
        assert_eq!(row.list(table, "tags"), ["b".to_owned(), "x".repeat(128)]);
        assert_eq!(
            (row.int(table, "updated_at"), row.int(table, "version")),
            (10, 1)
        );
    }
}
