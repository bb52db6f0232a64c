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

impl From<LossyText> for String {
    fn from(LossyText(text): LossyText) -> Self {
        text
    }
}
