//! Reads tool arguments in the forms that clients actually send, guided by the tool's input schema.
//!
//! Many clients send structures as JSON strings, integers as floats, and absent parameters as null.
//! This module repairs values where the schema leaves no ambiguity. The service checks everything
//! else. Declared strings and the content of free-form objects are never changed, because every
//! value there is data.

use std::fmt;

use context_model::{Error, JsonObject, Operator, Result, Violations};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::memory::{BYTES_PER_VALUE, Lease};
use crate::scan::Scan;

/// Maximum number of collected violations. Further ones are only counted, so that a hostile list
/// cannot use up memory. The error names the first few and the number of the others.
const MAX_VIOLATIONS: usize = 1000;
/// Longest string in which an integer, a number or a boolean is looked for, in bytes.
const MAX_SCALAR: usize = 64;

/// Repairs `arguments` according to `schema`, the tool's input schema.
///
/// - where an array, object, integer, number or boolean is declared, a JSON string is parsed if its
///   content has that type
/// - where an integer is declared, `5.0` becomes 5
/// - null means absent
/// - where a list of strings, integers or objects is declared, a single such value becomes a list of
///   one
/// - where a metadata filter has the operator `in` or `not_in`, its value is read as a list
/// - the rules also apply inside declared lists and objects, but not inside free-form objects
///
/// The values inside a string count in `lease` before they are built: the scan of the message saw only one value.
///
/// # Errors
/// `INVALID_ARGUMENT` naming the first few values of a wrong type and unknown parameters, these with the most
/// similar known one. The service reports missing parameters, so that the message is the same on
/// every transport. `OVERLOADED` or `REQUEST_TOO_LARGE` if there is no memory for the values inside a string.
pub fn arguments(
    schema: &JsonObject,
    mut arguments: JsonObject,
    lease: Option<&Lease>,
) -> Result<JsonObject> {
    let mut repair = Repair {
        violations: Violations::default(),
        count: 0,
        lease,
        refusal: None,
    };
    repair.object(schema, &mut arguments, Path::Root);
    match repair.refusal {
        Some(refusal) => Err(refusal),
        None => repair.violations.finish(arguments),
    }
}

/// The path of a value in the arguments. It is only formatted for an error.
#[derive(Clone, Copy)]
enum Path<'p> {
    Root,
    Member(&'p Path<'p>, &'p str),
    Item(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Path::Root, key) => f.write_str(key),
            Self::Member(object, key) => write!(f, "{object}.{key}"),
            Self::Item(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}

/// Repairs values in place and collects the violations.
struct Repair<'l> {
    violations: Violations,
    /// The number of violations, including those that are not collected.
    count: usize,
    lease: Option<&'l Lease>,
    /// Why there is no memory for the values inside a string.
    refusal: Option<Error>,
}

impl Repair<'_> {
    fn add(&mut self, path: Path<'_>, description: impl FnOnce() -> String) {
        self.count += 1;
        if self.count <= MAX_VIOLATIONS {
            self.violations.push(path.to_string(), description());
        }
    }

    fn wrong_type(&mut self, path: Path<'_>, expected: &str) {
        self.add(path, || {
            context_model::wrong_type(&path.to_string(), expected)
        });
    }

    fn unknown(&mut self, key: &str, object: Path<'_>, properties: &JsonObject) {
        let shown: String = key.chars().take(64).collect();
        let path = Path::Member(&object, &shown);
        self.add(path, || {
            let known = properties.keys().map(String::as_str);
            context_model::unknown_field(&path.to_string(), key, known).message
        });
    }

    /// Repairs an object with declared properties.
    fn object(&mut self, schema: &JsonObject, object: &mut JsonObject, path: Path<'_>) {
        let Some(Value::Object(properties)) = schema.get("properties") else {
            return;
        };
        object.retain(|key, member| {
            let Some(Value::Object(declared)) = properties.get(key) else {
                if !member.is_null() {
                    self.unknown(key, path, properties);
                }
                return false;
            };
            if member.is_null() {
                return false;
            }
            self.value(declared, member, Path::Member(&path, key));
            true
        });
        // What the value of a metadata filter may be depends on its operator, which the schema does not say.
        if takes_list(object)
            && let Some(value) = object.get_mut("value")
        {
            self.unpack(value, '[', Path::Member(&path, "value"));
        }
    }

    fn value(&mut self, schema: &JsonObject, value: &mut Value, path: Path<'_>) {
        match schema.get("type").and_then(Value::as_str) {
            Some("string") if value.is_string() => {}
            Some("string") => self.wrong_type(path, "a string"),
            Some("integer") => match integer(value) {
                Some(integer) => *value = integer,
                None => self.wrong_type(path, "an integer"),
            },
            Some("number") => {
                unpack_scalar(value, Value::is_number);
                if !value.is_number() {
                    self.wrong_type(path, "a number");
                }
            }
            Some("boolean") => {
                unpack_scalar(value, Value::is_boolean);
                if !value.is_boolean() {
                    self.wrong_type(path, "true or false");
                }
            }
            Some("array") => self.array(schema, value, path),
            Some("object") => {
                if !self.unpack(value, '{', path) {
                    return;
                }
                match value {
                    Value::Object(members) => self.object(schema, members, path),
                    _ => self.wrong_type(path, "an object"),
                }
            }
            // The value of a metadata filter may have several types.
            _ => {}
        }
    }

    fn array(&mut self, schema: &JsonObject, value: &mut Value, path: Path<'_>) {
        let items = schema.get("items").and_then(Value::as_object);
        let item_type = items
            .and_then(|items| items.get("type"))
            .and_then(Value::as_str);
        if !self.unpack(value, '[', path)
            || (item_type == Some("object") && !self.unpack(value, '{', path))
        {
            return;
        }
        let is_single = match item_type {
            Some("string") => value.is_string(),
            Some("integer") => integer(value).is_some(),
            Some("object") => value.is_object(),
            _ => false,
        };
        if is_single {
            *value = Value::Array(vec![value.take()]);
        }
        let Value::Array(list) = value else {
            self.wrong_type(path, "a list");
            return;
        };
        if let Some(items) = items {
            for (i, item) in list.iter_mut().enumerate() {
                self.value(items, item, Path::Item(&path, i));
            }
        }
    }

    /// Replaces a string with the list or object inside it, which begins with `open`. `false` if the content must not
    /// be read; the reason is collected.
    fn unpack(&mut self, value: &mut Value, open: char, path: Path<'_>) -> bool {
        let Some(text) = value.as_str() else {
            return true;
        };
        // This builds nothing.
        let is_structure =
            text.trim_start().starts_with(open) && serde_json::from_str::<IgnoredAny>(text).is_ok();
        if !is_structure {
            return true;
        }
        let scan = Scan::of_value(text);
        if let Some(flaw) = scan.flaw() {
            self.add(path, || format!("`{path}` {flaw}"));
            return false;
        }
        if let Some(lease) = self.lease
            && let Err(error) = lease.grow(scan.values() * BYTES_PER_VALUE)
        {
            self.refusal.get_or_insert(error);
            return false;
        }
        if let Ok(inside) = serde_json::from_str(text) {
            *value = inside;
        }
        true
    }
}

/// Whether this is a metadata filter whose value must be a list.
fn takes_list(filter: &JsonObject) -> bool {
    let operator = filter.get("operator").and_then(Value::as_str);
    [Operator::In, Operator::NotIn]
        .iter()
        .any(|of_lists| operator == Some(of_lists.as_str()))
}

/// The JSON value inside a string that is short enough for an integer, a number or a boolean.
fn scalar(text: &str) -> Option<Value> {
    let text = text.trim_ascii();
    (text.len() <= MAX_SCALAR).then(|| serde_json::from_str(text).ok())?
}

/// Replaces a string with the number or boolean inside it, if that has the wanted type.
fn unpack_scalar(value: &mut Value, wanted: fn(&Value) -> bool) {
    if let Some(inside) = value.as_str().and_then(scalar).filter(wanted) {
        *value = inside;
    }
}

/// Converts a value to an integer. It may be an integer, a float without a fraction, or a string
/// that contains one of them.
fn integer(value: &Value) -> Option<Value> {
    /// 2^53. Beyond it, a float may stand for several integers.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .filter(|float| float.fract() == 0.0 && float.abs() <= EXACT)
            // Every float within ±EXACT without a fraction fits an i64.
            .map(|float| Value::from(float as i64)),
        Value::Number(_) => Some(value.clone()),
        Value::String(text) => match scalar(text)? {
            number @ Value::Number(_) => integer(&number),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use context_model::Reason;
    use serde_json::json;

    use super::*;
    use crate::catalogue::Catalogue;
    use crate::memory::{Budget, Caller};

    fn read(tool: &str, sent: Value) -> Result<Value> {
        let schema = &Catalogue::get().find(tool).unwrap().input_schema;
        let Value::Object(sent) = sent else {
            panic!("arguments are an object")
        };
        arguments(schema, sent, None).map(Value::Object)
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
                "search_context",
                json!({"metadata_filters":[{"key":"a","operator":"in","value":"[1,\"b\"]"},{"key":"a","operator":"not_in","value":" [true] "}]}),
                json!({"metadata_filters":[{"key":"a","operator":"in","value":[1,"b"]},{"key":"a","operator":"not_in","value":[true]}]}),
            ),
            (
                "search_context",
                json!({"metadata_filters":" {\"key\":\"a\",\"value\":1}"}),
                json!({"metadata_filters":[{"key":"a","value":1}]}),
            ),
            (
                "update_artifact",
                json!({"edits":"{\"old_str\":\"a\",\"new_str\":\"b\"}"}),
                json!({"edits":[{"old_str":"a","new_str":"b"}]}),
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
    fn the_values_inside_a_string_count_before_they_are_built() {
        let schema = &Catalogue::get()
            .find("get_context_by_ids")
            .unwrap()
            .input_schema;
        let sent = || JsonObject::from_iter([("context_ids".to_owned(), json!("[1,2,3]"))]);
        let budget = Budget::new(16 * 1024);
        let lease = budget.enter(Caller::Anyone).unwrap();
        arguments(schema, sent(), Some(&lease)).unwrap();
        assert!(budget.used() >= 3 * BYTES_PER_VALUE);
        let budget = Budget::new(3 * BYTES_PER_VALUE);
        let lease = budget.enter(Caller::Anyone).unwrap();
        let error = arguments(schema, sent(), Some(&lease)).unwrap_err();
        assert_eq!(error.reason, Reason::RequestTooLarge);
    }

    #[test]
    fn a_long_string_is_no_number_and_no_boolean() {
        let long = format!("5.{}", "0".repeat(MAX_SCALAR));
        for sent in [
            json!({ "limit": long }),
            json!({"include_images": format!("[{long}]")}),
        ] {
            assert!(read("search_context", sent.clone()).is_err(), "{sent}");
        }
        let spaced = json!({"limit": format!("{}5\n", " ".repeat(MAX_SCALAR))});
        assert_eq!(read("search_context", spaced).unwrap(), json!({"limit": 5}));
    }

    #[test]
    fn an_integer_beyond_64_bits_inside_a_string_is_refused_with_its_digits() {
        for (tool, field, sent) in [
            (
                "store_context",
                "metadata",
                json!({"thread_id":"t","source":"user","text":"x","metadata":"{\"n\":18446744073709551616}"}),
            ),
            (
                "store_context_batch",
                "entries",
                json!({"entries":"[{\"metadata\":{\"n\":18446744073709551616}}]"}),
            ),
        ] {
            let error = read(tool, sent).unwrap_err();
            assert_eq!(error.violations.len(), 1, "{error}");
            assert_eq!(error.violations[0].field, field);
            assert!(error.message.contains("18446744073709551616"), "{error}");
        }
        // A text that only looks like a list is a tag.
        let tag = json!({"tags": "[18446744073709551616 is large"});
        let expected = json!({"tags": ["[18446744073709551616 is large"]});
        assert_eq!(read("search_context", tag).unwrap(), expected);
    }

    #[test]
    fn declared_strings_and_free_form_objects_are_data() {
        let sent = json!({"thread_id":"123","source":"user","text":"{\"a\":[1]}",
            "metadata":{"a":"[1,2]","b":"5","c":null,"d":5.0,"e":{"f":"true"}}});
        assert_eq!(read("store_context", sent.clone()).unwrap(), sent);
        let sent = json!({"metadata_filters":[{"key":"a","operator":"eq","value":"[1]"},{"key":"a","value":"[1]"},
            {"key":"a","operator":"in","value":"b"}]});
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
            error.message.contains("`limit` must be an integer;"),
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
            "`verbose` is not a parameter; no parameters are allowed here"
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
