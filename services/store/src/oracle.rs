//! Evaluates filters in memory: for the changes in a feed, and for the tests of the databases, whose compiled filters
//! must agree with it.
//!
//! It follows the contract's table literally and is not optimised, so that it can be verified by reading it.

use std::cmp::Ordering;

use context_model::{Comparison, Condition, Filter, JsonObject, Scalar, fold};
use serde_json::Value;

use crate::StoredEntry;

/// Whether an entry satisfies every part of a filter.
#[must_use]
pub fn matches(filter: &Filter, entry: &StoredEntry) -> bool {
    let Filter {
        within,
        thread_id,
        source,
        tags,
        content_type,
        conditions,
        created_from,
        created_to,
    } = filter;
    within
        .as_ref()
        .is_none_or(|threads| threads.contains(&entry.thread_id))
        && thread_id
            .as_ref()
            .is_none_or(|id| id.as_str() == entry.thread_id)
        && source.is_none_or(|source| source == entry.source)
        && tags
            .as_ref()
            .is_none_or(|tags| tags.as_slice().iter().any(|tag| entry.tags.contains(tag)))
        && content_type.is_none_or(|content_type| content_type == entry.content_type)
        && created_from.is_none_or(|from| from <= entry.created_at)
        && created_to.is_none_or(|to| entry.created_at <= to)
        && (conditions.is_empty()
            || entry
                .metadata
                .to_object()
                .is_ok_and(|metadata| all_hold(conditions, &metadata)))
}

/// Whether all conditions hold for this metadata.
#[must_use]
pub fn all_hold(conditions: &[Condition], metadata: &JsonObject) -> bool {
    conditions
        .iter()
        .all(|condition| holds(condition, metadata))
}

fn holds(condition: &Condition, metadata: &JsonObject) -> bool {
    let (first, rest) = match condition.path.segments() {
        [] => return false,
        [first, rest @ ..] => (first, rest),
    };
    let found = rest
        .iter()
        .fold(metadata.get(first), |value, segment| match value {
            Some(Value::Object(object)) => object.get(segment),
            _ => None,
        });
    satisfies(&condition.comparison, found)
}

/// Whether a comparison holds for the value of a field. `None` means that the field is absent.
fn satisfies(comparison: &Comparison, found: Option<&Value>) -> bool {
    let present = found.filter(|value| !value.is_null());
    match comparison {
        Comparison::Eq {
            value,
            case_sensitive,
        } => present.is_some_and(|found| equal(found, value, *case_sensitive)),
        Comparison::Ne {
            value,
            case_sensitive,
        } => present
            .is_some_and(|found| same_type(found, value) && !equal(found, value, *case_sensitive)),
        Comparison::Gt(bound) => ordered(present, bound, Ordering::is_gt),
        Comparison::Gte(bound) => ordered(present, bound, Ordering::is_ge),
        Comparison::Lt(bound) => ordered(present, bound, Ordering::is_lt),
        Comparison::Lte(bound) => ordered(present, bound, Ordering::is_le),
        Comparison::In {
            values,
            case_sensitive,
        } => present.is_some_and(|found| {
            values
                .iter()
                .any(|value| equal(found, value, *case_sensitive))
        }),
        Comparison::NotIn {
            values,
            case_sensitive,
        } => present.is_some_and(|found| {
            !values
                .iter()
                .any(|value| equal(found, value, *case_sensitive))
        }),
        Comparison::Exists | Comparison::IsNotNull => present.is_some(),
        Comparison::NotExists => present.is_none(),
        Comparison::IsNull => found.is_some_and(Value::is_null),
        Comparison::Contains {
            text,
            case_sensitive,
        } => string(present, *case_sensitive, |found| {
            found.contains(text.as_str())
        }),
        Comparison::StartsWith {
            text,
            case_sensitive,
        } => string(present, *case_sensitive, |found| {
            found.starts_with(text.as_str())
        }),
        Comparison::EndsWith {
            text,
            case_sensitive,
        } => string(present, *case_sensitive, |found| {
            found.ends_with(text.as_str())
        }),
        Comparison::ArrayContains {
            value,
            case_sensitive,
        } => match present {
            Some(Value::Array(items)) => {
                items.iter().any(|item| equal(item, value, *case_sensitive))
            }
            _ => false,
        },
    }
}

fn same_type(found: &Value, value: &Scalar) -> bool {
    match value {
        Scalar::Text(_) => found.is_string(),
        Scalar::Int(_) | Scalar::Float(_) => found.is_number(),
        Scalar::Bool(_) => found.is_boolean(),
    }
}

/// Whether both have the same JSON type and are equal. The scalar is already folded when the comparison ignores case.
fn equal(found: &Value, value: &Scalar, case_sensitive: bool) -> bool {
    match (found, value) {
        (Value::String(found), Scalar::Text(text)) => {
            if case_sensitive {
                found == text
            } else {
                fold(found) == *text
            }
        }
        (Value::Bool(found), Scalar::Bool(value)) => found == value,
        (Value::Number(_), Scalar::Int(_) | Scalar::Float(_)) => {
            compare_numbers(found, value) == Some(Ordering::Equal)
        }
        _ => false,
    }
}

fn ordered(found: Option<&Value>, bound: &Scalar, accepts: fn(Ordering) -> bool) -> bool {
    let ordering = match (found, bound) {
        // Rust compares strings by their UTF-8 bytes.
        (Some(Value::String(found)), Scalar::Text(bound)) => {
            Some(found.as_str().cmp(bound.as_str()))
        }
        (Some(found @ Value::Number(_)), bound) => compare_numbers(found, bound),
        _ => None,
    };
    ordering.is_some_and(accepts)
}

fn string(found: Option<&Value>, case_sensitive: bool, accepts: impl Fn(&str) -> bool) -> bool {
    match found {
        Some(Value::String(found)) if case_sensitive => accepts(found),
        Some(Value::String(found)) => accepts(&fold(found)),
        _ => false,
    }
}

/// Compares numbers by their exact mathematical values.
fn compare_numbers(found: &Value, bound: &Scalar) -> Option<Ordering> {
    let float = |value: &Value| value.as_f64();
    match (found.as_i64(), bound) {
        (Some(found), Scalar::Int(bound)) => Some(found.cmp(bound)),
        (Some(found), Scalar::Float(bound)) => int_to_float(found, *bound),
        (None, Scalar::Int(bound)) => int_to_float(*bound, float(found)?).map(Ordering::reverse),
        (None, Scalar::Float(bound)) => float(found)?.partial_cmp(bound),
        (_, Scalar::Text(_) | Scalar::Bool(_)) => None,
    }
}

/// Compares an integer with a double without rounding either.
fn int_to_float(int: i64, float: f64) -> Option<Ordering> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() {
        None
    } else if float >= TWO_TO_63 {
        Some(Ordering::Less)
    } else if float < -TWO_TO_63 {
        Some(Ordering::Greater)
    } else {
        let whole = float.trunc();
        Some(
            int.cmp(&(whole as i64))
                .then_with(|| 0.0.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use context_model::{FilterInput, MetadataFilter, Violations};
    use serde_json::json;

    fn conditions(input: FilterInput) -> Vec<Condition> {
        let mut violations = Violations::default();
        let filter = Filter::parse(input, &mut violations);
        violations
            .finish(filter)
            .expect("a valid filter")
            .conditions
    }

    fn filter(key: &str, operator: &str, value: Value, case_sensitive: bool) -> Vec<Condition> {
        conditions(FilterInput {
            metadata_filters: Some(vec![MetadataFilter {
                key: key.into(),
                operator: Some(operator.into()),
                value: (!value.is_null()).then_some(value),
                case_sensitive: Some(case_sensitive),
            }]),
            ..FilterInput::default()
        })
    }

    /// Whether `operator value` holds for a field, ignoring case.
    fn field(found: Option<Value>, operator: &str, value: Value) -> bool {
        satisfies(
            &filter("k", operator, value, false)[0].comparison,
            found.as_ref(),
        )
    }

    #[test]
    fn equality_is_typed() {
        for (found, value, expected) in [
            (json!(5), json!(5.0), true),
            (json!("5"), json!(5), false),
            (json!(true), json!(1), false),
            (json!(1), json!(true), false),
            (json!(true), json!(true), true),
            (json!("ÄB"), json!("äb"), true),
            (json!(["a"]), json!("[\"a\"]"), false),
            (json!(-0.0), json!(0), true),
            (
                json!(9_007_199_254_740_993_i64),
                json!(9_007_199_254_740_992.0),
                false,
            ),
            (json!(i64::MAX), json!(9_223_372_036_854_775_807_i64), true),
            (json!(i64::MAX), json!(9_223_372_036_854_775_808.0), false),
        ] {
            assert_eq!(
                field(Some(found.clone()), "eq", value.clone()),
                expected,
                "{found} eq {value}"
            );
            assert_eq!(
                field(Some(found.clone()), "in", json!([value])),
                expected,
                "{found} in {value}"
            );
            assert_eq!(
                field(Some(found.clone()), "not_in", json!([value])),
                !expected,
                "{found} not_in {value}"
            );
            assert_eq!(
                field(Some(json!([found])), "array_contains", value.clone()),
                expected,
                "{found} array_contains {value}"
            );
        }
    }

    #[test]
    fn ne_compares_within_one_type_and_not_in_across_types() {
        assert!(field(Some(json!(6)), "ne", json!(5)));
        assert!(!field(Some(json!(5.0)), "ne", json!(5)));
        assert!(!field(Some(json!("5")), "ne", json!(5)));
        assert!(field(Some(json!("5")), "not_in", json!([5])));
        assert!(field(Some(json!([])), "not_in", json!([5])));
        assert!(field(Some(json!("b")), "ne", json!("a")));
    }

    #[test]
    fn absent_and_null_follow_the_table() {
        for (operator, value, absent, null) in [
            ("eq", json!("x"), false, false),
            ("ne", json!("x"), false, false),
            ("gt", json!(1), false, false),
            ("lt", json!(1), false, false),
            ("in", json!(["x"]), false, false),
            ("not_in", json!(["x"]), false, false),
            ("exists", Value::Null, false, false),
            ("not_exists", Value::Null, true, true),
            ("is_null", Value::Null, false, true),
            ("is_not_null", Value::Null, false, false),
            ("contains", json!(""), false, false),
            ("starts_with", json!(""), false, false),
            ("ends_with", json!(""), false, false),
            ("array_contains", json!("x"), false, false),
        ] {
            assert_eq!(
                field(None, operator, value.clone()),
                absent,
                "absent {operator}"
            );
            assert_eq!(
                field(Some(Value::Null), operator, value),
                null,
                "null {operator}"
            );
        }
    }

    #[test]
    fn ranges_compare_numbers_exactly_and_strings_by_bytes() {
        let big = 9_007_199_254_740_993_i64;
        assert!(field(
            Some(json!(big)),
            "gt",
            json!(9_007_199_254_740_992.0)
        ));
        assert!(!field(
            Some(json!(big)),
            "lte",
            json!(9_007_199_254_740_992.0)
        ));
        assert!(field(Some(json!(1.5)), "gt", json!(1)));
        assert!(field(Some(json!(-1.5)), "lt", json!(-1)));
        assert!(field(Some(json!(1e300)), "gt", json!(i64::MAX)));
        assert!(field(Some(json!(-1e300)), "lt", json!(i64::MIN)));
        assert!(field(Some(json!("2025-02-01")), "gte", json!("2025-01-31")));
        assert!(
            field(Some(json!("b")), "gt", json!("B")),
            "ranges do not fold"
        );
        assert!(
            field(Some(json!("\u{10000}")), "gt", json!("\u{ffff}")),
            "bytes, not UTF-16 units"
        );
        assert!(!field(Some(json!("9")), "gt", json!(1)));
        assert!(!field(Some(json!(true)), "gte", json!(0)));
    }

    #[test]
    fn string_operators_take_their_text_literally() {
        assert!(field(Some(json!("100% sure")), "contains", json!("0% S")));
        assert!(!field(Some(json!("100 sure")), "contains", json!("0%s")));
        assert!(!field(Some(json!("axb")), "starts_with", json!("a_")));
        assert!(
            field(Some(json!("Straße")), "ends_with", json!("SSE")) == "straße".ends_with("sse")
        );
        assert!(!field(Some(json!(["abc"])), "contains", json!("abc")));
        let exact = filter("k", "starts_with", json!("Ab"), true);
        assert!(satisfies(&exact[0].comparison, Some(&json!("Abc"))));
        assert!(!satisfies(&exact[0].comparison, Some(&json!("abc"))));
    }

    #[test]
    fn paths_lead_through_objects_only() {
        let metadata = json!({"a": {"b-c": {"d": 1}}, "list": [{"d": 1}]});
        let entry = |path: &str| {
            let condition = filter(path, "exists", Value::Null, false).remove(0);
            holds(&condition, metadata.as_object().unwrap())
        };
        assert!(entry("a.b-c.d"));
        assert!(!entry("a.b-c.d.e"));
        assert!(!entry("list.d"));
        assert!(!entry("list.0"));
    }

    #[test]
    fn both_ends_of_a_date_range_belong_to_it_and_tags_are_any_of() {
        let mut entry = blank();
        entry.created_at = context_model::Timestamp(100);
        entry.tags = vec!["b".into()];
        let at = |from, to| Filter {
            created_from: Some(context_model::Timestamp(from)),
            created_to: Some(context_model::Timestamp(to)),
            ..Filter::default()
        };
        assert!(matches(&at(100, 100), &entry));
        assert!(!matches(&at(101, 200), &entry));
        assert!(!matches(&at(0, 99), &entry));
        let tags = |tags: &[&str]| Filter {
            tags: Some(context_model::Tags::from_normalised(
                tags.iter().map(|&t| t.into()).collect(),
            )),
            ..Filter::default()
        };
        assert!(matches(&tags(&["a", "b"]), &entry));
        assert!(!matches(&tags(&["a"]), &entry));
    }

    fn blank() -> StoredEntry {
        StoredEntry {
            id: 1,
            thread_id: "t".into(),
            source: context_model::Source::User,
            content_type: context_model::ContentType::Text,
            text: "x".into(),
            summary: String::new(),
            metadata: context_model::ObjectText::default(),
            tags: Vec::new(),
            created_at: context_model::Timestamp(0),
            updated_at: context_model::Timestamp(0),
            version: 1,
            images: None,
            damage: None,
        }
    }
}
