//! The SQL expressions of a metadata field, and the indexes on it. Only this file writes them.

use std::fmt::Write as _;

use context_model::MetadataPath;
use sha2::{Digest as _, Sha256};

/// Maximum characters of a string in an index: an index row must fit a third of a page.
pub(super) const INDEXED_CHARS: usize = 200;

/// The metadata of an entry as it was given.
pub(super) const EXACT_METADATA: &str = "(entries.metadata)";

/// A metadata field. Its SQL is the same in every statement, because PostgreSQL uses an index only for an identical
/// expression.
///
/// `->` with a text only enters objects. `#>` would read `0` as the first item of an array.
pub(super) struct Field {
    steps: String,
    last: String,
}

impl Field {
    pub(super) fn new(path: &MetadataPath) -> Self {
        let literal = |segment: &String| {
            debug_assert!(
                segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
                "guaranteed by MetadataPath"
            );
            format!("'{segment}'::text")
        };
        let (last, before) = match path.segments() {
            [before @ .., last] => (literal(last), before),
            [] => ("''::text".to_owned(), &[][..]),
        };
        let mut steps = String::new();
        for segment in before {
            let _ = write!(steps, " -> {}", literal(segment));
        }
        Self { steps, last }
    }

    /// The value as jsonb with strings folded. NULL for an absent field.
    pub(super) fn value(&self) -> String {
        format!("(entries.metadata_folded{} -> {})", self.steps, self.last)
    }

    /// The folded string, or the value as JSON text. NULL for null and for an absent field.
    pub(super) fn text(&self) -> String {
        format!("(entries.metadata_folded{} ->> {})", self.steps, self.last)
    }

    /// The string as it was given, or the value as JSON text. NULL for null and for an absent field.
    pub(super) fn exact_text(&self) -> String {
        format!("({EXACT_METADATA}{} ->> {})", self.steps, self.last)
    }

    /// The beginning of [`Field::text`] in byte order: the key of the first index.
    pub(super) fn key(&self) -> String {
        format!("(left({}, {INDEXED_CHARS}) COLLATE \"C\")", self.text())
    }

    /// The value if it is a number: the key of the second index.
    pub(super) fn number(&self) -> String {
        format!(
            "(CASE WHEN {} THEN {}::numeric END)",
            self.is("number"),
            self.text()
        )
    }

    /// The condition that the value has this type, in the terms of `jsonb_typeof`.
    pub(super) fn is(&self, json_type: &str) -> String {
        format!("jsonb_typeof({}) = '{json_type}'", self.value())
    }
}

/// The names of the indexes on a metadata field, and the part of their CREATE INDEX statements after the table's name.
///
/// The first index serves `eq` and `in` of strings and booleans, `starts_with`, ranges of strings, `exists`,
/// `not_exists`, `is_null` and `is_not_null`, case-sensitive or not. The second serves `eq`, `in` and ranges of
/// numbers. Both return the rows of one value newest first. The second is not limited to rows with numbers, because the
/// planner takes the frequencies of an expression's values only from indexes over the whole table.
pub(crate) fn indexes(path: &MetadataPath) -> [(String, String); 2] {
    let field = Field::new(path);
    let of_table = |expression: String| expression.replace("entries.", "");
    let key = of_table(field.key());
    let number = of_table(field.number());
    [
        (
            name(path, "text"),
            format!("(owner_id, {key}, created_at, id)"),
        ),
        (
            name(path, "number"),
            format!("(owner_id, {number}, created_at, id)"),
        ),
    ]
}

/// The name of an index. PostgreSQL truncates names to 63 bytes and ignores case, so a hash distinguishes the fields.
fn name(path: &MetadataPath, kind: &str) -> String {
    let joined = path.segments().join(".");
    let readable: String = joined
        .chars()
        .take(24)
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '_'
            }
        })
        .collect();
    let mut hash = String::new();
    for byte in &Sha256::digest(joined.as_bytes())[..4] {
        let _ = write!(hash, "{byte:02x}");
    }
    format!("entries_{kind}_{readable}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        let long = MetadataPath::parse("segment.".repeat(30).trim_end_matches('.')).unwrap();
        let names: Vec<String> = ["status", "Status", "a.b-c", "a.b_c"]
            .iter()
            .map(|path| MetadataPath::parse(path).unwrap())
            .chain([long])
            .flat_map(|path| indexes(&path).map(|(name, _)| name))
            .collect();
        assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
        let different: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }
}
