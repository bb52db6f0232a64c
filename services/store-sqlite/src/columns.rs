//! Columns that are read even when they are damaged, so that one row keeps no other from being read.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::sql_types::Text;
use diesel::sqlite::{Sqlite, SqliteValue};

/// A column of text, with U+FFFD for what is no UTF-8: its checksum says that it is damaged.
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
