//! The SQL expression of a metadata field, and the index on it.

use context_model::MetadataPath;

/// A metadata field. Its SQL is the same wherever it is used, because SQLite compares index expressions by their text.
pub(super) struct Field {
    path: String,
}

impl Field {
    pub(super) fn new(path: &MetadataPath) -> Self {
        let mut literal = String::from("'$");
        for segment in path.segments() {
            debug_assert!(
                segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-'),
                "guaranteed by MetadataPath"
            );
            literal.push_str(".\"");
            literal.push_str(segment);
            literal.push('"');
        }
        literal.push('\'');
        Self { path: literal }
    }

    /// The path as an SQL literal.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The value with strings folded, as held by the index: a number, a string, 1 or 0 for a boolean, JSON text for an
    /// array or object, NULL for null and for an absent field.
    pub(super) fn folded(&self) -> String {
        format!("json_extract(entries.metadata_folded, {})", self.path)
    }

    /// The value without folding.
    pub(super) fn exact(&self) -> String {
        format!("json_extract(entries.metadata, {})", self.path)
    }

    /// The JSON type of the value, or NULL for an absent field. The types are the same in both columns. If the column
    /// is also the one whose value is read, SQLite parses the JSON only once.
    pub(super) fn type_in(&self, column: &str) -> String {
        format!("json_type(entries.{column}, {})", self.path)
    }
}

/// The name of the index on a metadata field and the statement that creates it.
///
/// It serves every operator except `ne`, `not_in` and `array_contains`, case-sensitive or not. The rows of one value
/// come newest first.
pub(crate) fn index_statement(path: &MetadataPath) -> (String, String) {
    let name = index_name(path);
    let expression = Field::new(path).folded().replace("entries.", "");
    let sql = format!(
        "CREATE INDEX IF NOT EXISTS \"{name}\" ON entries (owner, {expression}, created_at, row_id)"
    );
    (name, sql)
}

/// SQLite compares names case-insensitively, but metadata keys are case-sensitive, so capital letters are marked.
pub(super) fn index_name(path: &MetadataPath) -> String {
    let mut name = String::from("entries_by_metadata:");
    for c in path.segments().join(".").chars() {
        if c.is_ascii_uppercase() {
            name.push('^');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}
