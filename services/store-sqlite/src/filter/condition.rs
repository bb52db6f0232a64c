//! One condition on a metadata field in SQL.

use std::ops::Bound;

use context_model::{Comparison, Condition, Scalar, fold};

use super::index::Field;
use crate::sql::{Bind, Fragment, placeholders};

/// The types of numbers, as `json_type` names them.
const NUMBER: &str = "'integer', 'real'";

/// The part of a condition that the field's index answers: a necessary condition on the folded value alone.
pub(super) struct IndexTerm {
    /// The condition.
    pub term: Fragment,
    /// Whether it selects one value of the index, whose rows come newest first.
    pub ordered: bool,
}

/// The whole condition; never NULL where it stands under a NOT.
pub(super) fn compile(condition: &Condition) -> Fragment {
    let field = Field::new(&condition.path);
    let rest = rest(&field, &condition.comparison);
    match index_term(condition) {
        Some(IndexTerm { mut term, .. }) => {
            if !rest.sql.is_empty() {
                term.push(" AND ").append(rest);
            }
            term
        }
        None => rest,
    }
}

/// What the index on the condition's field can answer.
pub(super) fn index_term(condition: &Condition) -> Option<IndexTerm> {
    let field = Field::new(&condition.path);
    let x = field.folded();
    let ordered = |term| {
        Some(IndexTerm {
            term,
            ordered: true,
        })
    };
    let ranged = |term| {
        Some(IndexTerm {
            term,
            ordered: false,
        })
    };
    match &condition.comparison {
        Comparison::Eq { value, .. } => ordered(compared(&x, "=", bind(&folded(value)))),
        Comparison::In { values, .. } => {
            let mut term = Fragment::new(format!("{x} IN ("));
            term.append(placeholders(
                values.iter().map(|value| bind(&folded(value))),
            ))
            .push(")");
            Some(IndexTerm {
                term,
                ordered: values.len() == 1,
            })
        }
        Comparison::Gt(Scalar::Text(bound)) | Comparison::Gte(Scalar::Text(bound)) => {
            ranged(text_range(
                &x,
                Bound::Included(caseless_prefix(bound)),
                Bound::Unbounded,
            ))
        }
        Comparison::Lt(Scalar::Text(bound)) | Comparison::Lte(Scalar::Text(bound)) => ranged(
            text_range(&x, Bound::Unbounded, after(caseless_prefix(bound))),
        ),
        // Every number sorts before every string, '' being the first of them.
        Comparison::Gt(bound) => ranged(number_range(&x, ">", bound)),
        Comparison::Gte(bound) => ranged(number_range(&x, ">=", bound)),
        Comparison::Lt(bound) => ranged(compared(&x, "<", bind(bound))),
        Comparison::Lte(bound) => ranged(compared(&x, "<=", bind(bound))),
        // `IS NOT NULL` uses no index on an expression; everything but NULL is at least minus infinity.
        Comparison::Exists | Comparison::IsNotNull => {
            ranged(Fragment::new(format!("{x} >= -9e999")))
        }
        Comparison::NotExists | Comparison::IsNull => {
            ordered(Fragment::new(format!("{x} IS NULL")))
        }
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
            ranged(text_range(&x, Bound::Included(&prefix), after(&prefix)))
        }
        Comparison::Contains {
            text,
            case_sensitive,
        }
        | Comparison::EndsWith {
            text,
            case_sensitive,
        } => {
            let mut term = text_range(&x, Bound::Included(""), Bound::Unbounded);
            if !*case_sensitive {
                term.push(" AND ")
                    .append(part(&x, &condition.comparison, text));
            } else if !text.contains('Σ') {
                term.push(" AND ")
                    .append(part(&x, &condition.comparison, &fold(text)));
            }
            ranged(term)
        }
        Comparison::Ne { .. } | Comparison::NotIn { .. } | Comparison::ArrayContains { .. } => None,
    }
}

/// What the index term leaves open.
fn rest(field: &Field, comparison: &Comparison) -> Fragment {
    match comparison {
        Comparison::Eq {
            value,
            case_sensitive,
        } => {
            let column = column_for([value], *case_sensitive);
            let mut rest = has_type(field, column, type_of(value));
            if column == "metadata" {
                rest.push(" AND ")
                    .append(compared(&field.exact(), "=", bind(value)));
            }
            rest
        }
        Comparison::Ne {
            value,
            case_sensitive,
        } => {
            let column = column_for([value], *case_sensitive);
            if let Scalar::Bool(value) = value {
                return has_type(field, column, bool_type(!value));
            }
            let mut rest = has_type(field, column, type_of(value));
            rest.push(" AND ")
                .append(compared(&value_in(field, column), "<>", bind(value)));
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
            let mut rest = Fragment::new(format!("{} IS NOT NULL AND NOT (", field.folded()));
            rest.append(member(field, values, *case_sensitive))
                .push(")");
            rest
        }
        Comparison::Gt(bound) => ordered(field, ">", bound),
        Comparison::Gte(bound) => ordered(field, ">=", bound),
        Comparison::Lt(bound) => ordered(field, "<", bound),
        Comparison::Lte(bound) => ordered(field, "<=", bound),
        Comparison::Exists | Comparison::IsNotNull | Comparison::NotExists => Fragment::default(),
        Comparison::IsNull => has_type(field, "metadata_folded", "'null'"),
        Comparison::Contains {
            text,
            case_sensitive,
        }
        | Comparison::StartsWith {
            text,
            case_sensitive,
        }
        | Comparison::EndsWith {
            text,
            case_sensitive,
        } => {
            if *case_sensitive {
                let mut rest = has_type(field, "metadata", "'text'");
                rest.push(" AND ")
                    .append(part(&field.exact(), comparison, text));
                rest
            } else {
                has_type(field, "metadata_folded", "'text'")
            }
        }
        Comparison::ArrayContains {
            value,
            case_sensitive,
        } => {
            let column = column_for([value], *case_sensitive);
            let mut rest = has_type(field, column, "'array'");
            rest.push(&format!(" AND EXISTS (SELECT 1 FROM json_each(entries.{column}, {}) AS item WHERE item.type IN (", field.path()));
            rest.push(type_of(value)).push(")");
            if !matches!(value, Scalar::Bool(_)) {
                rest.push(" AND item.value = ").bind(bind(value));
            }
            rest.push(")");
            rest
        }
    }
}

/// Whether the field equals one of the values.
fn member(field: &Field, values: &[Scalar], case_sensitive: bool) -> Fragment {
    let column = column_for(values, case_sensitive);
    let others: Vec<_> = values
        .iter()
        .filter(|value| !matches!(value, Scalar::Bool(_)))
        .collect();
    let mut member = Fragment::default();
    if !others.is_empty() {
        // A string equals only strings here and a number only numbers, so one list holds both; arrays and objects
        // would appear as strings.
        member = has_type(field, column, "'text', 'integer', 'real'");
        member.push(&format!(" AND {} IN (", value_in(field, column)));
        member
            .append(placeholders(others.into_iter().map(bind)))
            .push(")");
    }
    for value in [true, false] {
        if values.contains(&Scalar::Bool(value)) {
            member.push(if member.sql.is_empty() { "" } else { " OR " });
            member.append(has_type(field, column, bool_type(value)));
        }
    }
    let mut grouped = Fragment::new("(");
    grouped.append(member).push(")");
    grouped
}

fn ordered(field: &Field, operator: &str, bound: &Scalar) -> Fragment {
    if let Scalar::Text(_) = bound {
        // Byte order is that of the string as it is: folding does not keep it.
        let mut rest = has_type(field, "metadata", "'text'");
        rest.push(" AND ")
            .append(compared(&field.exact(), operator, bind(bound)));
        rest
    } else {
        has_type(field, "metadata_folded", NUMBER)
    }
}

/// Whether `text` stands in a string where the comparison wants it.
fn part(x: &str, comparison: &Comparison, text: &str) -> Fragment {
    match comparison {
        Comparison::StartsWith { .. } => text_range(x, Bound::Included(text), after(text)),
        // `substr` from -0 would be the whole string.
        Comparison::EndsWith { .. } if text.is_empty() => Fragment::new("1"),
        Comparison::EndsWith { .. } => {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            let mut part = Fragment::new(format!("substr({x}, "));
            part.bind(Bind::Int(-length))
                .push(") = ")
                .bind(Bind::Text(text.to_owned()));
            part
        }
        _ => {
            let mut part = Fragment::new(format!("instr({x}, "));
            part.bind(Bind::Text(text.to_owned())).push(") > 0");
            part
        }
    }
}

/// Numbers beyond a bound, without the strings that sort after every number.
fn number_range(x: &str, operator: &str, bound: &Scalar) -> Fragment {
    let mut term = compared(x, operator, bind(bound));
    term.push(&format!(" AND {x} < ''"));
    term
}

/// Strings between two bounds, in byte order.
fn text_range(x: &str, from: Bound<&str>, to: Bound<String>) -> Fragment {
    let from = match from {
        Bound::Included(text) | Bound::Excluded(text) => text,
        Bound::Unbounded => "",
    };
    let mut term = compared(x, ">=", Bind::Text(from.to_owned()));
    if let Bound::Excluded(to) | Bound::Included(to) = to {
        term.push(" AND ").append(compared(x, "<", Bind::Text(to)));
    }
    term
}

/// The first string after all that begin with `prefix`.
fn after(prefix: &str) -> Bound<String> {
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
            return Bound::Excluded(chars.into_iter().collect());
        }
    }
    Bound::Unbounded
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

fn compared(x: &str, operator: &str, value: Bind) -> Fragment {
    let mut term = Fragment::new(format!("{x} {operator} "));
    term.bind(value);
    term
}

fn has_type(field: &Field, column: &str, types: &str) -> Fragment {
    Fragment::new(format!("{} IN ({types})", field.type_in(column)))
}

fn value_in(field: &Field, column: &str) -> String {
    if column == "metadata" {
        field.exact()
    } else {
        field.folded()
    }
}

/// The column whose strings are compared: the folded one, unless case matters and a string is there for it to matter.
fn column_for<'v>(
    values: impl IntoIterator<Item = &'v Scalar>,
    case_sensitive: bool,
) -> &'static str {
    let texts = values
        .into_iter()
        .any(|value| matches!(value, Scalar::Text(_)));
    if case_sensitive && texts {
        "metadata"
    } else {
        "metadata_folded"
    }
}

const fn type_of(value: &Scalar) -> &'static str {
    match value {
        Scalar::Text(_) => "'text'",
        Scalar::Int(_) | Scalar::Float(_) => NUMBER,
        Scalar::Bool(value) => bool_type(*value),
    }
}

const fn bool_type(value: bool) -> &'static str {
    if value { "'true'" } else { "'false'" }
}

/// The value as the folded column and its index have it.
fn folded(value: &Scalar) -> Scalar {
    match value {
        Scalar::Text(text) => Scalar::Text(fold(text)),
        Scalar::Int(_) | Scalar::Float(_) | Scalar::Bool(_) => value.clone(),
    }
}

fn bind(value: &Scalar) -> Bind {
    match value {
        Scalar::Text(text) => Bind::Text(text.clone()),
        Scalar::Int(int) => Bind::Int(*int),
        Scalar::Float(float) => Bind::Float(*float),
        Scalar::Bool(value) => Bind::Int(i64::from(*value)),
    }
}
