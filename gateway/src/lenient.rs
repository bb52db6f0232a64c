//! Reads tool arguments the way clients really send them, guided by the tool's input schema.
//!
//! Many clients send structures as JSON strings, numbers as floats and absent parameters as null. What the schema
//! makes unambiguous is repaired here; everything else is left as it is and judged by the service. Declared strings
//! and the inside of free-form objects are never touched, because there every value is data.

use context_model::{JsonObject, Result, Violations};
use serde_json::Value;

/// Violations collected before the rest is ignored, so that a hostile list costs no memory. The error names the first
/// few and counts the others.
const MAX_VIOLATIONS: usize = 1000;

/// Repairs `arguments` after `schema`, the tool's input schema.
///
/// - a JSON string where an array, object, integer, number or boolean is declared is parsed, when what it holds has
///   that type; `5.0` becomes 5 for an integer
/// - null means absent; a bare string or number for a list of such becomes a list of one
/// - items of declared lists and members of declared objects are treated alike; free-form objects are not entered
///
/// # Errors
/// `INVALID_ARGUMENT` naming every value of a wrong type, and every unknown parameter with the nearest known one.
/// Missing parameters are for the service to report, so that the sentence is the same on every wire.
pub fn arguments(schema: &JsonObject, arguments: JsonObject) -> Result<JsonObject> {
    let mut findings = Findings {
        violations: Violations::default(),
        count: 0,
    };
    let repaired = findings.object(schema, arguments, "");
    findings.violations.finish(repaired)
}

struct Findings {
    violations: Violations,
    count: usize,
}

impl Findings {
    fn add(&mut self, field: &str, description: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= MAX_VIOLATIONS {
            self.violations.push(field, description());
        }
    }

    fn wrong_type(&mut self, path: &str, expected: &str, got: &Value) {
        self.add(path, || {
            format!("`{path}` must be {expected}, not {}", describe(got))
        });
    }

    /// An object with declared properties.
    fn object(&mut self, schema: &JsonObject, value: JsonObject, path: &str) -> JsonObject {
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return value;
        };
        let mut repaired = JsonObject::new();
        for (key, member) in value {
            let Some(Value::Object(declared)) = properties.get(&key) else {
                if !member.is_null() {
                    self.unknown(&key, path, properties);
                }
                continue;
            };
            if member.is_null() {
                continue;
            }
            let member_path = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            let member = self.value(declared, member, &member_path);
            repaired.insert(key, member);
        }
        repaired
    }

    fn unknown(&mut self, key: &str, path: &str, properties: &JsonObject) {
        let shown: String = key.chars().take(64).collect();
        let field = if path.is_empty() {
            shown.clone()
        } else {
            format!("{path}.{shown}")
        };
        self.add(&field, || {
            context_model::unknown_field(&field, key, properties.keys().map(String::as_str)).message
        });
    }

    fn value(&mut self, schema: &JsonObject, value: Value, path: &str) -> Value {
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => {
                if !value.is_string() {
                    self.wrong_type(path, "a string", &value);
                }
                value
            }
            Some("integer") => integer(&value).unwrap_or_else(|| {
                self.wrong_type(path, "an integer", &value);
                value
            }),
            Some("number") => embedded(&value, Value::is_number).unwrap_or_else(|| {
                if !value.is_number() {
                    self.wrong_type(path, "a number", &value);
                }
                value
            }),
            Some("boolean") => embedded(&value, Value::is_boolean).unwrap_or_else(|| {
                if !value.is_boolean() {
                    self.wrong_type(path, "true or false", &value);
                }
                value
            }),
            Some("array") => self.array(schema, value, path),
            Some("object") => {
                let value = embedded(&value, Value::is_object).unwrap_or(value);
                match value {
                    Value::Object(members) => Value::Object(self.object(schema, members, path)),
                    other => {
                        self.wrong_type(path, "an object", &other);
                        other
                    }
                }
            }
            // Several types are allowed (the value of a metadata filter): whatever was sent was meant.
            _ => value,
        }
    }

    fn array(&mut self, schema: &JsonObject, value: Value, path: &str) -> Value {
        let items = schema.get("items").and_then(Value::as_object);
        let item_type = items
            .and_then(|items| items.get("type"))
            .and_then(Value::as_str);
        let value = embedded(&value, Value::is_array).unwrap_or(value);
        let list = match value {
            Value::Array(list) => list,
            single if item_type == Some("string") && single.is_string() => vec![single],
            single if item_type == Some("integer") && integer(&single).is_some() => vec![single],
            single if item_type == Some("object") && single.is_object() => vec![single],
            other => {
                self.wrong_type(path, "a list", &other);
                return other;
            }
        };
        let Some(items) = items else {
            return Value::Array(list);
        };
        Value::Array(
            list.into_iter()
                .enumerate()
                .map(|(i, item)| self.value(items, item, &format!("{path}[{i}]")))
                .collect(),
        )
    }
}

/// The JSON value inside a string, when it is of the wanted type.
fn embedded(value: &Value, wanted: fn(&Value) -> bool) -> Option<Value> {
    let text = value.as_str()?;
    serde_json::from_str(text).ok().filter(wanted)
}

/// The value as an integer: itself, a float without a fraction, or a string that holds either.
fn integer(value: &Value) -> Option<Value> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)
            // Every float within ±2^53 without a fraction is an i64.
            .map(|float| Value::from(float as i64)),
        Value::Number(_) => Some(value.clone()),
        Value::String(text) => match serde_json::from_str(text).ok()? {
            number @ Value::Number(_) => integer(&number),
            _ => None,
        },
        _ => None,
    }
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a fractional number",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalogue::Catalogue;

    fn read(tool: &str, sent: Value) -> Result<Value> {
        let schema = &Catalogue::get().find(tool).unwrap().input_schema;
        let Value::Object(sent) = sent else {
            panic!("arguments are an object")
        };
        arguments(schema, sent).map(Value::Object)
    }

    #[test]
    fn structures_sent_as_strings_arrive_as_structures() {
        let cases = [
            (
                "store_context",
                json!({"thread_id":"t","source":"user","text":"x","tags":"[\"a\",\"b\"]","metadata":"{\"n\":1}"}),
                json!({"thread_id":"t","source":"user","text":"x","tags":["a","b"],"metadata":{"n":1}}),
            ),
            (
                "get_context_by_ids",
                json!({"context_ids":"[1,\"2\",3.0]","include_images":"false"}),
                json!({"context_ids":[1,2,3],"include_images":false}),
            ),
            (
                "get_context_by_ids",
                json!({"context_ids":7}),
                json!({"context_ids":[7]}),
            ),
            (
                "get_context_by_ids",
                json!({"context_ids":"7"}),
                json!({"context_ids":[7]}),
            ),
            (
                "search_context",
                json!({"limit":"10","offset":5.0,"tags":"one"}),
                json!({"limit":10,"offset":5,"tags":["one"]}),
            ),
            (
                "search_context",
                json!({"metadata_filters":"[{\"key\":\"a\",\"operator\":\"eq\",\"value\":\"5\",\"case_sensitive\":\"true\"}]"}),
                json!({"metadata_filters":[{"key":"a","operator":"eq","value":"5","case_sensitive":true}]}),
            ),
            (
                "store_context_batch",
                json!({"entries":"[{\"thread_id\":\"t\",\"source\":\"user\",\"text\":\"x\",\"tags\":\"a\",\"metadata\":null}]","atomic":"true"}),
                json!({"entries":[{"thread_id":"t","source":"user","text":"x","tags":["a"]}],"atomic":true}),
            ),
            (
                "update_context_batch",
                json!({"updates":[{"context_id":"9","metadata_patch":"{\"a\":null}"}]}),
                json!({"updates":[{"context_id":9,"metadata_patch":{"a":null}}]}),
            ),
            (
                "store_context",
                json!({"thread_id":"t","source":"user","text":"x","images":[{"data":"AA==","metadata":"{\"w\":1}"}]}),
                json!({"thread_id":"t","source":"user","text":"x","images":[{"data":"AA==","metadata":{"w":1}}]}),
            ),
        ];
        for (tool, sent, expected) in cases {
            assert_eq!(read(tool, sent.clone()).unwrap(), expected, "{tool} {sent}");
        }
    }

    #[test]
    fn declared_strings_and_free_form_objects_are_data() {
        let sent = json!({"thread_id":"123","source":"user","text":"{\"a\":[1]}",
            "metadata":{"a":"[1,2]","b":"5","c":null,"d":5.0,"e":{"f":"true"}}});
        assert_eq!(read("store_context", sent.clone()).unwrap(), sent);
        let sent = json!({"metadata_filters":[{"key":"a","operator":"eq","value":"[1]"}]});
        assert_eq!(read("search_context", sent.clone()).unwrap(), sent);
    }

    #[test]
    fn null_means_absent() {
        assert_eq!(
            read(
                "search_context",
                json!({"thread_id":null,"limit":null,"tags":null})
            )
            .unwrap(),
            json!({})
        );
    }

    #[test]
    fn an_empty_list_stays_an_empty_list() {
        let sent = json!({"context_id":1,"tags":[],"images":[]});
        assert_eq!(read("update_context", sent.clone()).unwrap(), sent);
    }

    #[test]
    fn every_wrong_type_is_reported_at_once() {
        let error = read("search_context", json!({"limit":"ten","tags":[1,"a",{}],"include_images":"maybe","metadata":"x","offset":1.5}))
            .unwrap_err();
        let fields: Vec<&str> = error.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "limit",
                "tags[0]",
                "tags[2]",
                "include_images",
                "metadata",
                "offset"
            ]
        );
        assert!(
            error
                .message
                .contains("`limit` must be an integer, not a string"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_parameter_is_named_with_the_nearest_known_one() {
        let error = read(
            "store_context",
            json!({"thread":"t","source":"user","text":"x"}),
        )
        .unwrap_err();
        assert_eq!(
            error.violations[0].description,
            "`thread` is not a parameter; did you mean `thread_id`?"
        );
        let error = read(
            "search_context",
            json!({"metadata_filters":[{"key":"a","op":"eq"}]}),
        )
        .unwrap_err();
        assert_eq!(error.violations[0].field, "metadata_filters[0].op");
        let error = read("get_statistics", json!({"verbose":true})).unwrap_err();
        assert_eq!(
            error.violations[0].description,
            "`verbose` is not a parameter; there are none here"
        );
    }

    #[test]
    fn a_hostile_list_makes_a_short_reply() {
        let error = read(
            "get_context_by_ids",
            json!({"context_ids": vec!["x"; 100_000]}),
        )
        .unwrap_err();
        assert!(
            error.violations.len() < 20 && error.message.len() < 2000,
            "{error}"
        );
    }

    #[test]
    fn huge_and_odd_numbers_are_not_integers() {
        for sent in [
            json!(1e300),
            json!("1e300"),
            json!(0.5),
            json!("0x10"),
            json!(""),
        ] {
            assert!(
                read("search_context", json!({"limit": sent})).is_err(),
                "{sent}"
            );
        }
    }
}
