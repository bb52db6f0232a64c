use context_model::{Error, JsonObject, Result};
use serde_json::{Map, Number, Value};

use crate::v1 as pb;

/// Levels that replies carry as messages; what lies deeper travels as JSON text (see value.proto).
const MESSAGE_LEVELS: usize = 16;

/// Requests nested deeper as messages do not pass prost's decoder (limit 100 messages, 3 a level); a `json_value` is
/// parsed by serde_json, whose own limit is 128 levels. So recursion here is bounded.
pub(crate) fn object_from_pb(object: pb::Object, field: &str) -> Result<JsonObject> {
    let pb::Object { fields } = object;
    fields
        .into_iter()
        .map(|(key, value)| {
            let value = value_from_pb(value, &|| format!("{field}.{key}"))?;
            Ok((key, value))
        })
        .collect()
}

/// `path` is only called for an error.
pub(crate) fn value_from_pb(value: pb::Value, path: &dyn Fn() -> String) -> Result<Value> {
    use pb::value::Kind;
    let pb::Value { kind } = value;
    Ok(match kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => Value::Bool(value),
        Some(Kind::IntValue(value)) => Value::from(value),
        Some(Kind::DoubleValue(value)) => {
            let number = Number::from_f64(value);
            Value::Number(number.ok_or_else(|| {
                let path = path();
                Error::invalid(&path, format!("`{path}` is {value}; numbers must be finite"))
            })?)
        }
        Some(Kind::StringValue(value)) => Value::String(value),
        Some(Kind::ListValue(pb::ListValue { values })) => Value::Array(
            values.into_iter().enumerate().map(|(i, value)| value_from_pb(value, &|| format!("{}[{i}]", path()))).collect::<Result<_>>()?,
        ),
        Some(Kind::ObjectValue(pb::Object { fields })) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| {
                    let value = value_from_pb(value, &|| format!("{}.{key}", path()))?;
                    Ok((key, value))
                })
                .collect::<Result<_>>()?,
        ),
        Some(Kind::JsonValue(text)) => context_model::decode_slice(text.as_bytes()).map_err(|error| {
            let path = path();
            Error::invalid(&path, format!("`{path}` is not valid JSON: {error}"))
        })?,
    })
}

pub(crate) fn object_to_pb(object: Map<String, Value>) -> pb::Object {
    object_at(object, 1)
}

pub(crate) fn value_to_pb(value: Value) -> pb::Value {
    value_at(value, 1)
}

fn object_at(object: Map<String, Value>, level: usize) -> pb::Object {
    pb::Object { fields: object.into_iter().map(|(key, value)| (key, value_at(value, level + 1))).collect() }
}

fn value_at(value: Value, level: usize) -> pb::Value {
    use pb::value::Kind;
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(value) => Kind::BoolValue(value),
        Value::Number(number) => match number.as_i64() {
            Some(value) => Kind::IntValue(value),
            // An integer beyond i64 goes as text, so that the service's own rule refuses it with the right words.
            None if number.is_u64() => Kind::JsonValue(number.to_string()),
            None => Kind::DoubleValue(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(value) => Kind::StringValue(value),
        nested @ (Value::Array(_) | Value::Object(_)) if level > MESSAGE_LEVELS => Kind::JsonValue(nested.to_string()),
        Value::Array(values) => Kind::ListValue(pb::ListValue { values: values.into_iter().map(|v| value_at(v, level + 1)).collect() }),
        Value::Object(object) => Kind::ObjectValue(object_at(object, level)),
    };
    pb::Value { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;
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
        let bytes = object_to_pb(object.clone()).encode_to_vec();
        let back = object_from_pb(pb::Object::decode(&bytes[..]).unwrap(), "metadata").unwrap();
        assert_eq!(back, object);
        assert!(back["float"].is_f64() && back["int"].is_i64());
    }

    #[test]
    fn a_number_that_json_cannot_hold_is_named_by_its_path() {
        let nan = pb::Value { kind: Some(pb::value::Kind::DoubleValue(f64::NAN)) };
        let list = pb::Value { kind: Some(pb::value::Kind::ListValue(pb::ListValue { values: vec![nan] })) };
        let object = pb::Object { fields: [("a".to_owned(), list)].into() };
        assert_eq!(object_from_pb(object, "metadata").unwrap_err().message, "`metadata.a[0]` is NaN; numbers must be finite");
    }
}
