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

#[cfg(test)]
mod tests {
    use super::*;

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
