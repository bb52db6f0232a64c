//! Compiles one condition on a metadata field to SQL.

use context_model::{Comparison, Condition, Scalar, fold};
use context_store::rules::text_range::TextRange;

use super::index::Field;
use crate::sql::{Bind, Fragment, placeholders};

/// The names of the number types in `json_type`.
const NUMBER: &str = "'integer', 'real'";

/// The part of a condition that the field's index can serve: a necessary condition on the folded value alone.
pub(super) struct IndexTerm {
    /// The condition.
    pub term: Fragment,
    /// Whether it selects a single value of the index, whose rows come newest first.
    pub ordered: bool,
}

/// The complete condition.
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

/// The part that the index on the condition's field can serve.
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
        Comparison::Eq { value, .. } => ordered(compared(&x, "=", bind(&value.folded()))),
        Comparison::In { values, .. } => {
            let mut term = Fragment::new(format!("{x} IN ("));
            term.append(placeholders(
                values.iter().map(|value| bind(&value.folded())),
            ))
            .push(")");
            Some(IndexTerm {
                term,
                ordered: values.len() == 1,
            })
        }
        Comparison::Gt(Scalar::Text(_))
        | Comparison::Gte(Scalar::Text(_))
        | Comparison::Lt(Scalar::Text(_))
        | Comparison::Lte(Scalar::Text(_))
        | Comparison::StartsWith { .. } => TextRange::of(&condition.comparison, usize::MAX)
            .and_then(|range| ranged(in_range(&x, range))),
        // Every number sorts before every string, and '' is the first string.
        Comparison::Gt(bound) => ranged(number_range(&x, ">", bound)),
        Comparison::Gte(bound) => ranged(number_range(&x, ">=", bound)),
        Comparison::Lt(bound) => ranged(compared(&x, "<", bind(bound))),
        Comparison::Lte(bound) => ranged(compared(&x, "<=", bind(bound))),
        // `IS NOT NULL` does not use an index on an expression. Every value except NULL is at least minus infinity.
        Comparison::Exists | Comparison::IsNotNull => {
            ranged(Fragment::new(format!("{x} >= -9e999")))
        }
        Comparison::NotExists | Comparison::IsNull => {
            ordered(Fragment::new(format!("{x} IS NULL")))
        }
        Comparison::Contains {
            text,
            case_sensitive,
        }
        | Comparison::EndsWith {
            text,
            case_sensitive,
        } => {
            let mut term = in_range(&x, TextRange::all());
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

/// Whether the index on the condition's field decides it: no other part of it remains to be checked.
pub(super) fn is_decided_by_index(condition: &Condition) -> bool {
    match &condition.comparison {
        // The index holds arrays and objects as JSON text, so a string that begins with a bracket may equal one.
        Comparison::Eq {
            value: Scalar::Text(text),
            case_sensitive: false,
        } => !text.starts_with(['[', '{']),
        comparison => {
            index_term(condition).is_some()
                && rest(&Field::new(&condition.path), comparison)
                    .sql
                    .is_empty()
        }
    }
}

/// The part of the comparison that the index term does not decide.
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
        // A string equals only strings here and a number only numbers, so one list holds both. Arrays and objects would
        // appear as strings.
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
        // The comparison uses the byte order of the original string, which folding does not preserve.
        let mut rest = has_type(field, "metadata", "'text'");
        rest.push(" AND ")
            .append(compared(&field.exact(), operator, bind(bound)));
        rest
    } else {
        has_type(field, "metadata_folded", NUMBER)
    }
}

/// Whether the string in `x` contains `text`, starts with it or ends with it, as the comparison requires.
fn part(x: &str, comparison: &Comparison, text: &str) -> Fragment {
    match comparison {
        Comparison::StartsWith { .. } => in_range(x, TextRange::of_prefix(text)),
        // `substr` from -0 would return the whole string.
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

/// Numbers beyond a bound, without the strings that sort after all numbers.
fn number_range(x: &str, operator: &str, bound: &Scalar) -> Fragment {
    let mut term = compared(x, operator, bind(bound));
    term.push(&format!(" AND {x} < ''"));
    term
}

/// Whether a string is in the range.
fn in_range(x: &str, range: TextRange) -> Fragment {
    let TextRange { from, end } = range;
    let mut term = compared(x, ">=", Bind::Text(from));
    if let Some(end) = end {
        term.push(" AND ").append(compared(x, "<", Bind::Text(end)));
    }
    term
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

/// The column to compare: the folded one, unless the comparison is case-sensitive and has a string value.
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

fn bind(value: &Scalar) -> Bind {
    match value {
        Scalar::Text(text) => Bind::Text(text.clone()),
        Scalar::Int(int) => Bind::Int(*int),
        Scalar::Float(float) => Bind::Float(*float),
        Scalar::Bool(value) => Bind::Int(i64::from(*value)),
    }
}
