//! Filters: the caller's input, and the rules that convert it to the form that both databases evaluate.

mod condition;
mod input;
mod parse;
mod path;

pub use condition::{Comparison, Condition, Operator, Scalar};
pub use input::{FilterInput, MetadataFilter};
pub use path::MetadataPath;

use crate::entry::shorten;
use crate::{ContentType, Source, Tags, ThreadId, ThreadSet, Timestamp, Violations};

/// Conditions on an entry. Every condition that is present must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Only these threads: those that the caller may access.
    pub within: Option<ThreadSet>,
    /// Only this thread.
    pub thread_id: Option<ThreadId>,
    /// Only entries of this source.
    pub source: Option<Source>,
    /// Only entries with at least one of these tags. Never empty when present.
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

impl Filter {
    /// Maximum number of conditions on metadata.
    pub const MAX_CONDITIONS: usize = 100;

    /// Parses the filters of a search and adds invalid ones to `violations`. If there are violations, the returned
    /// filter is incomplete and must not be used.
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
        let given = metadata.as_ref().map_or(0, |m| m.len())
            + metadata_filters.as_ref().map_or(0, Vec::len);
        let mut conditions = Vec::with_capacity(given.min(Self::MAX_CONDITIONS));
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
                conditions.extend(parse::equality(&key, value, violations));
            }
            for (i, filter) in metadata_filters.unwrap_or_default().into_iter().enumerate() {
                conditions.extend(parse::condition(filter, i, violations));
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
            thread_id: thread_id
                .and_then(|id| violations.unless_blank(id, "thread_id", "for all threads"))
                .and_then(|id| ThreadId::parse(&id, "thread_id", violations)),
            source: source
                .and_then(|s| violations.unless_blank(s, "source", "for both sources"))
                .and_then(|s| Source::parse(&s, "source", violations)),
            tags,
            content_type: content_type
                .and_then(|c| ContentType::parse(&c, "content_type", violations)),
            conditions,
            created_from,
            created_to,
        }
    }

    /// Whether an artifact can satisfy the filter. Artifacts have no thread, source, tags or content type.
    #[must_use]
    pub fn admits_artifacts(&self) -> bool {
        let Self {
            within,
            thread_id,
            source,
            tags,
            content_type,
            conditions: _,
            created_from: _,
            created_to: _,
        } = self;
        within.is_none()
            && thread_id.is_none()
            && source.is_none()
            && tags.is_none()
            && content_type.is_none()
    }

    /// Number of filters that are set. Each metadata condition counts as one.
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
    is_end: bool,
    violations: &mut Violations,
) -> Option<Timestamp> {
    Timestamp::parse(text, is_end)
        .map_err(|rule| {
            violations.push(
                field,
                format!("`{field}` is `{}`; it {rule}", shorten(text)),
            )
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
                "`metadata_filters[0].key` is `a b`; it must be a path of 1 to 32 segments of ASCII letters, digits, `_` and `-`, joined by dots; `metadata_filters[0].value` is required: `eq` compares with a value",
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
    fn a_blank_filter_is_not_called_required() {
        let mut violations = Violations::default();
        let input = FilterInput {
            thread_id: Some(" ".to_owned()),
            source: Some(String::new()),
            ..FilterInput::default()
        };
        let _ = Filter::parse(input, &mut violations);
        assert_eq!(
            violations.finish(()).unwrap_err().message,
            "`thread_id` must not be blank; leave it out for all threads; `source` must not be blank; leave it out for both sources"
        );
    }

    #[test]
    fn a_malformed_key_of_metadata_is_named_as_a_key() {
        let mut violations = Violations::default();
        let input = FilterInput {
            metadata: json!({"größe": 1}).as_object().cloned(),
            ..FilterInput::default()
        };
        let _ = Filter::parse(input, &mut violations);
        assert_eq!(
            violations.finish(()).unwrap_err().message,
            "`metadata` has the key `größe`; a key must be a path of 1 to 32 segments of ASCII letters, digits, `_` and `-`, joined by dots, at most 512 characters"
        );
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
