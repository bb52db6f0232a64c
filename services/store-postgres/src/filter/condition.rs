//! Compiles one condition on a metadata field to SQL.

use std::borrow::Cow;

use context_model::{Comparison, Condition, MetadataPath, Scalar, fold};
use context_store::rules::text_range::TextRange;
use serde_json::Value;

use super::folded::float_json;
use super::index::{Field, INDEXED_CHARS};
use crate::pg::sql::{Bind, Fragment};

/// Whether the compiled condition uses the index of all metadata.
pub(super) fn uses_content_index(condition: &Condition, indexed: bool) -> bool {
    match &condition.comparison {
        Comparison::Eq { .. } => !indexed,
        Comparison::ArrayContains { .. } => true,
        _ => false,
    }
}

/// Whether any index can serve a part of the condition.
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

/// Compiles the whole condition. The SQL is never NULL where it stands under a NOT.
///
/// A comparison that an index term does not decide is wrapped in `coalesce(…, false)`, or joined by AND to a part that
/// is, even where NULL would have the same effect. Without it the planner assumes that an equality is true for 1 row in
/// 200, and then sorts far more rows than it expected. Ranges of numbers and `@>` are not wrapped, so that an index can
/// serve them.
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

/// The part of the condition that the field's indexes can serve: a necessary condition.
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
        // A comparison with a number gets no term here: `rest` compares the key of the field's second index.
        Comparison::Gt(_)
        | Comparison::Gte(_)
        | Comparison::Lt(_)
        | Comparison::Lte(_)
        | Comparison::StartsWith { .. } => {
            TextRange::of(comparison, INDEXED_CHARS).map(|range| in_range(&key, range))
        }
        Comparison::Exists | Comparison::IsNotNull => {
            Some(Fragment::new(format!("{key} IS NOT NULL")))
        }
        Comparison::NotExists | Comparison::IsNull => Some(Fragment::new(format!("{key} IS NULL"))),
        Comparison::Contains { .. }
        | Comparison::EndsWith { .. }
        | Comparison::Ne { .. }
        | Comparison::NotIn { .. }
        | Comparison::ArrayContains { .. } => None,
    }
}

/// The part of the condition that the index term does not decide.
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
                    .bind(Bind::text(json(&wanted.folded())))
                    .push("::jsonb, false)");
                equal
            } else {
                contains(&nested(&condition.path, json(&wanted.folded())))
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
                format!("[{}]", json(&wanted.folded())),
            ));
            if let (true, Scalar::Text(text)) = (case_sensitive, wanted) {
                // The folded value shows that the field is a list with such an item. One item of the original list must
                // equal this exact string.
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

/// Whether the field equals one of the values. False for an absent field.
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
        // Compares the original strings in byte order, because folding changes the order.
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

/// Compares the field as a number. False or NULL for a value that is not a number.
fn compared_number(field: &Field, operator: &str, value: &Scalar) -> Fragment<'static> {
    let mut term = Fragment::new(format!("{} {operator} ", field.number()));
    term.bind(Bind::text(decimal(value))).push("::numeric");
    term
}

/// Containment in the metadata, which the index of all metadata serves. At the end of a path of objects, a scalar is
/// contained exactly where it is equal. A list of one item is contained in every list that has the item.
fn contains(json: &str) -> Fragment<'static> {
    let mut contains = Fragment::new("entries.metadata_folded @> ");
    contains.bind(Bind::text(json.to_owned())).push("::jsonb");
    contains
}

/// JSON with `value` at the end of the path.
fn nested(path: &MetadataPath, value: String) -> String {
    path.segments()
        .iter()
        .rev()
        .fold(value, |value, segment| format!("{{\"{segment}\":{value}}}"))
}

/// Whether the field is a string. Never NULL: false for an absent field.
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

/// Whether a string is in the range.
fn in_range(key: &str, range: TextRange) -> Fragment<'static> {
    let TextRange { from, end } = range;
    let mut term = Fragment::new(format!("{key} >= "));
    term.bind(Bind::text(from));
    if let Some(end) = end {
        term.push(&format!(" AND {key} < ")).bind(Bind::text(end));
    }
    term
}

/// The key under which the field's first index has a string or boolean.
fn key_of(value: &Scalar) -> String {
    match value {
        Scalar::Text(text) => fold(text).chars().take(INDEXED_CHARS).collect(),
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

/// A number in PostgreSQL's syntax.
fn decimal(value: &Scalar) -> String {
    json(value)
}
