//! Paths of metadata fields.

use std::fmt::Display;

use crate::Violations;
use crate::entry::shorten;

/// A path into nested metadata objects: 1 to 32 segments of `[A-Za-z0-9_-]+`, at most 512 characters. It never needs
/// quoting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetadataPath(Vec<String>);

impl MetadataPath {
    /// The form of a path, for an error message.
    pub(super) const FORM: &str =
        "a path of 1 to 32 segments of ASCII letters, digits, `_` and `-`, joined by dots";
    /// Maximum number of segments.
    pub const MAX_SEGMENTS: usize = 32;
    /// Maximum number of characters in the whole path.
    pub const MAX_CHARS: usize = 512;

    /// Parses a dotted path.
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

    /// Parses a dotted path; if it breaks a rule, adds a violation under `field` and returns `None`.
    pub fn parse_under(
        text: &str,
        field: impl Display,
        violations: &mut Violations,
    ) -> Option<Self> {
        let path = Self::parse(text);
        let chars = text.chars().count();
        if chars > Self::MAX_CHARS {
            violations.push(
                field.to_string(),
                format!(
                    "`{field}` has {chars} characters; the maximum is {}",
                    Self::MAX_CHARS
                ),
            );
        } else if path.is_none() {
            violations.push(
                field.to_string(),
                format!(
                    "`{field}` is `{}`; it must be {}",
                    shorten(text),
                    Self::FORM
                ),
            );
        }
        path
    }

    /// The segments, outermost first.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }
}
