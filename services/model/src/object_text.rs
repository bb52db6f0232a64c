use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::JsonObject;

/// A JSON object that stays text. Metadata goes from the database to a reply without being
/// parsed into a map: for a page of small entries, parsing would be most of the work.
#[derive(Clone)]
pub struct ObjectText(Box<RawValue>);

impl ObjectText {
    /// Takes the text of an object. It must be well-formed JSON. Whether its numbers are in the range of a double is
    /// checked only when it is parsed.
    ///
    /// # Errors
    /// If the text is not a JSON object.
    pub fn from_slice(json: &[u8]) -> serde_json::Result<Self> {
        let raw: Box<RawValue> = serde_json::from_slice(json)?;
        if raw.get().starts_with('{') {
            Ok(Self(raw))
        } else {
            Err(serde::de::Error::custom("the JSON is not an object"))
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// The object.
    ///
    /// # Errors
    /// If a number is beyond the range of a double, or if the nesting is deeper than 127 levels.
    pub fn to_object(&self) -> serde_json::Result<JsonObject> {
        serde_json::from_str(self.as_str())
    }
}

impl From<&JsonObject> for ObjectText {
    fn from(object: &JsonObject) -> Self {
        match serde_json::value::to_raw_value(object) {
            Ok(raw) => Self(raw),
            Err(error) => unreachable!("strings and values can be written to memory: {error}"),
        }
    }
}

impl Default for ObjectText {
    fn default() -> Self {
        Self::from(&JsonObject::new())
    }
}

impl std::fmt::Debug for ObjectText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Compares objects; the order of keys and whitespace do not matter.
impl PartialEq for ObjectText {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
            || matches!((self.to_object(), other.to_object()), (Ok(one), Ok(other)) if one == other)
    }
}

impl Serialize for ObjectText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ObjectText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        JsonObject::deserialize(deserializer).map(|object| Self::from(&object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(json: &str) -> ObjectText {
        ObjectText::from_slice(json.as_bytes()).unwrap()
    }

    #[test]
    fn it_is_shown_as_it_was_stored_and_read_as_an_object() {
        let given = text(r#"{"b":1.0,"a":[9007199254740993,"ü"]}"#);
        assert_eq!(
            serde_json::to_string(&given).unwrap(),
            r#"{"b":1.0,"a":[9007199254740993,"ü"]}"#
        );
        assert_eq!(
            serde_json::to_value(&given).unwrap(),
            json!({"a": [9_007_199_254_740_993_i64, "ü"], "b": 1.0})
        );
        assert_eq!(
            serde_json::from_str::<ObjectText>(given.as_str()).unwrap(),
            given
        );
        assert_eq!(
            serde_json::from_value::<ObjectText>(serde_json::to_value(&given).unwrap()).unwrap(),
            given
        );
    }

    #[test]
    fn the_order_of_keys_and_space_tell_no_objects_apart() {
        assert_eq!(
            text(r#" {"a": 1, "b": {"c": 2, "d": 3}} "#),
            text(r#"{"b":{"d":3,"c":2},"a":1}"#)
        );
        assert_ne!(text(r#"{"a":1}"#), text(r#"{"a":1.0}"#));
        assert_eq!(ObjectText::default(), ObjectText::from(&JsonObject::new()));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for json in ["", "[]", "null", "\"{}\"", "{\"a\":}", "{} {}", "{'a':1}"] {
            assert!(ObjectText::from_slice(json.as_bytes()).is_err(), "{json}");
        }
        assert!(
            ObjectText::from_slice(b"{\"\xff\":1}").is_err(),
            "it is not UTF-8"
        );
        assert!(text(r#"{"a":1e999}"#).to_object().is_err());
    }
}
