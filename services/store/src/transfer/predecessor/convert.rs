//! Converts old entries into our rows. Each value that has to be changed is added to the [`Losses`].

use std::collections::{BTreeSet, HashMap};

use context_model::{
    JsonObject, Metadata, Source as Author, Tags, ThreadId, Timestamp, Violations, decode_slice,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::old::{OldEntry, OldId, OldImage, OldTime};
use crate::seal::{self, EntrySeal};
use crate::transfer::losses::Losses;
use crate::transfer::row::{Cell, Row};

/// The metadata key under which an entry's UUID from mcp-context-server 3 is stored.
pub const ID_KEY: &str = "mcp_context_server_id";

/// The metadata key under which metadata that is not a JSON object or violates a rule of this service is stored as
/// text.
pub const METADATA_KEY: &str = "mcp_context_server_metadata";

/// The metadata key under which the original name of a thread is stored, if the thread has a new one.
pub const THREAD_KEY: &str = "mcp_context_server_thread_id";

/// The metadata key under which the original tags are stored that the entry does not have any more.
pub const TAGS_KEY: &str = "mcp_context_server_tags";

/// The metadata key under which a source other than `user` and `agent` is stored.
pub const SOURCE_KEY: &str = "mcp_context_server_source";

/// Maximum size in bytes of a value that is stored as text.
const MAX_TEXT_BYTES: usize = 500_000;

/// Number of characters of an original value that a report shows. Longer values are cut.
const SHOWN_CHARS: usize = 1_000;

/// Number of characters that [`shortened`] appends.
const HASH_CHARS: usize = 33;

/// A row of `entries`.
pub(super) fn entry(
    number: i64,
    id: OldId,
    images: u32,
    old: OldEntry,
    numbers: &HashMap<u128, i64>,
    losses: &mut Losses,
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
        mut tags,
    } = old;
    // Sorted, because each read of the source must give the same row.
    tags.sort_unstable();
    let metadata = metadata_of(number, metadata.as_deref(), numbers, losses);
    let mut entry = Entry {
        number,
        metadata,
        losses,
    };
    if let OldId::Uuid(_) = id {
        entry.keep(ID_KEY, id.to_string().into());
    }
    let thread_id = entry.thread(&thread_id);
    let source = entry.source(&source);
    let tags = entry.tags(&tags);
    let (created_at, updated_at) = entry.times(&created_at, &updated_at);
    let text = entry.text("text", &text);
    let summary = entry.text("summary", &summary.unwrap_or_default());
    let version = changes.max(0).saturating_add(1);
    let metadata = Metadata::from_stored(entry.metadata).to_json();
    let seal = EntrySeal::of(version, &text, &metadata).to_bytes(number);
    Row(vec![
        Cell::Int(number),
        Cell::Text(thread_id),
        Cell::Text(source.as_str().to_owned()),
        Cell::Int(images.into()),
        Cell::Int(version),
        Cell::Int(created_at),
        Cell::Int(updated_at),
        Cell::List(tags),
        Cell::Text(summary),
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
        Cell::Int(moment(&old.created_at, &old.updated_at)),
        text("create"),
        text("context"),
        Cell::Text(number.to_string()),
        Cell::Text(thread(&old.thread_id)),
        Cell::Int(1),
        Cell::Null,
        text(author(&old.source).as_str()),
        Cell::Int(1),
    ])
}

/// The source of an entry: `user` for this word in any case, with or without blanks around it, else `agent`.
fn author(given: &str) -> Author {
    if given.trim().eq_ignore_ascii_case(Author::User.as_str()) {
        Author::User
    } else {
        Author::Agent
    }
}

/// A row of `images`.
pub(super) fn image(number: i64, position: i64, old: OldImage, losses: &mut Losses) -> Row {
    let OldImage {
        data,
        mime_type,
        metadata,
    } = old;
    let metadata = match metadata.as_deref().map(str::trim) {
        None | Some("" | "null") => None,
        Some(json) => {
            let object =
                object(json).unwrap_or_else(|why| as_text(number, "images", json, &why, losses));
            Some(Metadata::from_stored(object).to_json())
        }
    };
    let mime_type = stored(number, "images", &mime_type, losses);
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

/// An entry that is being converted.
struct Entry<'l> {
    number: i64,
    metadata: JsonObject,
    losses: &'l mut Losses,
}

impl Entry<'_> {
    /// Stores an original value in the metadata, unless the metadata would break a rule.
    fn keep(&mut self, key: &'static str, value: Value) {
        if let Some(before) = self.metadata.insert(key.to_owned(), value) {
            self.losses.add(self.number, "metadata", || {
                format!(
                    "the value of `{key}` is replaced: {}",
                    shown(&before.to_string())
                )
            });
        }
        if let Err(why) = checked(self.metadata.clone()) {
            self.metadata.remove(key);
            self.losses.add(self.number, "metadata", || {
                format!("`{key}` is not stored: {why}")
            });
        }
    }

    fn thread(&mut self, given: &str) -> String {
        let new = thread(given);
        if new != given {
            self.losses.add_thread(self.number, given, || {
                format!("{} is now {}", shown(given), shown(&new))
            });
            self.keep(THREAD_KEY, without_nul(given).into());
        }
        new
    }

    fn source(&mut self, given: &str) -> Author {
        let source = author(given);
        if source.as_str() == given {
            return source;
        }
        self.losses.add(self.number, "source", || {
            format!("{} is now `{}`", shown(given), source.as_str())
        });
        self.keep(SOURCE_KEY, without_nul(given).into());
        source
    }

    /// The tags, sorted. Blank tags and those beyond the limit are dropped, and long ones are shortened.
    fn tags(&mut self, given: &[String]) -> Vec<String> {
        let normal: BTreeSet<String> = given.iter().map(|tag| normal_tag(tag)).collect();
        let mut tags: Vec<String> = normal.into_iter().filter(|tag| !tag.is_empty()).collect();
        let dropped = tags.split_off(tags.len().min(Tags::MAX));
        let mut originals = Vec::new();
        for tag in given {
            let new = normal_tag(tag);
            if dropped.contains(&new) {
                self.losses.add(self.number, "tags", || {
                    format!(
                        "{} is dropped; an entry has at most {} tags",
                        shown(tag),
                        Tags::MAX
                    )
                });
            } else if new.is_empty() {
                self.losses.add(self.number, "tags", || {
                    format!("{} is dropped; it is blank", shown(tag))
                });
            } else if new != *tag {
                self.losses.add(self.number, "tags", || {
                    format!("{} is now {}", shown(tag), shown(&new))
                });
            } else {
                continue;
            }
            originals.push(Value::from(without_nul(tag)));
        }
        if !originals.is_empty() {
            self.keep(TAGS_KEY, Value::Array(originals));
        }
        tags
    }

    /// The times of creation and of the last update.
    fn times(&mut self, created: &OldTime, updated: &OldTime) -> (i64, i64) {
        let created_at = moment(created, updated);
        let updated_at = updated.known().unwrap_or(created_at).max(created_at);
        let is_now = |micros| format!("it is now {}", Timestamp(micros));
        match created {
            OldTime::At(_) => {}
            OldTime::Missing => self.losses.add(self.number, "created_at", || {
                format!("it was missing; {}", is_now(created_at))
            }),
            OldTime::Unreadable(text) => self.losses.add(self.number, "created_at", || {
                format!("{} is not a date; {}", shown(text), is_now(created_at))
            }),
        }
        match updated {
            OldTime::At(before) if *before != updated_at => {
                self.losses.add(self.number, "updated_at", || {
                    let before = Timestamp(*before);
                    format!("{before} was before created_at; {}", is_now(updated_at))
                });
            }
            OldTime::At(_) | OldTime::Missing => {}
            OldTime::Unreadable(text) => self.losses.add(self.number, "updated_at", || {
                format!("{} is not a date; {}", shown(text), is_now(updated_at))
            }),
        }
        (created_at, updated_at)
    }

    fn text(&mut self, field: &'static str, given: &str) -> String {
        stored(self.number, field, given, self.losses)
    }
}

/// The creation time in microseconds. If it is unknown, the time of the last update, or else 0.
fn moment(created: &OldTime, updated: &OldTime) -> i64 {
    created.known().or(updated.known()).unwrap_or(0)
}

/// The text without U+0000, which our databases do not store.
fn stored(number: i64, field: &'static str, text: &str, losses: &mut Losses) -> String {
    if text.contains('\0') {
        losses.add(number, field, || {
            let count = text.matches('\0').count();
            format!("{count} of its characters were U+0000 and are now U+FFFD")
        });
    }
    without_nul(text)
}

fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The name of a thread. A name that breaks a rule of this service is shortened.
fn thread(given: &str) -> String {
    let name = given.trim();
    match ThreadId::parse(name, "thread_id", &mut Violations::default()) {
        Some(id) => id.into_string(),
        None => shortened(name, ThreadId::MAX_CHARS),
    }
}

/// A tag as this service stores it. "" if it is blank.
fn normal_tag(given: &str) -> String {
    let tag = given.trim().to_lowercase();
    if tag.contains('\0') || tag.chars().nth(Tags::MAX_CHARS).is_some() {
        shortened(&tag, Tags::MAX_CHARS)
    } else {
        tag
    }
}

/// The beginning of a text and a hash of the whole text, so that different texts stay different.
fn shortened(text: &str, max_chars: usize) -> String {
    let beginning: String = without_nul(text)
        .chars()
        .take(max_chars - HASH_CHARS)
        .collect();
    let hash = Sha256::digest(text.as_bytes());
    let hash: String = hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{beginning}~{hash}")
}

/// A text for a report: in quotes, control characters escaped, long ones cut.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(SHOWN_CHARS).collect();
    let beginning = beginning.escape_debug();
    match text.chars().count() {
        0..=SHOWN_CHARS => format!("\"{beginning}\""),
        chars => format!("\"{beginning}\"… ({chars} characters)"),
    }
}

fn metadata_of(
    number: i64,
    json: Option<&str>,
    numbers: &HashMap<u128, i64>,
    losses: &mut Losses,
) -> JsonObject {
    let Some(json) = json
        .map(str::trim)
        .filter(|json| !json.is_empty() && *json != "null")
    else {
        return JsonObject::new();
    };
    match object(json) {
        Ok(mut metadata) => {
            renumber(&mut metadata, numbers);
            metadata
        }
        Err(why) => as_text(number, "metadata", json, &why, losses),
    }
}

/// An object that holds the unusable metadata as text.
fn as_text(
    number: i64,
    field: &'static str,
    json: &str,
    why: &str,
    losses: &mut Losses,
) -> JsonObject {
    let mut text = without_nul(json);
    let whole_bytes = text.len();
    let end = text
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= MAX_TEXT_BYTES)
        .last();
    text.truncate(end.unwrap_or(0));
    losses.add(number, field, || {
        let cut = if text.len() < whole_bytes {
            format!(", only its first {} of {whole_bytes} bytes", text.len())
        } else {
            String::new()
        };
        let why = why.escape_debug();
        format!("metadata is stored as text under `{METADATA_KEY}`{cut}: {why}")
    });
    JsonObject::from_iter([(METADATA_KEY.to_owned(), Value::String(text))])
}

/// The parsed object.
///
/// # Errors
/// The rule of this service that it breaks.
fn object(json: &str) -> Result<JsonObject, String> {
    // `decode_slice` also rejects the integers that serde_json would read as floats.
    let object = decode_slice(json.as_bytes())
        .map_err(|error| error.message.replace("`body`", "`metadata`"))?;
    checked(object)
}

/// The object, if it follows the rules of this service.
///
/// # Errors
/// The rule that it breaks.
fn checked(object: JsonObject) -> Result<JsonObject, String> {
    let mut violations = Violations::default();
    let metadata = Metadata::parse(object, "metadata", &mut violations).unwrap_or_default();
    violations
        .finish(metadata.into_object())
        .map_err(|error| error.message)
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

    fn converted(old: OldEntry) -> (Row, Losses) {
        let id = OldId::parse_uuid(UUID).unwrap();
        let OldId::Uuid(bits) = id else {
            unreachable!("it is one")
        };
        let mut losses = Losses::default();
        let row = entry(7, id, 0, old, &HashMap::from([(bits, 7)]), &mut losses);
        (row, losses)
    }

    fn metadata(row: &Row) -> Value {
        serde_json::from_str(row.text(Table::named("entries").unwrap(), "metadata")).unwrap()
    }

    fn with_metadata(json: &str) -> (Value, Losses) {
        let (row, losses) = converted(OldEntry {
            metadata: Some(json.to_owned()),
            created_at: OldTime::At(1),
            ..entry_of_user()
        });
        (metadata(&row), losses)
    }

    fn entry_of_user() -> OldEntry {
        OldEntry {
            thread_id: "t".to_owned(),
            source: "user".to_owned(),
            created_at: OldTime::At(1),
            ..OldEntry::default()
        }
    }

    /// The listed values of a field.
    fn listed(losses: &Losses, name: &str) -> Vec<String> {
        let field = losses.fields().find(|(known, _)| *known == name);
        let listed = field.into_iter().flat_map(|(_, field)| &field.listed);
        listed.map(|loss| loss.what.clone()).collect()
    }

    #[test]
    fn a_uuid_is_kept_and_references_to_it_become_numbers() {
        let other = "0199d1f0-c0de-7abc-8123-000000000000";
        let (found, losses) = with_metadata(&format!(
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
        assert_eq!(losses, Losses::default());
    }

    #[test]
    fn metadata_that_breaks_a_rule_is_kept_as_text_and_counted() {
        for json in [
            "[1, 2]",
            "{\"a\": NaN}",
            "{\"a\": 18446744073709551615}",
            "{\"a\": 18446744073709551616}",
            "nonsense \u{0}",
        ] {
            let (found, losses) = with_metadata(json);
            assert_eq!(
                found[METADATA_KEY],
                Value::String(without_nul(json)),
                "{json}"
            );
            assert_eq!((losses.total(), listed(&losses, "metadata").len()), (1, 1));
        }
        let (found, losses) = with_metadata("null");
        assert_eq!((found.as_object().unwrap().len(), losses.total()), (1, 0));
        let (_, losses) = with_metadata(&format!("[\"{}\"]", "x".repeat(MAX_TEXT_BYTES)));
        let what = &listed(&losses, "metadata")[0];
        assert!(
            what.contains("only its first 500000 of 500004 bytes"),
            "{what}"
        );
        let (_, losses) = with_metadata(&format!("{{\"{ID_KEY}\": \"theirs\"}}"));
        let what = &listed(&losses, "metadata")[0];
        assert!(
            what.contains("the value of") && what.contains("theirs"),
            "{what}"
        );
    }

    #[test]
    fn metadata_without_room_for_an_original_value_says_so() {
        let almost = format!("{{\"a\": \"{}\"}}", "x".repeat(Metadata::MAX_BYTES - 100));
        let (row, losses) = converted(OldEntry {
            metadata: Some(almost),
            thread_id: "t".repeat(300),
            ..entry_of_user()
        });
        let found = metadata(&row);
        assert!(found[ID_KEY].is_string() && found[THREAD_KEY].is_null());
        let what = &listed(&losses, "metadata")[0];
        assert!(
            what.starts_with("`mcp_context_server_thread_id` is not stored"),
            "{what}"
        );
        assert!(listed(&losses, "thread_id")[0].contains(&"t".repeat(300)));
    }

    #[test]
    fn a_long_name_of_a_thread_becomes_a_beginning_and_a_hash_and_stays_in_the_metadata() {
        let names = ["x".repeat(300), format!("{}y", "x".repeat(299))];
        let table = Table::named("entries").unwrap();
        let new = names.clone().map(|name| {
            let (row, losses) = converted(OldEntry {
                thread_id: name.clone(),
                ..entry_of_user()
            });
            assert_eq!(metadata(&row)[THREAD_KEY], Value::String(name.clone()));
            assert!(listed(&losses, "thread_id")[0].contains(&name));
            row.text(table, "thread_id").to_owned()
        });
        assert_ne!(new[0], new[1]);
        for name in new {
            assert_eq!(thread(&name), name, "it follows our rules");
            assert_eq!(name.chars().count(), ThreadId::MAX_CHARS);
        }
    }

    #[test]
    fn each_old_name_of_a_thread_is_listed_although_two_become_the_same() {
        let mut losses = Losses::default();
        for name in [" a", "a ", " a"] {
            let mut entry = Entry {
                number: 7,
                metadata: JsonObject::new(),
                losses: &mut losses,
            };
            assert_eq!(entry.thread(name), "a");
        }
        assert_eq!(losses.renamed_threads(), 2);
        assert_eq!(listed(&losses, "thread_id").len(), 2);
    }

    #[test]
    fn tags_beyond_the_limits_are_dropped_or_shortened_and_stay_in_the_metadata() {
        let mut given: Vec<String> = (0..120).map(|n| format!("tag-{n:03}")).collect();
        let long = "a".repeat(150);
        given.insert(3, long.clone());
        let (row, losses) = converted(OldEntry {
            tags: given.clone(),
            ..entry_of_user()
        });
        let tags = row.list(Table::named("entries").unwrap(), "tags");
        assert_eq!(
            (tags.len(), tags[0].chars().count()),
            (Tags::MAX, Tags::MAX_CHARS)
        );
        let what = listed(&losses, "tags");
        assert_eq!((what.len(), losses.total()), (22, 22));
        assert!(
            what[0].contains(&long) && what[0].contains(&tags[0]),
            "{what:?}"
        );
        assert!(what[21].contains("\"tag-119\" is dropped"), "{what:?}");
        let kept = metadata(&row)[TAGS_KEY].as_array().unwrap().len();
        assert_eq!(kept, 22);
        let again = given.into_iter().rev().collect();
        let (reversed, _) = converted(OldEntry {
            tags: again,
            ..entry_of_user()
        });
        assert_eq!(
            reversed, row,
            "the order in which tags are read changes nothing"
        );
    }

    #[test]
    fn texts_tags_sources_and_times_are_made_to_keep_the_rules() {
        let old = OldEntry {
            thread_id: " t ".to_owned(),
            source: "system".to_owned(),
            text: "a\0b".to_owned(),
            summary: Some("\0".to_owned()),
            tags: vec![" B ".to_owned(), "b".to_owned(), " ".to_owned()],
            created_at: OldTime::At(10),
            updated_at: OldTime::At(5),
            ..OldEntry::default()
        };
        let ((row, losses), table) = (converted(old), Table::named("entries").unwrap());
        assert_eq!(
            (
                row.text(table, "thread_id"),
                row.text(table, "source"),
                row.text(table, "text")
            ),
            ("t", "agent", "a\u{fffd}b")
        );
        assert_eq!(row.list(table, "tags"), ["b".to_owned()]);
        assert_eq!(
            (row.int(table, "updated_at"), row.int(table, "version")),
            (10, 1)
        );
        let counted: Vec<_> = losses
            .fields()
            .map(|(name, field)| (name, field.total))
            .collect();
        assert_eq!(
            counted,
            [
                ("source", 1),
                ("summary", 1),
                ("tags", 2),
                ("text", 1),
                ("thread_id", 1),
                ("updated_at", 1)
            ]
        );
        assert_eq!(metadata(&row)[SOURCE_KEY], "system");
    }

    #[test]
    fn a_time_that_is_not_a_date_is_counted() {
        let (row, losses) = converted(OldEntry {
            created_at: OldTime::Unreadable("yesterday".to_owned()),
            updated_at: OldTime::At(20),
            ..entry_of_user()
        });
        let table = Table::named("entries").unwrap();
        assert_eq!(row.int(table, "created_at"), 20);
        assert_eq!(
            listed(&losses, "created_at"),
            ["\"yesterday\" is not a date; it is now 1970-01-01T00:00:00.000020Z"]
        );
        let (_, losses) = converted(OldEntry {
            created_at: OldTime::Missing,
            updated_at: OldTime::Unreadable("infinity".to_owned()),
            ..entry_of_user()
        });
        assert_eq!(losses.total(), 2);
    }

    #[test]
    fn metadata_of_an_image_that_breaks_a_rule_is_kept_as_text() {
        let mut losses = Losses::default();
        let old = |metadata: &str| OldImage {
            mime_type: "image/png".to_owned(),
            metadata: Some(metadata.to_owned()),
            ..OldImage::default()
        };
        image(7, 0, old("{\"w\": 1}"), &mut losses);
        image(7, 1, old("null"), &mut losses);
        assert_eq!(losses.total(), 0);
        let row = image(7, 2, old("[1]"), &mut losses);
        let table = Table::named("images").unwrap();
        assert!(row.text(table, "metadata").contains("[1]"));
        assert_eq!((losses.total(), listed(&losses, "images").len()), (1, 1));
    }
}
