//! Conversions of metadata values, in both directions.

use context_model::{Error, JsonObject, Metadata, ObjectText, Reason, Result};
use prost::Message as _;
use prost_types::NullValue;
use serde_json::{Number, Value};

use crate::object::{Member, Object};
use crate::v1 as pb;
use crate::v1::value::Kind;
use crate::write;

pub(crate) fn object_from_pb(object: Object, field: &str) -> Result<JsonObject> {
    object_at_level(object, &|| field.to_owned(), 1)
}

/// Maximum size of an encoded object. JSON grows most where a list holds `-1`: three bytes with the comma become
/// thirteen. Eight times the size leaves room for clients that encode less tightly.
const MAX_ENCODED_BYTES: usize = 8 * Metadata::MAX_BYTES;

/// Converts an object at this level of nesting. `path` is called only for an error. The recursion ends at the maximum
/// depth of metadata. prost's own limit does not suffice: it counts within one message, and the members of each object
/// are decoded as a separate message. (serde_json limits the depth of JSON text.)
///
/// Decoding copies the bytes of each nested object. So the size is limited first, and an object's own bytes are freed
/// before its members are converted. Otherwise deep nesting would need memory and time for 64 copies of any message.
fn object_at_level(object: Object, path: &dyn Fn() -> String, level: usize) -> Result<JsonObject> {
    if level > Metadata::MAX_DEPTH {
        return Err(Metadata::too_deep(&path()));
    }
    let size = object.encoded_len();
    if size > MAX_ENCODED_BYTES {
        let path = path();
        let rule = format!(
            "`{path}` takes {size} bytes as a message; the maximum is {MAX_ENCODED_BYTES}, and {} as JSON",
            Metadata::MAX_BYTES
        );
        return Err(Error::invalid(&path, rule));
    }
    let members = object.into_members().map_err(|error| {
        let path = path();
        Error::invalid(&path, format!("`{path}` is not a valid message: {error}"))
    })?;
    members
        .into_iter()
        .map(|Member { key, value }| {
            let value = value_at_level(
                value.unwrap_or_default(),
                &|| format!("{}.{key}", path()),
                level + 1,
            )?;
            Ok((key, value))
        })
        .collect()
}

pub(crate) fn value_from_pb(value: pb::Value, path: &dyn Fn() -> String) -> Result<Value> {
    value_at_level(value, path, 1)
}

/// `level` is the value's level, if it is an object or a list.
fn value_at_level(value: pb::Value, path: &dyn Fn() -> String, level: usize) -> Result<Value> {
    let pb::Value { kind } = value;
    Ok(match kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::IntValue(value)) => Value::from(value),
        Some(Kind::DoubleValue(value)) => {
            let number = Number::from_f64(value);
            Value::Number(number.ok_or_else(|| {
                let path = path();
                Error::invalid(
                    &path,
                    format!("`{path}` is {value}; numbers must be finite"),
                )
            })?)
        }
        Some(Kind::StringValue(value)) => Value::String(value),
        Some(Kind::ListValue(_)) if level > Metadata::MAX_DEPTH => {
            return Err(Metadata::too_deep(&path()));
        }
        Some(Kind::ListValue(pb::ListValue { values })) => {
            let item =
                |(i, value)| value_at_level(value, &|| format!("{}[{i}]", path()), level + 1);
            Value::Array(
                values
                    .into_iter()
                    .enumerate()
                    .map(item)
                    .collect::<Result<_>>()?,
            )
        }
        Some(Kind::ObjectValue(object)) => Value::Object(object_at_level(object, path, level)?),
        // For an error the text is read again, with its path.
        Some(Kind::JsonValue(text)) => context_model::decode_parameter("", &text)
            .or_else(|_| context_model::decode_parameter(&path(), &text))?,
    })
}

impl From<&JsonObject> for Object {
    fn from(object: &JsonObject) -> Self {
        match write::object(object) {
            Ok(object) => object,
            Err(error) => unreachable!("every value can be read from memory: {error}"),
        }
    }
}

/// Converts metadata that a database stores as text. Its numbers have not been parsed before, so one may be beyond the
/// range of a double.
pub(crate) fn text_to_pb(object: &ObjectText) -> Result<Object> {
    let written = write::object(&mut serde_json::Deserializer::from_str(object.as_str()));
    written.map_err(|error| {
        Error::new(Reason::StorageCorrupt, "stored metadata cannot be read").with_source(error)
    })
}

pub(crate) fn text_from_pb(object: Option<Object>) -> Result<ObjectText> {
    object_from_pb(object.unwrap_or_default(), "metadata").map(|object| ObjectText::from(&object))
}

/// Converts the value of a metadata filter: a scalar or a list of scalars. Any other value is sent as JSON text, and
/// the service rejects it.
pub(crate) fn value_to_pb(value: Value) -> pb::Value {
    let Value::Array(items) = value else {
        return scalar_to_pb(value);
    };
    let values = items.into_iter().map(scalar_to_pb).collect();
    pb::Value {
        kind: Some(Kind::ListValue(pb::ListValue { values })),
    }
}

fn scalar_to_pb(value: Value) -> pb::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(NullValue::NullValue.into()),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(int), _) => Kind::IntValue(int),
            (None, Some(float)) if number.is_f64() => Kind::DoubleValue(float),
            // An integer beyond i64. The service rejects it with its own error message.
            _ => Kind::JsonValue(number.to_string()),
        },
        Value::String(text) => Kind::StringValue(text),
        nested @ (Value::Array(_) | Value::Object(_)) => Kind::JsonValue(nested.to_string()),
    };
    pb::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::of_members;
    use serde_json::json;

    #[test]
    fn metadata_survives_the_round_trip_exactly() {
        let mut deep = json!([1, {"x": 1.0}]);
        for _ in 0..60 {
            deep = json!({"a": deep});
        }
        let value = json!({
            "int": 9007199254740993i64, "min": i64::MIN, "float": 5.0, "tiny": 1e-300, "null": null, "t": true,
            "list": [1, "a", [], {}], "text": "Ä\u{2028}", "": {"": 0}, "deep": deep,
        });
        let object = value.as_object().unwrap().clone();
        let bytes = Object::from(&object).encode_to_vec();
        let back = object_from_pb(Object::decode(&bytes[..]).unwrap(), "metadata").unwrap();
        assert_eq!(back, object);
        assert!(back["float"].is_f64() && back["int"].is_i64());
    }

    #[test]
    fn single_values_survive_it_too() {
        let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
        for value in [
            json!(null),
            json!(true),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(1.5),
            json!("x"),
            json!([1, {"a": []}]),
            deep,
        ] {
            assert_eq!(
                value_from_pb(value_to_pb(value.clone()), &|| "value".to_owned()).unwrap(),
                value
            );
        }
    }

    #[test]
    fn text_and_map_give_the_same_message_whatever_their_size() {
        for length in [0, 1, 100, 125, 127, 128, 129, 16_383, 16_384, 40_000] {
            let value = json!({"text": "x".repeat(length), "n": {"list": [{"more": "y".repeat(length)}, -1, 0.5, "\"\\\n"]}});
            let object = value.as_object().unwrap();
            let written = text_to_pb(&ObjectText::from(object)).unwrap();
            assert_eq!(written, Object::from(object));
            assert_eq!(
                object_from_pb(written, "metadata").unwrap(),
                *object,
                "{length}"
            );
        }
    }

    #[test]
    fn stored_text_that_is_no_object_of_this_program_is_an_error() {
        let text = ObjectText::from_slice(br#"{"a":{"b":1e999}}"#).unwrap();
        assert_eq!(
            text_to_pb(&text).unwrap_err().reason,
            Reason::StorageCorrupt
        );
    }

    #[test]
    fn what_is_nested_deeper_than_metadata_may_be_is_refused_and_not_followed() {
        let nested = |levels: usize| {
            (1..levels).fold(Object::default(), |inner, _| {
                let value = pb::Value {
                    kind: Some(pb::value::Kind::ObjectValue(inner)),
                };
                of_members(vec![Member {
                    key: "a".to_owned(),
                    value: Some(value),
                }])
            })
        };
        assert!(object_from_pb(nested(64), "metadata").is_ok());
        for levels in [65, 5_000] {
            assert_eq!(
                object_from_pb(nested(levels), "metadata")
                    .unwrap_err()
                    .message,
                "`metadata` is nested more than 64 levels deep"
            );
        }
    }

    #[test]
    fn an_object_that_is_too_large_is_refused_before_it_is_decoded() {
        // No valid members, so an error of the decoder would show that it was called.
        let large = Object::of_encoded(vec![0xff; MAX_ENCODED_BYTES + 1]);
        assert_eq!(
            object_from_pb(large, "metadata").unwrap_err().message,
            "`metadata` takes 8388609 bytes as a message; the maximum is 8388608, and 1048576 as JSON"
        );
        let mut longest = String::from(r#"{"a":[-1"#);
        while longest.len() + 5 < Metadata::MAX_BYTES {
            longest.push_str(",-1");
        }
        longest.push_str("]}");
        let object: JsonObject = serde_json::from_str(&longest).unwrap();
        let encoded = Object::from(&object);
        assert!(encoded.encoded_len() > 4 * longest.len());
        assert_eq!(object_from_pb(encoded, "metadata").unwrap(), object);
    }

    #[test]
    fn bytes_that_are_no_members_are_named_by_their_path() {
        // A key of two bytes that are not UTF-8.
        let malformed = Object::decode(&[0x0a, 0x04, 0x0a, 0x02, 0xc3, 0x28][..]).unwrap();
        let error = object_from_pb(malformed, "metadata").unwrap_err();
        assert!(
            error
                .message
                .starts_with("`metadata` is not a valid message: "),
            "{error}"
        );
    }

    #[test]
    fn unknown_fields_are_skipped_and_of_a_repeated_key_the_last_value_counts() {
        let one = pb::Value {
            kind: Some(pb::value::Kind::IntValue(1)),
        };
        let two = pb::Value {
            kind: Some(pb::value::Kind::IntValue(2)),
        };
        let member = |value| Member {
            key: "a".to_owned(),
            value: Some(value),
        };
        let mut bytes = of_members(vec![member(one), member(two)]).encode_to_vec();
        bytes.extend([0x10, 0x07, 0x1a, 0x01, 0xff]);
        assert_eq!(
            Value::Object(object_from_pb(Object::decode(&bytes[..]).unwrap(), "metadata").unwrap()),
            json!({"a": 2})
        );
    }

    #[test]
    fn json_text_that_is_refused_is_named_by_its_path() {
        let refused = |text: &str| {
            let value = pb::Value {
                kind: Some(pb::value::Kind::JsonValue(text.to_owned())),
            };
            let error = value_from_pb(value, &|| "metadata.a".to_owned()).unwrap_err();
            error.message
        };
        assert_eq!(
            refused("[1"),
            "`metadata.a` is not valid JSON: EOF while parsing a list at line 1 column 2"
        );
        assert_eq!(
            refused(""),
            "`metadata.a` is not valid JSON: EOF while parsing a value at line 1 column 0"
        );
        assert_eq!(
            refused("18446744073709551616"),
            "`metadata.a` holds the integer 18446744073709551616; integers must lie within -9223372036854775808 to \
             9223372036854775807"
        );
    }

    #[test]
    fn a_number_that_json_cannot_hold_is_named_by_its_path() {
        let nan = pb::Value {
            kind: Some(pb::value::Kind::DoubleValue(f64::NAN)),
        };
        let list = pb::Value {
            kind: Some(pb::value::Kind::ListValue(pb::ListValue {
                values: vec![nan],
            })),
        };
        let object = of_members(vec![Member {
            key: "a".to_owned(),
            value: Some(list),
        }]);
        assert_eq!(
            object_from_pb(object, "metadata").unwrap_err().message,
            "`metadata.a[0]` is NaN; numbers must be finite"
        );
    }
}
