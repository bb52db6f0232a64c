//! Column types that can be read even when they are damaged, so that one damaged row does not prevent reading others.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::Text;
use diesel::sqlite::{Sqlite, SqliteValue};

/// A text column. Invalid UTF-8 is replaced by U+FFFD, and the checksum then reveals the damage.
#[derive(Debug, FromSqlRow)]
pub(crate) struct LossyText(String);

impl FromSql<Text, Sqlite> for LossyText {
    fn from_sql(mut value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        Ok(Self(value.read_text().to_owned()))
    }
}

/// A text column of which it must be known whether it is valid UTF-8.
#[derive(Debug, FromSqlRow)]
pub(crate) struct CheckedText {
    /// The text, in which invalid UTF-8 is replaced by U+FFFD.
    pub text: String,
    /// Whether nothing was replaced.
    pub is_valid: bool,
}

impl FromSql<Text, Sqlite> for CheckedText {
    fn from_sql(mut value: SqliteValue<'_, '_, '_>) -> deserialize::Result<Self> {
        let text = value.read_text().to_owned();
        // Only a text with this character can have got it by a replacement.
        let is_valid =
            !text.contains(char::REPLACEMENT_CHARACTER) || value.read_blob() == text.as_bytes();
        Ok(Self { text, is_valid })
    }
}

impl From<LossyText> for String {
    fn from(LossyText(text): LossyText) -> Self {
        text
    }
}
