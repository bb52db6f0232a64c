use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{Error, JsonObject, RESERVED_KEY, Result, Violations};

/// Approximate number of bytes that an object takes in memory. Many small values take several times as much as their
/// JSON.
#[must_use]
pub fn held_bytes(object: &JsonObject) -> usize {
    let of_field =
        |(key, value): (&String, &Value)| size_of::<String>() + key.len() + held_value(value);
    object.iter().map(of_field).sum()
}

/// Bytes of one value. Metadata has at most 64 levels, which also bounds the recursion.
fn held_value(value: &Value) -> usize {
    let inner = match value {
        Value::Array(items) => items.iter().map(held_value).sum(),
        Value::Object(fields) => held_bytes(fields),
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inner
}

/// An entry's metadata: a JSON object of limited depth and size, without U+0000, whose integers fit
/// in 64 bits.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata(JsonObject);

/// How an update changes metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataChange {
    /// The whole object is replaced.
    Replace(Metadata),
    /// An RFC 7396 merge patch is applied.
    Patch(JsonObject),
}

impl Metadata {
    /// Deepest nesting; the object itself is level 1.
    pub const MAX_DEPTH: usize = 64;
    /// Largest compact JSON, in bytes.
    pub const MAX_BYTES: usize = 1024 * 1024;

    /// The error for an object that is nested too deeply at `path`.
    #[must_use]
    pub fn too_deep(path: &str) -> Error {
        let root = path.split(['.', '[']).next().unwrap_or_default();
        Error::invalid(
            root,
            format!(
                "`{root}` is nested more than {} levels deep",
                Self::MAX_DEPTH
            ),
        )
    }

    /// Validates an object; otherwise adds violations under `field` and returns `None`.
    pub fn parse(object: JsonObject, field: &str, violations: &mut Violations) -> Option<Self> {
        match check(&object, field) {
            Ok(()) => Some(Self(object)),
            Err(error) => {
                violations.extend(error);
                None
            }
        }
    }

    /// Validates a merge patch by the same rules. Its size limits the work of applying it.
    pub fn parse_patch(
        patch: JsonObject,
        field: &str,
        violations: &mut Violations,
    ) -> Option<JsonObject> {
        Self::parse(patch, field, violations).map(|m| m.0)
    }

    /// Metadata that was validated before, such as metadata from a database.
    #[must_use]
    pub const fn from_stored(object: JsonObject) -> Self {
        Self(object)
    }

    /// This metadata after `patch` (RFC 7396).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` on `metadata_patch` if the result exceeds a limit.
    pub fn patched(&self, patch: &JsonObject) -> Result<Self> {
        let mut merged = Value::Object(self.0.clone());
        json_patch::merge(&mut merged, &Value::Object(patch.clone()));
        let Value::Object(merged) = merged else {
            unreachable!("merging an object patch gives an object")
        };
        check(&merged, "metadata_patch")?;
        Ok(Self(merged))
    }

    /// The object.
    #[must_use]
    pub const fn as_object(&self) -> &JsonObject {
        &self.0
    }

    /// The object.
    #[must_use]
    pub fn into_object(self) -> JsonObject {
        self.0
    }

    /// Compact JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_string(&self.0)
    }

    /// Compact JSON with every string value case-folded (see [`fold`]); keys are unchanged.
    #[must_use]
    pub fn to_folded_json(&self) -> String {
        to_string(&FoldedObject(&self.0))
    }
}

fn to_string(json: &impl Serialize) -> String {
    match serde_json::to_string(json) {
        Ok(text) => text,
        Err(error) => unreachable!("strings and values can be written to memory: {error}"),
    }
}

/// The case folding of metadata filters and of substring search in artifacts: Unicode lower case. It is done here and
/// never by a database, so that both databases agree.
#[must_use]
pub fn fold(text: &str) -> String {
    text.to_lowercase()
}

/// Serializes a value with its strings folded.
struct Folded<'v>(&'v Value);

/// Serializes an object with the strings in its values folded; its keys are unchanged.
struct FoldedObject<'v>(&'v JsonObject);

impl Serialize for Folded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) => serializer.serialize_str(&fold(text)),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Folded)),
            Value::Object(object) => FoldedObject(object).serialize(serializer),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => {
                other.serialize(serializer)
            }
        }
    }
}

impl Serialize for FoldedObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, Folded(value))))
    }
}

/// The size comes first: it bounds the work of the other checks.
fn check(object: &JsonObject, field: &str) -> Result<()> {
    let size = json_len(object);
    if size > Metadata::MAX_BYTES {
        return Err(Error::invalid(
            field,
            format!(
                "`{field}` takes {size} bytes as JSON; the maximum is {}",
                Metadata::MAX_BYTES
            ),
        ));
    }
    check_object(object, &|| field.to_owned(), 1)
}

fn check_object(object: &JsonObject, path: &dyn Fn() -> String, depth: usize) -> Result<()> {
    object.iter().try_for_each(|(key, value)| {
        check_key(key, path)?;
        check_value(value, &|| format!("{}.{key}", path()), depth + 1)
    })
}

fn check_key(key: &str, path: &dyn Fn() -> String) -> Result<()> {
    if key.contains('\0') {
        let path = path();
        return Err(Error::invalid(
            &path,
            format!("`{path}` has a key with the character U+0000, which cannot be stored"),
        ));
    }
    if key == RESERVED_KEY {
        let path = path();
        return Err(Error::invalid(
            &path,
            format!("`{path}` has the reserved key `{RESERVED_KEY}`"),
        ));
    }
    Ok(())
}

/// `path` is a closure, because the path is only needed for an error.
fn check_value(value: &Value, path: &dyn Fn() -> String, depth: usize) -> Result<()> {
    match value {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::String(text) if text.contains('\0') => {
            let path = path();
            Err(Error::invalid(
                &path,
                format!("`{path}` contains the character U+0000, which cannot be stored"),
            ))
        }
        Value::String(_) => Ok(()),
        Value::Number(number) if number.is_u64() && !number.is_i64() => {
            let path = path();
            Err(Error::invalid(
                &path,
                format!(
                    "`{path}` is {number}; integers must lie within -9223372036854775808 to 9223372036854775807"
                ),
            ))
        }
        Value::Number(_) => Ok(()),
        Value::Array(_) | Value::Object(_) if depth > Metadata::MAX_DEPTH => {
            Err(Metadata::too_deep(&path()))
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(i, item)| check_value(item, &|| format!("{}[{i}]", path()), depth + 1)),
        Value::Object(object) => check_object(object, path, depth),
    }
}

/// The length of the compact JSON, without building it.
fn json_len(object: &JsonObject) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
            self.0 += buf.len();
            Ok(buf.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    let written = serde_json::to_writer(&mut counter, object);
    debug_assert!(written.is_ok(), "counting cannot fail");
    counter.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(value: Value) -> String {
        let Value::Object(object) = value else {
            panic!("an object")
        };
        let mut violations = Violations::default();
        assert_eq!(Metadata::parse(object, "metadata", &mut violations), None);
        violations.finish(()).unwrap_err().message
    }

    #[test]
    fn limits_are_named_with_the_path() {
        assert_eq!(
            refused(json!({"a": [1, 18446744073709551615u64]})),
            "`metadata.a[1]` is 18446744073709551615; integers must lie within -9223372036854775808 to 9223372036854775807"
        );
        assert_eq!(
            refused(json!({"a": {"b": "x\0"}})),
            "`metadata.a.b` contains the character U+0000, which cannot be stored"
        );
        assert!(
            refused(json!({"a": "x".repeat(Metadata::MAX_BYTES)}))
                .contains("the maximum is 1048576")
        );
        let mut deep = json!(1);
        for _ in 0..65 {
            deep = json!({"a": deep});
        }
        assert_eq!(
            refused(deep),
            "`metadata` is nested more than 64 levels deep"
        );
    }

    #[test]
    fn a_path_is_built_only_for_an_error() {
        let built = std::cell::Cell::new(0);
        let path = || {
            built.set(built.get() + 1);
            "metadata".to_owned()
        };
        let mut many = json!({"a": {"b": [1, "x", {"c": null}], "d": {}}, "e": 2.5});
        assert!(check_object(many.as_object().unwrap(), &path, 1).is_ok());
        assert_eq!(built.get(), 0);
        many["a"]["d"]["f\0"] = json!(1);
        assert_eq!(
            check_object(many.as_object().unwrap(), &path, 1)
                .unwrap_err()
                .message,
            "`metadata.a.d` has a key with the character U+0000, which cannot be stored"
        );
        assert_eq!(built.get(), 1);
    }

    #[test]
    fn the_members_of_an_oversized_object_are_not_checked() {
        let large = json!({"a\0": "x\0".repeat(Metadata::MAX_BYTES)});
        assert!(refused(large).contains("the maximum is 1048576"));
    }

    #[test]
    fn sixty_four_levels_are_accepted() {
        let mut deep = json!(1);
        for _ in 0..64 {
            deep = json!({"a": deep});
        }
        assert!(
            Metadata::parse(
                deep.as_object().unwrap().clone(),
                "metadata",
                &mut Violations::default()
            )
            .is_some()
        );
    }

    /// RFC 7396, Appendix A, the cases whose target and result are objects.
    #[test]
    fn merge_patch_follows_the_rfc() {
        for (target, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (
                json!({"a":"b","b":"c"}),
                json!({"a":null}),
                json!({"b":"c"}),
            ),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (
                json!({"a":{"b":"c"}}),
                json!({"a":{"b":"d","c":null}}),
                json!({"a":{"b":"d"}}),
            ),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (
                json!({}),
                json!({"a":{"bb":{"ccc":null}}}),
                json!({"a":{"bb":{}}}),
            ),
        ] {
            let target = Metadata::from_stored(target.as_object().unwrap().clone());
            let merged = target.patched(patch.as_object().unwrap()).unwrap();
            assert_eq!(Value::Object(merged.into_object()), result, "{patch}");
        }
    }

    #[test]
    fn folding_reaches_nested_strings_but_no_key() {
        let metadata = Metadata::from_stored(
            json!({"Key": ["ÄB", {"X": "ΣΑΣ"}], "n": 1})
                .as_object()
                .unwrap()
                .clone(),
        );
        assert_eq!(
            metadata.to_folded_json(),
            r#"{"Key":["äb",{"X":"σας"}],"n":1}"#
        );
    }
}
