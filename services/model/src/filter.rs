use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::entry::shorten;
use crate::{
    ContentType, JsonObject, Source, Tags, ThreadId, ThreadSet, Timestamp, Violations, fold,
};

/// The filters of a search as a caller gave them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilterInput {
    /// Only this thread.
    pub thread_id: Option<String>,
    /// Only entries of this source.
    pub source: Option<String>,
    /// Only entries with at least one of these tags.
    pub tags: Option<Vec<String>>,
    /// Only entries of this content type.
    pub content_type: Option<String>,
    /// Typed, case-sensitive equality per key.
    pub metadata: Option<JsonObject>,
    /// Conditions with operators.
    pub metadata_filters: Option<Vec<MetadataFilter>>,
    /// Created at or after.
    pub start_date: Option<String>,
    /// Created at or before.
    pub end_date: Option<String>,
}

/// One condition on metadata as a caller gave it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MetadataFilter {
    /// Path of the field: segments of letters, digits, `_` and `-`, joined by dots, at most 32.
    #[serde(default)]
    #[schema(example = "status")]
    pub key: String,
    /// One of `eq`, `ne`, `gt`, `gte`, `lt`, `lte`, `in`, `not_in`, `exists`, `not_exists`, `contains`, `starts_with`,
    /// `ends_with`, `is_null`, `is_not_null`, `array_contains`; absent: `eq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "eq")]
    pub operator: Option<String>,
    /// What to compare with: a string, number or boolean, or a list of 1 to 100 of them for `in` and `not_in`; absent
    /// for the operators that need none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>, example = "active")]
    pub value: Option<Value>,
    /// Whether strings are compared with their case; absent: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case_sensitive: Option<bool>,
}

/// What an entry must satisfy; every part that is present must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Only these threads, which the caller may reach.
    pub within: Option<ThreadSet>,
    /// Only this thread.
    pub thread_id: Option<ThreadId>,
    /// Only entries of this source.
    pub source: Option<Source>,
    /// Only entries with at least one of these tags; never empty when present.
    pub tags: Option<Tags>,
    /// Only entries of this content type.
    pub content_type: Option<ContentType>,
    /// Conditions on metadata.
    pub conditions: Vec<Condition>,
    /// Created at or after.
    pub created_from: Option<Timestamp>,
    /// Created at or before.
    pub created_to: Option<Timestamp>,
}

/// One condition on one metadata field.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The field.
    pub path: MetadataPath,
    /// What must hold for it.
    pub comparison: Comparison,
}

/// A path into nested metadata objects: 1 to 32 segments of `[A-Za-z0-9_-]+`, so it needs no quoting anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetadataPath(Vec<String>);

impl MetadataPath {
    /// Segments, at most.
    pub const MAX_SEGMENTS: usize = 32;
    /// Characters of the whole path, at most.
    pub const MAX_CHARS: usize = 512;

    /// Reads a dotted path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let segment = |s: &str| {
            !s.is_empty()
                && s.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        let fits = text.len() <= Self::MAX_CHARS && text.split('.').count() <= Self::MAX_SEGMENTS;
        (fits && text.split('.').all(segment))
            .then(|| Self(text.split('.').map(str::to_owned).collect()))
    }

    /// The segments, outermost first.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }
}

/// A value to compare with.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// A string; folded already when the comparison ignores case.
    Text(String),
    /// An integer.
    Int(i64),
    /// A finite number with a fraction or exponent.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

/// What must hold for a field. Strings are compared as they are when `case_sensitive`, and otherwise folded on both
/// sides (the ones here are folded already; see [`fold`]).
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the operators are described by the contract's table, field names by their types"
)]
pub enum Comparison {
    Eq {
        value: Scalar,
        case_sensitive: bool,
    },
    Ne {
        value: Scalar,
        case_sensitive: bool,
    },
    Gt(Scalar),
    Gte(Scalar),
    Lt(Scalar),
    Lte(Scalar),
    In {
        values: Vec<Scalar>,
        case_sensitive: bool,
    },
    NotIn {
        values: Vec<Scalar>,
        case_sensitive: bool,
    },
    Exists,
    NotExists,
    IsNull,
    IsNotNull,
    Contains {
        text: String,
        case_sensitive: bool,
    },
    StartsWith {
        text: String,
        case_sensitive: bool,
    },
    EndsWith {
        text: String,
        case_sensitive: bool,
    },
    ArrayContains {
        value: Scalar,
        case_sensitive: bool,
    },
}

impl Comparison {
    /// The operator.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        match self {
            Self::Eq { .. } => Operator::Eq,
            Self::Ne { .. } => Operator::Ne,
            Self::Gt(_) => Operator::Gt,
            Self::Gte(_) => Operator::Gte,
            Self::Lt(_) => Operator::Lt,
            Self::Lte(_) => Operator::Lte,
            Self::In { .. } => Operator::In,
            Self::NotIn { .. } => Operator::NotIn,
            Self::Exists => Operator::Exists,
            Self::NotExists => Operator::NotExists,
            Self::IsNull => Operator::IsNull,
            Self::IsNotNull => Operator::IsNotNull,
            Self::Contains { .. } => Operator::Contains,
            Self::StartsWith { .. } => Operator::StartsWith,
            Self::EndsWith { .. } => Operator::EndsWith,
            Self::ArrayContains { .. } => Operator::ArrayContains,
        }
    }
}

/// The sixteen operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is its wire name")]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    NotIn,
    Exists,
    NotExists,
    Contains,
    StartsWith,
    EndsWith,
    IsNull,
    IsNotNull,
    ArrayContains,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Self; 16] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::NotExists,
        Self::Contains,
        Self::StartsWith,
        Self::EndsWith,
        Self::IsNull,
        Self::IsNotNull,
        Self::ArrayContains,
    ];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::NotIn => "not_in",
            Self::Exists => "exists",
            Self::NotExists => "not_exists",
            Self::Contains => "contains",
            Self::StartsWith => "starts_with",
            Self::EndsWith => "ends_with",
            Self::IsNull => "is_null",
            Self::IsNotNull => "is_not_null",
            Self::ArrayContains => "array_contains",
        }
    }
}

impl Filter {
    /// Conditions on metadata, at most.
    pub const MAX_CONDITIONS: usize = 100;
    /// Members of an `in` or `not_in` list, at most.
    pub const MAX_LIST: usize = 100;

    /// Parses the filters of a search. What breaks a rule is added to `violations`; the filter given back is then
    /// incomplete and must not be used.
    #[must_use]
    pub fn parse(input: FilterInput, violations: &mut Violations) -> Self {
        let FilterInput {
            thread_id,
            source,
            tags,
            content_type,
            metadata,
            metadata_filters,
            start_date,
            end_date,
        } = input;
        let mut conditions = Vec::new();
        let given = metadata.as_ref().map_or(0, |m| m.len())
            + metadata_filters.as_ref().map_or(0, Vec::len);
        if given > Self::MAX_CONDITIONS {
            violations.push(
                "metadata_filters",
                format!(
                    "`metadata` and `metadata_filters` hold {given} conditions; the maximum is {}",
                    Self::MAX_CONDITIONS
                ),
            );
        } else {
            for (key, value) in metadata.unwrap_or_default() {
                conditions.extend(parse_simple(&key, value, violations));
            }
            for (i, filter) in metadata_filters.unwrap_or_default().into_iter().enumerate() {
                conditions.extend(parse_condition(
                    filter,
                    &format!("metadata_filters[{i}]"),
                    violations,
                ));
            }
        }
        let created_from =
            start_date.and_then(|text| parse_date("start_date", &text, false, violations));
        let created_to = end_date.and_then(|text| parse_date("end_date", &text, true, violations));
        if let (Some(from), Some(to)) = (created_from, created_to)
            && from > to
        {
            violations.push(
                "start_date",
                format!("`start_date` ({from}) is after `end_date` ({to})"),
            );
        }
        let tags = tags.map(|tags| {
            let tags = Tags::parse(tags, "tags", violations);
            if tags.as_slice().is_empty() && violations.is_empty() {
                violations.push(
                    "tags",
                    "`tags` holds no tag; leave it out to search without a tag filter",
                );
            }
            tags
        });
        Self {
            within: None,
            thread_id: thread_id.and_then(|id| ThreadId::parse(&id, "thread_id", violations)),
            source: source.and_then(|s| Source::parse(&s, "source", violations)),
            tags,
            content_type: content_type
                .and_then(|c| ContentType::parse(&c, "content_type", violations)),
            conditions,
            created_from,
            created_to,
        }
    }

    /// How many filters are set, each metadata condition counting as one.
    #[must_use]
    pub fn count(&self) -> usize {
        let Self {
            within,
            thread_id,
            source,
            tags,
            content_type,
            conditions,
            created_from,
            created_to,
        } = self;
        usize::from(within.is_some())
            + usize::from(thread_id.is_some())
            + usize::from(source.is_some())
            + usize::from(tags.is_some())
            + usize::from(content_type.is_some())
            + usize::from(created_from.is_some())
            + usize::from(created_to.is_some())
            + conditions.len()
    }
}

fn parse_date(
    field: &str,
    text: &str,
    end_of_day: bool,
    violations: &mut Violations,
) -> Option<Timestamp> {
    Timestamp::parse(text, end_of_day)
        .map_err(|rule| {
            violations.push(
                field,
                format!("`{field}` is `{}`; it {rule}", shorten(text)),
            )
        })
        .ok()
}

fn parse_path(key: &str, field: &str, violations: &mut Violations) -> Option<MetadataPath> {
    let path = MetadataPath::parse(key);
    if path.is_none() {
        violations.push(
            field,
            format!(
                "`{field}` is `{}`; it must be a path of 1 to {} segments of letters, digits, `_` and `-`, joined by dots",
                shorten(key),
                MetadataPath::MAX_SEGMENTS
            ),
        );
    }
    path
}

fn parse_simple(key: &str, value: Value, violations: &mut Violations) -> Option<Condition> {
    let path = parse_path(key, "metadata", violations);
    let field = format!("metadata.{}", shorten(key));
    let value = parse_scalar(value, true, &field, "", violations);
    Some(Condition {
        path: path?,
        comparison: Comparison::Eq {
            value: value?,
            case_sensitive: true,
        },
    })
}

fn parse_condition(
    filter: MetadataFilter,
    field: &str,
    violations: &mut Violations,
) -> Option<Condition> {
    let MetadataFilter {
        key,
        operator,
        value,
        case_sensitive,
    } = filter;
    let case_sensitive = case_sensitive.unwrap_or(false);
    let path = parse_path(&key, &format!("{field}.key"), violations);
    let name = operator.as_deref().unwrap_or("eq");
    let Some(operator) = Operator::ALL.into_iter().find(|o| o.as_str() == name) else {
        let names = Operator::ALL.map(Operator::as_str).join(", ");
        violations.push(
            format!("{field}.operator"),
            format!(
                "`{field}.operator` is `{}`; it must be one of {names}",
                shorten(name)
            ),
        );
        return None;
    };
    let value = value.filter(|v| !v.is_null());
    let value_field = format!("{field}.value");
    let comparison = match operator {
        Operator::Exists | Operator::NotExists | Operator::IsNull | Operator::IsNotNull => {
            if value.is_some() {
                violations.push(
                    &value_field,
                    format!("`{value_field}` must be absent: `{name}` takes no value"),
                );
                return None;
            }
            Some(match operator {
                Operator::Exists => Comparison::Exists,
                Operator::NotExists => Comparison::NotExists,
                Operator::IsNull => Comparison::IsNull,
                _ => Comparison::IsNotNull,
            })
        }
        _ => match value {
            None => {
                violations.push(
                    &value_field,
                    format!("`{value_field}` is required: `{name}` compares with a value"),
                );
                None
            }
            Some(value) => {
                parse_comparison(operator, value, case_sensitive, &value_field, violations)
            }
        },
    };
    Some(Condition {
        path: path?,
        comparison: comparison?,
    })
}

fn parse_comparison(
    operator: Operator,
    value: Value,
    case_sensitive: bool,
    field: &str,
    violations: &mut Violations,
) -> Option<Comparison> {
    let name = operator.as_str();
    let suffix = format!(" for `{name}`");
    Some(match operator {
        Operator::Eq => Comparison::Eq {
            value: parse_scalar(value, case_sensitive, field, &suffix, violations)?,
            case_sensitive,
        },
        Operator::Ne => Comparison::Ne {
            value: parse_scalar(value, case_sensitive, field, &suffix, violations)?,
            case_sensitive,
        },
        Operator::ArrayContains => Comparison::ArrayContains {
            value: parse_scalar(value, case_sensitive, field, &suffix, violations)?,
            case_sensitive,
        },
        Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
            if matches!(value, Value::Bool(_)) {
                violations.push(
                    field,
                    format!("`{field}` must be a number or a string{suffix}"),
                );
                return None;
            }
            let bound = parse_scalar(value, true, field, &suffix, violations)?;
            match operator {
                Operator::Gt => Comparison::Gt(bound),
                Operator::Gte => Comparison::Gte(bound),
                Operator::Lt => Comparison::Lt(bound),
                _ => Comparison::Lte(bound),
            }
        }
        Operator::In | Operator::NotIn => {
            let Value::Array(items) = value else {
                violations.push(
                    field,
                    format!(
                        "`{field}` must be a list of 1 to {} strings, numbers or booleans{suffix}",
                        Filter::MAX_LIST
                    ),
                );
                return None;
            };
            if items.is_empty() || items.len() > Filter::MAX_LIST {
                violations.push(
                    field,
                    format!(
                        "`{field}` has {} members; `{name}` takes 1 to {}",
                        items.len(),
                        Filter::MAX_LIST
                    ),
                );
                return None;
            }
            let values = items
                .into_iter()
                .enumerate()
                .map(|(i, item)| {
                    parse_scalar(
                        item,
                        case_sensitive,
                        &format!("{field}[{i}]"),
                        &suffix,
                        violations,
                    )
                })
                .collect::<Option<Vec<_>>>()?;
            if operator == Operator::In {
                Comparison::In {
                    values,
                    case_sensitive,
                }
            } else {
                Comparison::NotIn {
                    values,
                    case_sensitive,
                }
            }
        }
        Operator::Contains | Operator::StartsWith | Operator::EndsWith => {
            let Value::String(_) = value else {
                violations.push(field, format!("`{field}` must be a string{suffix}"));
                return None;
            };
            let Scalar::Text(text) =
                parse_scalar(value, case_sensitive, field, &suffix, violations)?
            else {
                return None;
            };
            match operator {
                Operator::Contains => Comparison::Contains {
                    text,
                    case_sensitive,
                },
                Operator::StartsWith => Comparison::StartsWith {
                    text,
                    case_sensitive,
                },
                _ => Comparison::EndsWith {
                    text,
                    case_sensitive,
                },
            }
        }
        Operator::Exists => Comparison::Exists,
        Operator::NotExists => Comparison::NotExists,
        Operator::IsNull => Comparison::IsNull,
        Operator::IsNotNull => Comparison::IsNotNull,
    })
}

fn parse_scalar(
    value: Value,
    case_sensitive: bool,
    field: &str,
    suffix: &str,
    violations: &mut Violations,
) -> Option<Scalar> {
    match value {
        Value::String(text) if text.contains('\0') => {
            violations.push(
                field,
                format!("`{field}` contains the character U+0000, which no stored value has"),
            );
            None
        }
        Value::String(text) => Some(Scalar::Text(if case_sensitive {
            text
        } else {
            fold(&text)
        })),
        Value::Bool(value) => Some(Scalar::Bool(value)),
        Value::Number(number) => {
            if let Some(int) = number.as_i64() {
                return Some(Scalar::Int(int));
            }
            if number.is_u64() {
                violations
                    .push(field, format!("`{field}` is {number}; integers must lie within -9223372036854775808 to 9223372036854775807"));
                return None;
            }
            number.as_f64().map(Scalar::Float)
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {
            violations.push(
                field,
                format!("`{field}` must be a string, a number or a boolean{suffix}"),
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(filters: Value) -> Result<Filter, String> {
        let mut violations = Violations::default();
        let input = FilterInput {
            metadata_filters: Some(serde_json::from_value(filters).unwrap()),
            ..FilterInput::default()
        };
        let filter = Filter::parse(input, &mut violations);
        violations.finish(filter).map_err(|e| e.message)
    }

    #[test]
    fn every_rule_of_a_condition_has_its_sentence() {
        for (filter, expected) in [
            (
                json!({"key": "a b"}),
                "`metadata_filters[0].key` is `a b`; it must be a path of 1 to 32 segments of letters, digits, `_` and `-`, joined by dots; `metadata_filters[0].value` is required: `eq` compares with a value",
            ),
            (
                json!({"key": "a", "operator": "like", "value": 1}),
                "`metadata_filters[0].operator` is `like`; it must be one of eq, ne, gt, gte, lt, lte, in, not_in, exists, not_exists, contains, starts_with, ends_with, is_null, is_not_null, array_contains",
            ),
            (
                json!({"key": "a", "operator": "gt", "value": true}),
                "`metadata_filters[0].value` must be a number or a string for `gt`",
            ),
            (
                json!({"key": "a", "operator": "in", "value": []}),
                "`metadata_filters[0].value` has 0 members; `in` takes 1 to 100",
            ),
            (
                json!({"key": "a", "operator": "in", "value": "x"}),
                "`metadata_filters[0].value` must be a list of 1 to 100 strings, numbers or booleans for `in`",
            ),
            (
                json!({"key": "a", "operator": "not_in", "value": [[1]]}),
                "`metadata_filters[0].value[0]` must be a string, a number or a boolean for `not_in`",
            ),
            (
                json!({"key": "a", "operator": "contains", "value": 1}),
                "`metadata_filters[0].value` must be a string for `contains`",
            ),
            (
                json!({"key": "a", "operator": "exists", "value": true}),
                "`metadata_filters[0].value` must be absent: `exists` takes no value",
            ),
            (
                json!({"key": "a", "operator": "eq"}),
                "`metadata_filters[0].value` is required: `eq` compares with a value",
            ),
        ] {
            assert_eq!(parse(json!([filter])).unwrap_err(), expected);
        }
    }

    #[test]
    fn strings_are_folded_unless_case_matters() {
        let filter =
            parse(json!([{"key": "a.b", "value": "ÄB"}, {"key": "c", "operator": "ne", "value": "ÄB", "case_sensitive": true}])).unwrap();
        assert_eq!(
            filter.conditions[0].comparison,
            Comparison::Eq {
                value: Scalar::Text("äb".into()),
                case_sensitive: false
            }
        );
        assert_eq!(
            filter.conditions[1].comparison,
            Comparison::Ne {
                value: Scalar::Text("ÄB".into()),
                case_sensitive: true
            }
        );
        assert_eq!(filter.conditions[0].path.segments(), ["a", "b"]);
    }

    #[test]
    fn a_supplied_filter_never_turns_into_none() {
        let mut violations = Violations::default();
        let input = FilterInput {
            tags: Some(vec![" ".into()]),
            thread_id: Some(String::new()),
            ..FilterInput::default()
        };
        let _ = Filter::parse(input, &mut violations);
        let fields: Vec<_> = violations
            .finish(())
            .unwrap_err()
            .violations
            .into_iter()
            .map(|v| v.field)
            .collect();
        assert_eq!(fields, ["tags", "thread_id"]);
    }

    #[test]
    fn dates_are_inclusive_days_in_order() {
        let mut violations = Violations::default();
        let input = FilterInput {
            start_date: Some("2025-11-30".into()),
            end_date: Some("2025-11-29".into()),
            ..FilterInput::default()
        };
        let _ = Filter::parse(input, &mut violations);
        assert_eq!(
            violations.finish(()).unwrap_err().message,
            "`start_date` (2025-11-30T00:00:00.000000Z) is after `end_date` (2025-11-29T23:59:59.999999Z)"
        );
    }
}
