//! One condition on a metadata field in SQL.

use std::borrow::Cow;

use context_model::{Comparison, Condition, MetadataPath, Scalar, fold};
use serde_json::Value;

use super::folded::float_json;
use super::index::{Field, INDEXED_CHARS};
use crate::pg::sql::{Bind, Fragment};

/// Whether the condition, as it is compiled, is answered by the index of all metadata.
pub(super) fn uses_content_index(condition: &Condition, indexed: bool) -> bool {
    match &condition.comparison {
        Comparison::Eq { .. } => !indexed,
        Comparison::ArrayContains { .. } => true,
        _ => false,
    }
}

/// Whether any index answers a part of the condition.
pub(super) fn is_served(condition: &Condition, indexed: bool) -> bool {
    let by_its_field = || {
        let by_number = matches!(
            condition.comparison,
            Comparison::Gt(_) | Comparison::Gte(_) | Comparison::Lt(_) | Comparison::Lte(_)
        );
        by_number || index_term(&Field::new(&condition.path), &condition.comparison).is_some()
    };
    uses_content_index(condition, indexed) || (indexed && by_its_field())
}

/// The whole condition; never NULL where it stands under a NOT.
///
/// What an index term leaves open stands in `coalesce(…, false)` also where NULL would do: the planner takes a comparison
/// of an expression it knows nothing about for rare (one row in two hundred), and would then sort the many rows it did
/// not expect.
pub(super) fn compile(condition: &Condition, indexed: bool) -> Fragment<'_> {
    let field = Field::new(&condition.path);
    let rest = rest(&field, condition, indexed);
    match index_term(&field, &condition.comparison).filter(|_| indexed) {
        Some(mut term) => {
            if !rest.is_empty() {
                term.push(" AND ").append(rest);
            }
            term
        }
        None if rest.is_empty() => Fragment::new("true"),
        None => rest,
    }
}

/// What the indexes on the condition's field can answer: a necessary condition.
fn index_term<'v>(field: &Field, comparison: &'v Comparison) -> Option<Fragment<'v>> {
    let key = field.key();
    match comparison {
        Comparison::Eq { value, .. } => Some(equal_key(field, value)),
        Comparison::In { values, .. } => {
            let mut any = Fragment::new("(");
            let (numbers, others): (Vec<&Scalar>, Vec<&Scalar>) = values
                .iter()
                .partition(|value| matches!(value, Scalar::Int(_) | Scalar::Float(_)));
            if !others.is_empty() {
                any.push(&format!("{key} = ANY(")).bind(Bind::Texts(
                    others
                        .iter()
                        .map(|value| Cow::Owned(key_of(value)))
                        .collect(),
                ));
                any.push(")");
            }
            if !numbers.is_empty() {
                any.push(if others.is_empty() { "" } else { " OR " });
                let decimals = Bind::Texts(
                    numbers
                        .iter()
                        .map(|value| Cow::Owned(decimal(value)))
                        .collect(),
                );
                any.push(&format!("{} = ANY(", field.number()))
                    .bind(decimals)
                    .push("::numeric[])");
            }
            any.push(")");
            Some(any)
        }
        Comparison::Gt(Scalar::Text(bound)) | Comparison::Gte(Scalar::Text(bound)) => {
            Some(text_range(&key, &first_chars(caseless_prefix(bound)), None))
        }
        Comparison::Lt(Scalar::Text(bound)) | Comparison::Lte(Scalar::Text(bound)) => {
            let prefix = first_chars(caseless_prefix(bound));
            Some(text_range(&key, "", after(&prefix)))
        }
        // The second index holds exactly what the condition says.
        Comparison::Gt(_) | Comparison::Gte(_) | Comparison::Lt(_) | Comparison::Lte(_) => None,
        Comparison::Exists | Comparison::IsNotNull => {
            Some(Fragment::new(format!("{key} IS NOT NULL")))
        }
        Comparison::NotExists | Comparison::IsNull => Some(Fragment::new(format!("{key} IS NULL"))),
        Comparison::StartsWith {
            text,
            case_sensitive,
        } => {
            // Lower-casing a capital sigma depends on what follows it, so a prefix folds alone only up to there.
            let prefix = if *case_sensitive {
                fold(text.split('Σ').next().unwrap_or_default())
            } else {
                text.clone()
            };
            let prefix = first_chars(&prefix);
            Some(text_range(&key, &prefix, after(&prefix)))
        }
        Comparison::Contains { .. }
        | Comparison::EndsWith { .. }
        | Comparison::Ne { .. }
        | Comparison::NotIn { .. }
        | Comparison::ArrayContains { .. } => None,
    }
}

/// What the index term leaves open.
fn rest<'v>(field: &Field, condition: &'v Condition, indexed: bool) -> Fragment<'v> {
    let value = field.value();
    match &condition.comparison {
        Comparison::Eq {
            value: wanted,
            case_sensitive,
        } => {
            let mut rest = if indexed {
                let mut equal = Fragment::new(format!("coalesce({value} = "));
                equal
                    .bind(Bind::text(json(&folded(wanted))))
                    .push("::jsonb, false)");
                equal
            } else {
                contains(&nested(&condition.path, json(&folded(wanted))))
            };
            if let (true, Scalar::Text(text)) = (case_sensitive, wanted) {
                rest.push(&format!(" AND coalesce({} = ", field.exact_text()))
                    .bind(Bind::text(text))
                    .push(", false)");
            }
            rest
        }
        Comparison::Ne {
            value: Scalar::Text(text),
            case_sensitive: true,
        } => {
            let mut rest = Fragment::new(format!(
                "{} AND {} <> ",
                is_string(field),
                field.exact_text()
            ));
            rest.bind(Bind::text(text));
            rest
        }
        Comparison::Ne { value: wanted, .. } => {
            let mut rest = Fragment::new(format!("{} AND {value} <> ", is_type_of(field, wanted)));
            rest.bind(Bind::text(json(wanted))).push("::jsonb");
            rest
        }
        Comparison::In {
            values,
            case_sensitive,
        } => member(field, values, *case_sensitive),
        Comparison::NotIn {
            values,
            case_sensitive,
        } => {
            let mut rest = Fragment::new(format!("{} IS NOT NULL AND NOT ", field.text()));
            rest.append(member(field, values, *case_sensitive));
            rest
        }
        Comparison::Gt(bound) => ordered(field, ">", bound),
        Comparison::Gte(bound) => ordered(field, ">=", bound),
        Comparison::Lt(bound) => ordered(field, "<", bound),
        Comparison::Lte(bound) => ordered(field, "<=", bound),
        Comparison::Exists | Comparison::IsNotNull if indexed => Fragment::new(""),
        Comparison::NotExists if indexed => Fragment::new(""),
        Comparison::Exists | Comparison::IsNotNull => {
            Fragment::new(format!("{} IS NOT NULL", field.text()))
        }
        Comparison::NotExists => Fragment::new(format!("{} IS NULL", field.text())),
        Comparison::IsNull => Fragment::new(format!("coalesce({}, false)", field.is("null"))),
        Comparison::Contains {
            text,
            case_sensitive,
        } => {
            let mut rest = Fragment::new(format!(
                "{} AND strpos({}, ",
                is_string(field),
                text_of(field, *case_sensitive)
            ));
            rest.bind(Bind::text(text)).push(") > 0");
            rest
        }
        Comparison::StartsWith {
            text,
            case_sensitive,
        } => {
            let mut rest = Fragment::new(format!(
                "{} AND starts_with({}, ",
                is_string(field),
                text_of(field, *case_sensitive)
            ));
            rest.bind(Bind::text(text)).push(")");
            rest
        }
        Comparison::EndsWith {
            text,
            case_sensitive,
        } => {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            let mut rest = Fragment::new(format!(
                "{} AND right({}, ",
                is_string(field),
                text_of(field, *case_sensitive)
            ));
            rest.bind(Bind::Int(length))
                .push("::int) = ")
                .bind(Bind::text(text));
            rest
        }
        Comparison::ArrayContains {
            value: wanted,
            case_sensitive,
        } => {
            let mut rest = contains(&nested(
                &condition.path,
                format!("[{}]", json(&folded(wanted))),
            ));
            if let (true, Scalar::Text(text)) = (case_sensitive, wanted) {
                // The folded list says that it is a list; an item of the list as it is must be this very string.
                rest.push(" AND EXISTS (SELECT 1 FROM json_array_elements(CASE WHEN ")
                    .push(&field.is("array"));
                rest.push(&format!(
                    " THEN {} END::json) AS item(value)",
                    field.exact_text()
                ));
                rest.push(" WHERE json_typeof(item.value) = 'string' AND (item.value #>> '{}') = ")
                    .bind(Bind::text(text))
                    .push(")");
            }
            rest
        }
    }
}

/// Whether the field equals one of the values; false for an absent one.
fn member<'v>(field: &Field, values: &'v [Scalar], case_sensitive: bool) -> Fragment<'v> {
    let texts: Vec<Cow<'v, str>> = values
        .iter()
        .filter_map(|value| match value {
            Scalar::Text(text) if case_sensitive => Some(Cow::Borrowed(text.as_str())),
            _ => None,
        })
        .collect();
    let others: Vec<Cow<'v, str>> = values
        .iter()
        .filter(|value| !(case_sensitive && matches!(value, Scalar::Text(_))))
        .map(|value| Cow::Owned(json(value)))
        .collect();
    let mut member = Fragment::new("(");
    if !others.is_empty() {
        member
            .push(&format!("coalesce({} = ANY(", field.value()))
            .bind(Bind::Texts(others))
            .push("::jsonb[]), false)");
    }
    if !texts.is_empty() {
        member.push(if member.sql().len() > 1 { " OR " } else { "" });
        member
            .push(&format!(
                "{} AND {} = ANY(",
                is_string(field),
                field.exact_text()
            ))
            .bind(Bind::Texts(texts))
            .push(")");
    }
    member.push(")");
    member
}

fn ordered<'v>(field: &Field, operator: &str, bound: &'v Scalar) -> Fragment<'v> {
    if let Scalar::Text(text) = bound {
        // Byte order is that of the string as it is: folding does not keep it.
        let mut rest = Fragment::new(format!(
            "{} AND {} COLLATE \"C\" {operator} ",
            is_string(field),
            field.exact_text()
        ));
        rest.bind(Bind::text(text));
        rest
    } else {
        compared_number(field, operator, bound)
    }
}

fn equal_key(field: &Field, value: &Scalar) -> Fragment<'static> {
    match value {
        Scalar::Int(_) | Scalar::Float(_) => compared_number(field, "=", value),
        Scalar::Text(_) | Scalar::Bool(_) => {
            let mut term = Fragment::new(format!("{} = ", field.key()));
            term.bind(Bind::text(key_of(value)));
            term
        }
    }
}

/// False, or NULL, for what is no number.
fn compared_number(field: &Field, operator: &str, value: &Scalar) -> Fragment<'static> {
    let mut term = Fragment::new(format!("{} {operator} ", field.number()));
    term.bind(Bind::text(decimal(value))).push("::numeric");
    term
}

/// Containment in the metadata, which one index of all of it answers: a scalar at the end of a path of objects is
/// contained exactly where it is equal, and a list of one item in lists that have it.
fn contains(json: &str) -> Fragment<'static> {
    let mut contains = Fragment::new("entries.metadata_folded @> ");
    contains.bind(Bind::text(json.to_owned())).push("::jsonb");
    contains
}

/// `value` at the end of the path.
fn nested(path: &MetadataPath, value: String) -> String {
    path.segments()
        .iter()
        .rev()
        .fold(value, |value, segment| format!("{{\"{segment}\":{value}}}"))
}

/// Never NULL: an absent field is no string.
fn is_string(field: &Field) -> String {
    format!("coalesce({}, false)", field.is("string"))
}

fn is_type_of(field: &Field, value: &Scalar) -> String {
    let name = match value {
        Scalar::Text(_) => "string",
        Scalar::Int(_) | Scalar::Float(_) => "number",
        Scalar::Bool(_) => "boolean",
    };
    format!("coalesce({}, false)", field.is(name))
}

fn text_of(field: &Field, case_sensitive: bool) -> String {
    if case_sensitive {
        field.exact_text()
    } else {
        field.text()
    }
}

/// Strings between two bounds, in byte order.
fn text_range(key: &str, from: &str, to: Option<String>) -> Fragment<'static> {
    let mut term = Fragment::new(format!("{key} >= "));
    term.bind(Bind::text(from.to_owned()));
    if let Some(to) = to {
        term.push(&format!(" AND {key} < ")).bind(Bind::text(to));
    }
    term
}

/// The first string after all that begin with `prefix`, if there is one.
fn after(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // Code points sort as their UTF-8 bytes do; the surrogates between are no characters.
        let next = if last == '\u{d7ff}' {
            Some('\u{e000}')
        } else {
            char::from_u32(u32::from(last) + 1)
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// As much of a string as the index holds.
fn first_chars(text: &str) -> String {
    text.chars().take(INDEXED_CHARS).collect()
}

/// The start of a string up to its first letter, which folding leaves where it is in byte order: of an ISO date all
/// but `T` and `Z`. A string with a smaller or equal (greater or equal) start has, folded, such a start as well,
/// because only characters from `A` on change, and they stay above digits and punctuation.
fn caseless_prefix(text: &str) -> &str {
    let end = text
        .bytes()
        .position(|byte| byte >= b'A')
        .unwrap_or(text.len());
    &text[..end]
}

/// The value as the folded column has it.
fn folded(value: &Scalar) -> Scalar {
    match value {
        Scalar::Text(text) => Scalar::Text(fold(text)),
        Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) => value.clone(),
    }
}

/// What the first index holds for a string or boolean.
fn key_of(value: &Scalar) -> String {
    match value {
        Scalar::Text(text) => first_chars(&fold(text)),
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::Float(_) => json(value),
    }
}

fn json(value: &Scalar) -> String {
    match value {
        Scalar::Text(text) => Value::from(text.as_str()).to_string(),
        Scalar::Int(int) => int.to_string(),
        Scalar::Float(float) => float_json(*float),
        Scalar::Bool(value) => value.to_string(),
    }
}

/// A number as PostgreSQL reads it.
fn decimal(value: &Scalar) -> String {
    json(value)
}
