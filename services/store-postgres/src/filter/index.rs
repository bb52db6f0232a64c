//! The one spelling of a metadata field in SQL, and the indexes on it.

use std::fmt::Write as _;

use context_model::MetadataPath;
use sha2::{Digest as _, Sha256};

/// Characters of a string that an index holds: a row of an index must fit a third of a page.
pub(super) const INDEXED_CHARS: usize = 200;

/// A metadata field: the same text wherever it is used, because an index is used only for its own expression.
///
/// `->` with a text leads through objects only; `#>` would take `0` for the first item of an array.
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

    /// The value with strings folded, as jsonb; NULL for an absent field.
    pub(super) fn value(&self) -> String {
        format!("(entries.metadata_folded{} -> {})", self.steps, self.last)
    }

    /// The folded string, or the value as JSON text; NULL for null and for an absent field.
    pub(super) fn text(&self) -> String {
        format!("(entries.metadata_folded{} ->> {})", self.steps, self.last)
    }

    /// The string as it is.
    pub(super) fn exact_text(&self) -> String {
        format!("(entries.metadata{} ->> {})", self.steps, self.last)
    }

    /// The beginning of [`Field::text`], which the first index holds, in byte order.
    pub(super) fn key(&self) -> String {
        format!("(left({}, {INDEXED_CHARS}) COLLATE \"C\")", self.text())
    }

    /// The value when it is a number, which the second index holds.
    pub(super) fn number(&self) -> String {
        format!(
            "(CASE WHEN {} THEN {}::numeric END)",
            self.is("number"),
            self.text()
        )
    }

    /// The condition that the value is of this type, as `jsonb_typeof` names it.
    pub(super) fn is(&self, json_type: &str) -> String {
        format!("jsonb_typeof({}) = '{json_type}'", self.value())
    }
}

/// The names of the indexes on a metadata field and what follows the table's name in the statements that make them.
///
/// The first serves `eq`, `in`, `starts_with`, ranges of strings, `exists`, `is_null` and `not_exists`, with case and
/// without; the second equality and ranges of numbers. Both give the rows of one value newest first. The second is not
/// limited to rows with numbers, because the planner knows the frequency of an expression's values from whole indexes
/// alone.
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

/// Names are cut at 63 bytes and know no case, so that a hash tells fields apart.
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
