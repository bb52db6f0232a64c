use serde::de::DeserializeOwned;

use crate::by_name::ByName;
use crate::{Error, RESERVED_KEY, ReservedKey, Result, nearest};

/// What an integer must be, if it is too large.
pub const INTEGER_OF_64_BITS: &str = "an integer of at most 64 bits";

/// The error sentence for a value of a wrong type. `expected` is a phrase such as `an integer`.
#[must_use]
pub fn wrong_type(field: &str, expected: &str) -> String {
    format!("`{field}` must be {expected}")
}

/// The error sentence for a parameter that is given several times.
#[must_use]
pub fn given_again(field: &str) -> String {
    format!("`{field}` is given more than once")
}

/// Reads a request from JSON. MCP uses this function and REST [`decode_slice`], so that type errors read the same on
/// both.
///
/// # Errors
/// `INVALID_ARGUMENT` with the path of the unknown field or of the field with a wrong type.
pub fn decode<T: DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    serde_path_to_error::deserialize(ByName(value)).map_err(|e| violation(&e, "arguments", ""))
}

/// Like [`decode`], from the bytes of a request body.
///
/// # Errors
/// `INVALID_ARGUMENT` as for [`decode`]; with the position of malformed JSON; for an empty body; for an integer beyond
/// 64 bits; and for the key [`RESERVED_KEY`].
pub fn decode_slice<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Error::invalid(
            "body",
            "`body` is empty; a JSON object is required",
        ));
    }
    read(body, "body", "")
}

/// Like [`decode`], from the text of a parameter that holds JSON.
///
/// # Errors
/// As for [`decode_slice`]. The paths begin with the name of the parameter.
pub fn decode_parameter<T: DeserializeOwned>(name: &str, text: &str) -> Result<T> {
    read(text.as_bytes(), name, name)
}

/// Reads JSON text. Errors call the text `whole`, and the paths of fields inside it begin with `prefix`.
fn read<T: DeserializeOwned>(json: &[u8], whole: &str, prefix: &str) -> Result<T> {
    let mut reserved = ReservedKey::default();
    reserved.read(json);
    if reserved.is_found() {
        return Err(Error::invalid(
            whole,
            format!("`{whole}` has the reserved key `{RESERVED_KEY}`"),
        ));
    }
    let malformed = |error: &serde_json::Error| {
        Error::invalid(whole, format!("`{whole}` is not valid JSON: {error}"))
    };
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(ByName(&mut deserializer)).map_err(|e| match e
        .inner()
        .classify()
    {
        serde_json::error::Category::Data => violation(&e, whole, prefix),
        _ => malformed(e.inner()),
    })?;
    deserializer.end().map_err(|e| malformed(&e))?;
    reject_wide_integers(json, whole)?;
    Ok(value)
}

fn violation(
    error: &serde_path_to_error::Error<serde_json::Error>,
    whole: &str,
    prefix: &str,
) -> Error {
    let inside = error.path().to_string();
    let is_whole = inside == ".";
    let path = if is_whole {
        prefix.to_owned()
    } else if inside.starts_with('[') {
        format!("{prefix}{inside}")
    } else {
        member(prefix, &inside)
    };
    let mut text = error.inner().to_string();
    // When serde_json reads text, it adds the position. The path replaces it.
    if error.inner().line() > 0
        && let Some(at) = text.rfind(" at line ")
    {
        text.truncate(at);
    }
    let mut names = text.split('`').skip(1).step_by(2);
    if text.starts_with("unknown field ") {
        let name = names.next().unwrap_or_default();
        // The path ends with the unknown field itself.
        let field = if is_whole { member(prefix, name) } else { path };
        return unknown_field(&field, name, names);
    }
    if text.starts_with("duplicate field ") {
        let field = member(&path, names.next().unwrap_or_default());
        return Error::invalid(field.as_str(), given_again(&field));
    }
    if text.starts_with("missing field ") {
        let field = member(&path, names.next().unwrap_or_default());
        return Error::invalid(field.as_str(), format!("`{field}` is required"));
    }
    let field = match path.as_str() {
        "" => whole,
        path => path,
    };
    let description = match expected_type(&text) {
        Some(expected) => wrong_type(field, expected),
        None => format!("`{field}`: {text}"),
    };
    Error::invalid(field, description)
}

/// The path of a member of the object at `path`, which is "" for the request itself.
fn member(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// What was expected, from the text of an error about the type of a value. `None` for another error.
fn expected_type(text: &str) -> Option<&str> {
    let (given, expected) = text.strip_prefix("invalid ")?.rsplit_once(", expected ")?;
    Some(match expected {
        // The type is right, and the value is not.
        "i64" if given.starts_with("value: ") => INTEGER_OF_64_BITS,
        "i64" => "an integer",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        name if name.starts_with("struct ") => "an object",
        other => other,
    })
}

/// The error for an unknown parameter. `field` is its path, `name` the last part of the path, and `known` are the
/// parameters that exist.
pub fn unknown_field<'a>(field: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.collect();
    let description = match nearest(name, known.iter().copied()) {
        Some(near) => format!("`{field}` is not a parameter; did you mean `{near}`?"),
        None if known.is_empty() => {
            format!("`{field}` is not a parameter; no parameters are allowed here")
        }
        None => {
            format!(
                "`{field}` is not a parameter; allowed: {}",
                known
                    .iter()
                    .map(|k| format!("`{k}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
    };
    Error::invalid(field, description)
}

/// Rejects integers beyond 64 bits. serde_json reads them as floats, so that a different number would be stored; only
/// the text still has their digits. (serde_json reads an integer from 2^63 to 2^64 - 1 exactly, and metadata validation
/// rejects it by its path.)
fn reject_wide_integers(body: &[u8], whole: &str) -> Result<()> {
    let mut i = 0;
    while i < body.len() {
        match body[i] {
            b'"' => {
                i += 1;
                while i < body.len() && body[i] != b'"' {
                    i += if body[i] == b'\\' { 2 } else { 1 };
                }
                i += 1;
            }
            b'-' | b'0'..=b'9' => {
                let start = i;
                while i < body.len()
                    && matches!(body[i], b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
                {
                    i += 1;
                }
                let number = &body[start..i];
                if number.len() >= 19 && !number.iter().any(|b| matches!(b, b'.' | b'e' | b'E')) {
                    let text = String::from_utf8_lossy(number);
                    if text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                        return Err(Error::invalid(
                            whole,
                            format!(
                                "`{whole}` holds the integer {}; integers must lie within -9223372036854775808 to 9223372036854775807",
                                text.chars().take(40).collect::<String>()
                            ),
                        ));
                    }
                }
            }
            _ => i += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_string_is_never_parsed_as_json() {
        let json = format!("{{\"a\": {{\"{RESERVED_KEY}\": \"[1, 1]\"}}}}");
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed["a"], serde_json::json!([1, 1]), "why it is refused");
        let refused = decode_slice::<serde_json::Value>(json.as_bytes()).unwrap_err();
        assert!(refused.message.contains("reserved key"), "{refused:?}");
    }

    #[test]
    fn integers_beyond_64_bits_are_refused_and_floats_are_not() {
        assert!(
            decode_slice::<serde_json::Value>(
                b"{\"a\": 9223372036854775807, \"b\": 1e300, \"c\": \"18446744073709551616\"}"
            )
            .is_ok()
        );
        let error =
            decode_slice::<serde_json::Value>(b"{\"a\": 18446744073709551616}").unwrap_err();
        assert!(error.message.contains("18446744073709551616"), "{error}");
    }

    #[test]
    fn an_unknown_parameter_is_named_with_the_nearest_known_one() {
        let error = decode::<crate::StoreContextBatchRequest>(
            serde_json::json!({"entries": [{"thread": "t"}]}),
        )
        .unwrap_err();
        assert_eq!(
            error.message,
            "`entries[0].thread` is not a parameter; did you mean `thread_id`?"
        );
        let error =
            decode::<crate::ListThreadsRequest>(serde_json::json!({"colour": 1})).unwrap_err();
        assert_eq!(
            error.message,
            "`colour` is not a parameter; allowed: `limit`, `offset`, `name`, `min_revision`"
        );
        let error =
            decode::<crate::ListThreadsRequest>(serde_json::json!({"x at line 1": 1})).unwrap_err();
        assert_eq!(
            error.message,
            "`x at line 1` is not a parameter; allowed: `limit`, `offset`, `name`, `min_revision`"
        );
    }

    #[test]
    fn an_object_is_no_list_of_its_members() {
        let refused = |field: &str, value: serde_json::Value| {
            let text = value.to_string();
            for error in [
                decode::<crate::StoreContextBatchRequest>(value).unwrap_err(),
                decode_slice::<crate::StoreContextBatchRequest>(text.as_bytes()).unwrap_err(),
            ] {
                assert_eq!(error.violations[0].field, field, "{text}");
            }
        };
        let image = serde_json::json!(["AA==", "image/png"]);
        refused(
            "entries[0]",
            serde_json::json!({"entries": [["t", "user", "hello"]]}),
        );
        refused(
            "entries[0].images[0]",
            serde_json::json!({"entries": [{"images": [image]}]}),
        );
        let filters = serde_json::json!({"metadata_filters": [["key", "eq", 1]]});
        let error = decode::<crate::SearchContextRequest>(filters).unwrap_err();
        assert_eq!(error.violations[0].field, "metadata_filters[0]");
        let edits = serde_json::json!({"edits": [["a", 1, "b"]]});
        let error = decode::<crate::UpdateArtifactBody>(edits).unwrap_err();
        assert_eq!(error.violations[0].field, "edits[0]");
        let error = decode_slice::<crate::StoreContextRequest>(br#"["t", "user", "hello"]"#);
        assert!(error.is_err());
        // Lists inside free-form objects are data.
        let entry =
            br#"{"metadata": {"a": [["t"], {"b": [null, -1, 2.5, true, "x"]}]}, "tags": ["y"]}"#;
        let request: crate::StoreContextRequest = decode_slice(entry).unwrap();
        let expected = serde_json::json!({"a": [["t"], {"b": [null, -1, 2.5, true, "x"]}]});
        assert_eq!(request.metadata.as_ref(), expected.as_object());
        assert_eq!(request.tags.as_deref(), Some(["y".to_owned()].as_slice()));
    }

    #[test]
    fn a_wrong_type_is_reported_with_its_path() {
        let error = decode::<crate::StoreContextBatchRequest>(
            serde_json::json!({"entries": [{"thread_id": "t", "source": "user", "text": 5}]}),
        )
        .unwrap_err();
        assert_eq!(error.violations[0].field, "entries[0].text");
        assert_eq!(error.message, "`entries[0].text` must be a string");
    }

    #[test]
    fn what_is_allowed_is_said_in_plain_words() {
        use serde_json::json;

        let refused = |value| {
            decode::<crate::StoreContextBatchRequest>(value)
                .unwrap_err()
                .message
        };
        let search = |value| {
            decode::<crate::HybridSearchContextRequest>(value)
                .unwrap_err()
                .message
        };
        for (error, expected) in [
            (
                search(json!({"limit": "x, expected y"})),
                "`limit` must be an integer",
            ),
            (search(json!({"limit": 1.5})), "`limit` must be an integer"),
            (
                search(json!({"limit": u64::MAX})),
                "`limit` must be an integer of at most 64 bits",
            ),
            (
                search(json!({"min_relevance": "0"})),
                "`min_relevance` must be a number",
            ),
            (
                search(json!({"highlight": 1})),
                "`highlight` must be true or false",
            ),
            (search(json!({"tags": "a"})), "`tags` must be a list"),
            (
                search(json!({"metadata": []})),
                "`metadata` must be an object",
            ),
            (
                refused(json!({"entries": [["t"]]})),
                "`entries[0]` must be an object",
            ),
            (refused(json!([])), "`arguments` must be an object"),
        ] {
            assert_eq!(error, expected);
        }
        let error = decode::<crate::GetContextByIdsRequest>(json!({"context_ids": [1, "x"]}));
        assert_eq!(
            error.unwrap_err().message,
            "`context_ids[1]` must be an integer"
        );
        let error = decode_slice::<crate::StoreContextRequest>(br#"["t"]"#).unwrap_err();
        assert_eq!(
            (error.violations[0].field.as_str(), error.message.as_str()),
            ("body", "`body` must be an object")
        );
    }

    #[test]
    fn fields_inside_a_parameter_are_named_with_it() {
        let refused = |text| {
            let read = decode_parameter::<Vec<crate::MetadataFilter>>("metadata_filters", text);
            let error = read.unwrap_err();
            (error.violations[0].field.clone(), error.message)
        };
        for (text, field, message) in [
            (
                "{}",
                "metadata_filters",
                "`metadata_filters` must be a list",
            ),
            (
                "[{\"key\": 1}]",
                "metadata_filters[0].key",
                "`metadata_filters[0].key` must be a string",
            ),
            (
                "[{\"kei\": \"a\"}]",
                "metadata_filters[0].kei",
                "`metadata_filters[0].kei` is not a parameter; did you mean `key`?",
            ),
            (
                "[{\"key\": \"a\", \"key\": \"b\"}]",
                "metadata_filters[0].key",
                "`metadata_filters[0].key` is given more than once",
            ),
            (
                "",
                "metadata_filters",
                "`metadata_filters` is not valid JSON: EOF while parsing a value at line 1 column 0",
            ),
        ] {
            assert_eq!(refused(text), (field.to_owned(), message.to_owned()));
        }
    }
}
