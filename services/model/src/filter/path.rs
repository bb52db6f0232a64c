//! Paths of metadata fields.

/// A path into nested metadata objects: 1 to 32 segments of `[A-Za-z0-9_-]+`. It never needs quoting.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetadataPath(Vec<String>);

impl MetadataPath {
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

    /// The segments, outermost first.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.0
    }
}
