use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{JsonObject, MetadataPath};

/// Longest string that is listed as a value, in characters.
const MAX_VALUE_CHARS: usize = 256;

/// Which metadata keys to list.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Deserialize,
    Serialize,
    utoipa::ToSchema,
    utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListMetadataKeysRequest {
    /// Only keys that begin with this text, in upper or lower case.
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub prefix: Option<String>,
    /// Only keys of this thread's entries; only these entries are counted.
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub thread_id: Option<String>,
    /// Maximum number of keys, 1 to 1000; default 100.
    #[schema(minimum = 1, maximum = 1000)]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    pub min_revision: Option<i64>,
}

/// Metadata keys, most frequent first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListMetadataKeysReply {
    /// The keys.
    pub keys: Vec<MetadataKeyCount>,
    /// Number of different keys among the entries that were read.
    pub total: i64,
    /// Whether there are more keys than `limit`.
    pub has_more: bool,
    /// Number of entries that were read: the newest ones that the request selects. Metadata of more than 4 KiB is not
    /// read.
    pub scanned: i64,
    /// Whether every entry that the request selects was read.
    pub complete: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// One metadata key with its count.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct MetadataKeyCount {
    /// The key as filters name it: a dotted path for a field of a nested object.
    pub key: String,
    /// Number of entries that have it, among those that were read.
    pub entry_count: i64,
}

/// The metadata key whose values to list.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Deserialize,
    Serialize,
    utoipa::ToSchema,
    utoipa::IntoParams,
)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListMetadataValuesRequest {
    /// The key as filters name it: a dotted path for a field of a nested object.
    #[serde(default)]
    #[schema(required, min_length = 1, max_length = 512)]
    #[param(required, min_length = 1, max_length = 512, example = "project")]
    pub key: String,
    /// Only values whose text begins with this, in upper or lower case.
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub prefix: Option<String>,
    /// Only values of this thread's entries; only these entries are counted.
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub thread_id: Option<String>,
    /// Maximum number of values, 1 to 1000; default 100.
    #[schema(minimum = 1, maximum = 1000)]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    pub min_revision: Option<i64>,
}

/// Values of a metadata key, most frequent first, then by their JSON text.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListMetadataValuesReply {
    /// The values.
    pub values: Vec<MetadataValueCount>,
    /// Number of different values among the entries that were read.
    pub total: i64,
    /// Whether there are more values than `limit`.
    pub has_more: bool,
    /// Number of entries that were read: the newest ones that the request selects. Metadata of more than 4 KiB is not
    /// read.
    pub scanned: i64,
    /// Whether every entry that the request selects was read.
    pub complete: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// One value of a metadata key with its count.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct MetadataValueCount {
    /// A string of at most 256 characters, a number or a boolean.
    pub value: Value,
    /// Number of entries that have it, among those that were read.
    pub entry_count: i64,
}

/// Approximate maximum number of bytes that counted keys take. Fields that share a long outer key take far more than
/// their JSON.
pub const MAX_KEY_BYTES: usize = 16 * 1024 * 1024;
/// Approximate number of bytes that a counted key takes in addition to its name.
const KEY_OVERHEAD_BYTES: usize = 100;

/// Counts in how many of these objects each key occurs: most frequent first, then by name. Keys that no filter can name
/// are left out. A field that holds an object with fields is not counted itself; the inner fields are. Once the keys
/// take more than [`MAX_KEY_BYTES`], no further object is read.
#[must_use]
pub fn count_keys(
    objects: impl Iterator<Item = JsonObject>,
    prefix: Option<&str>,
) -> Vec<MetadataKeyCount> {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    let mut bytes = 0;
    for object in objects {
        let mut found = Vec::new();
        paths(&object, "", &mut found);
        for path in found.into_iter().filter(|path| begins(path, prefix)) {
            if let Some(count) = counts.get_mut(&path) {
                *count += 1;
            } else {
                bytes += path.len() + KEY_OVERHEAD_BYTES;
                counts.insert(path, 1);
            }
        }
        if bytes > MAX_KEY_BYTES {
            break;
        }
    }
    let mut keys: Vec<_> = counts
        .into_iter()
        .map(|(key, entry_count)| MetadataKeyCount { key, entry_count })
        .collect();
    // The sort is stable, and the map is in the order of names.
    keys.sort_by_key(|key| -key.entry_count);
    keys
}

/// Adds the paths of an object's fields to `found`, each once. The recursion ends where a path has too many segments.
fn paths(object: &JsonObject, above: &str, found: &mut Vec<String>) {
    for (key, value) in object {
        let path = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        // A dot inside a key would name another field.
        if key.contains('.') || MetadataPath::parse(&path).is_none() {
            continue;
        }
        match value {
            Value::Object(inner) if !inner.is_empty() => paths(inner, &path, found),
            _ => found.push(path),
        }
    }
}

/// Counts the scalar values at this path: most frequent first, then by their JSON text. 5 and 5.0 are one value, as for
/// filters. Long strings are left out.
#[must_use]
pub fn count_values(
    objects: impl Iterator<Item = JsonObject>,
    path: &MetadataPath,
    prefix: Option<&str>,
) -> Vec<MetadataValueCount> {
    let mut counts: HashMap<String, MetadataValueCount> = HashMap::new();
    for object in objects {
        let Some((value, json)) = at(&object, path).and_then(listed) else {
            continue;
        };
        let shown = value.as_str().unwrap_or(&json);
        if !begins(shown, prefix) {
            continue;
        }
        let count = counts.entry(json).or_insert(MetadataValueCount {
            value,
            entry_count: 0,
        });
        count.entry_count += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a_json, a), (b_json, b)| {
        (-a.entry_count, a_json).cmp(&(-b.entry_count, b_json))
    });
    counts.into_iter().map(|(_, count)| count).collect()
}

fn at<'o>(object: &'o JsonObject, path: &MetadataPath) -> Option<&'o Value> {
    let (last, outer) = path.segments().split_last()?;
    let mut object = object;
    for segment in outer {
        object = object.get(segment)?.as_object()?;
    }
    object.get(last)
}

/// A scalar that is short enough, and its JSON text. `None` for any other value.
fn listed(value: &Value) -> Option<(Value, String)> {
    let value = match value {
        Value::Bool(_) => value.clone(),
        Value::String(text) if text.chars().nth(MAX_VALUE_CHARS).is_none() => value.clone(),
        Value::Number(number) => integer(number).map_or_else(|| value.clone(), Value::from),
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    let json = value.to_string();
    Some((value, json))
}

/// The integer that this float equals. `None` beyond 2^53, where several integers share one float.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
fn integer(number: &serde_json::Number) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = number.as_f64().filter(|_| number.is_f64())?;
    (float.fract() == 0.0 && float.abs() < EXACT).then_some(float as i64)
}

/// Whether the text begins with `prefix`, ignoring case. `prefix` is in lower case.
fn begins(text: &str, prefix: Option<&str>) -> bool {
    prefix.is_none_or(|prefix| text.to_lowercase().starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn objects(values: &[Value]) -> Vec<JsonObject> {
        values
            .iter()
            .map(|value| value.as_object().expect("an object").clone())
            .collect()
    }

    fn keys(values: &[Value], prefix: Option<&str>) -> Vec<(String, i64)> {
        count_keys(objects(values).into_iter(), prefix)
            .into_iter()
            .map(|key| (key.key, key.entry_count))
            .collect()
    }

    fn values(given: &[Value], key: &str, prefix: Option<&str>) -> Vec<(Value, i64)> {
        let path = MetadataPath::parse(key).expect("a path");
        count_values(objects(given).into_iter(), &path, prefix)
            .into_iter()
            .map(|value| (value.value, value.entry_count))
            .collect()
    }

    #[test]
    fn fields_of_nested_objects_are_keys_with_dots() {
        let given = [
            json!({"status": "open", "team": {"name": "a", "lead": {"id": 1}}, "empty": {}}),
            json!({"status": null, "list": [1]}),
            json!({}),
        ];
        let expected = [
            ("status", 2),
            ("empty", 1),
            ("list", 1),
            ("team.lead.id", 1),
            ("team.name", 1),
        ]
        .map(|(key, count)| (key.to_owned(), count));
        assert_eq!(keys(&given, None), expected);
        assert_eq!(keys(&given, Some("team.l")), expected[3..4]);
    }

    #[test]
    fn keys_that_no_filter_can_name_are_left_out() {
        let deep = (0..40).fold(json!(1), |inner, _| json!({ "a": inner }));
        let given = [
            json!({"a b": 1, "x.y": 1, "": 1, "ä": 1, "ok": 1, "x": {"y": 2}}),
            deep,
        ];
        assert_eq!(
            keys(&given, None),
            [("ok".to_owned(), 1), ("x.y".to_owned(), 1)]
        );
    }

    #[test]
    fn values_are_scalars_and_equal_numbers_are_one() {
        let given = [
            json!({"v": 5}),
            json!({"v": 5.0}),
            json!({"v": "5"}),
            json!({"v": true}),
            json!({"v": "Open"}),
            json!({"v": "open"}),
            json!({"v": "x".repeat(257)}),
            json!({"v": null}),
            json!({"v": ["a"]}),
            json!({"v": {"w": 1}}),
            json!({"w": 5}),
        ];
        assert_eq!(
            values(&given, "v", None),
            [
                (json!(5), 2),
                (json!("5"), 1),
                (json!("Open"), 1),
                (json!("open"), 1),
                (json!(true), 1),
            ]
        );
        assert_eq!(
            values(&given, "v", Some("op")),
            [(json!("Open"), 1), (json!("open"), 1)]
        );
        assert_eq!(values(&given, "v", Some("5")).len(), 2);
        assert_eq!(values(&given, "v.w", None), [(json!(1), 1)]);
    }

    #[test]
    fn counting_ends_when_the_keys_take_too_much_memory() {
        let mut read = 0;
        let objects = (0..10_000).map(|n| {
            read += 1;
            let fields = (0..700).map(|field| (format!("{n}-{field}"), json!(0)));
            JsonObject::from_iter([("k".repeat(400), Value::Object(fields.collect()))])
        });
        let keys = count_keys(objects, None);
        let bytes: usize = keys.iter().map(|key| key.key.len()).sum();
        assert!(read < 500 && bytes < 2 * MAX_KEY_BYTES, "{read}, {bytes}");
    }
}
