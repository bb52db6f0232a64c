use serde::{Deserialize, Serialize};

use crate::Violations;

/// The tags of one entry: trimmed, lower-cased, without blank or duplicate tags, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tags(Vec<String>);

impl Tags {
    /// Maximum number of tags of one entry.
    pub const MAX: usize = 100;
    /// Longest tag, in characters.
    pub const MAX_CHARS: usize = 128;

    /// Normalises the given tags; each violation of a limit is added to `violations` under `field`.
    #[must_use]
    pub fn parse(given: Vec<String>, field: &str, violations: &mut Violations) -> Self {
        let mut tags = Vec::with_capacity(given.len().min(Self::MAX));
        for (i, tag) in given.into_iter().enumerate() {
            let tag = tag.trim().to_lowercase();
            if tag.contains('\0') {
                violations.push(
                    format!("{field}[{i}]"),
                    format!("`{field}[{i}]` contains the character U+0000, which cannot be stored"),
                );
            } else if tag.chars().nth(Self::MAX_CHARS).is_some() {
                violations.push(
                    format!("{field}[{i}]"),
                    format!(
                        "`{field}[{i}]` has {} characters; the maximum is {}",
                        tag.chars().count(),
                        Self::MAX_CHARS
                    ),
                );
            } else if !tag.is_empty() {
                tags.push(tag);
            }
        }
        tags.sort_unstable();
        tags.dedup();
        if tags.len() > Self::MAX {
            violations.push(
                field,
                format!(
                    "`{field}` has {} tags; the maximum is {}",
                    tags.len(),
                    Self::MAX
                ),
            );
        }
        Self(tags)
    }

    /// Tags that were normalised before, such as tags from a database.
    #[must_use]
    pub const fn from_normalised(tags: Vec<String>) -> Self {
        Self(tags)
    }

    /// The tags, sorted.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// The tags, sorted.
    #[must_use]
    pub fn into_vec(self) -> Vec<String> {
        self.0
    }
}

/// The beginning of a tag, normalised like a tag: not blank, without leading blanks, lower-cased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagPrefix(String);

impl TagPrefix {
    /// Parses a prefix; if it breaks a rule, adds a violation under `field` and returns `None`.
    pub fn parse(given: &str, field: &str, violations: &mut Violations) -> Option<Self> {
        // A tag may have blanks inside, so those at the end of a prefix stay.
        let prefix = given.trim_start().to_lowercase();
        if prefix.is_empty() {
            violations.push(
                field,
                format!("`{field}` is blank; leave it out for all tags"),
            );
        } else if prefix.contains('\0') {
            violations.push(
                field,
                format!("`{field}` contains the character U+0000, which no tag has"),
            );
        } else if prefix.chars().nth(Tags::MAX_CHARS).is_some() {
            violations.push(
                field,
                format!(
                    "`{field}` has {} characters; the maximum is {}",
                    prefix.chars().count(),
                    Tags::MAX_CHARS
                ),
            );
        } else {
            return Some(Self(prefix));
        }
        None
    }

    /// The prefix.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which tags to list.
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
pub struct ListTagsRequest {
    /// Only tags of this thread's entries; only these entries are counted.
    #[schema(min_length = 1, max_length = 256)]
    #[param(min_length = 1, max_length = 256)]
    pub thread_id: Option<String>,
    /// Only tags that begin with this text, in upper or lower case.
    #[schema(min_length = 1, max_length = 128)]
    #[param(min_length = 1, max_length = 128)]
    pub prefix: Option<String>,
    /// Maximum number of tags, 1 to 1000; default 100.
    #[schema(minimum = 1, maximum = 1000)]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<i64>,
    /// Number of tags to skip; default 0.
    #[schema(minimum = 0)]
    #[param(minimum = 0)]
    pub offset: Option<i64>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    pub min_revision: Option<i64>,
}

/// Tags, most frequent first, then by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListTagsReply {
    /// The tags of this page.
    pub tags: Vec<TagCount>,
    /// Number of different tags that the request selects.
    pub total: i64,
    /// Whether more tags follow this page.
    pub has_more: bool,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// One tag with its count.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct TagCount {
    /// The tag.
    pub tag: String,
    /// Number of entries that have it.
    pub entry_count: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_normalised_like_a_tag_and_keeps_its_last_blank() {
        let mut violations = Violations::default();
        let prefix = TagPrefix::parse("  ÄPFEL ", "prefix", &mut violations);
        assert_eq!(prefix.unwrap().as_str(), "äpfel ");
        assert!(violations.is_empty());
    }

    #[test]
    fn a_prefix_that_no_tag_can_have_is_refused() {
        for (given, sentence) in [
            ("", "`prefix` is blank; leave it out for all tags"),
            ("\t ", "`prefix` is blank; leave it out for all tags"),
            (
                "a\0",
                "`prefix` contains the character U+0000, which no tag has",
            ),
            (
                &"x".repeat(129),
                "`prefix` has 129 characters; the maximum is 128",
            ),
        ] {
            let mut violations = Violations::default();
            assert_eq!(TagPrefix::parse(given, "prefix", &mut violations), None);
            assert_eq!(violations.finish(()).unwrap_err().message, sentence);
        }
    }

    #[test]
    fn tags_are_trimmed_folded_deduplicated_and_sorted() {
        let mut violations = Violations::default();
        let given = [" Zeta", "ÄPFEL", "zeta", "", "  ", "alpha"]
            .map(String::from)
            .to_vec();
        let tags = Tags::parse(given, "tags", &mut violations);
        assert!(violations.is_empty());
        assert_eq!(tags.as_slice(), ["alpha", "zeta", "äpfel"]);
    }

    #[test]
    fn a_long_tag_is_named_by_its_index() {
        let mut violations = Violations::default();
        let _ = Tags::parse(vec!["ok".into(), "x".repeat(129)], "tags", &mut violations);
        let error = violations.finish(()).unwrap_err();
        assert_eq!(
            error.message,
            "`tags[1]` has 129 characters; the maximum is 128"
        );
        assert_eq!(error.violations[0].field, "tags[1]");
    }
}
