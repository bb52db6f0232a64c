//! Columns of text that mean something else, read where the driver holds them: no copy of the text is made.

use context_model::{JsonObject, ObjectText, Source};
use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::pg::{Pg, PgValue};
use diesel::sql_types::Text;

use crate::failure::Unreadable;

/// A `source` column.
#[derive(Debug, Clone, Copy, FromSqlRow)]
pub(crate) struct SourceColumn(pub Source);

impl FromSql<Text, Pg> for SourceColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let known = [Source::User, Source::Agent].into_iter().find(|source| source.as_str().as_bytes() == value.as_bytes());
        known.map(Self).ok_or_else(|| Unreadable { what: "source", source: None }.into())
    }
}

/// A `metadata` column, as text, whose object is looked into.
#[derive(Debug, FromSqlRow)]
pub(crate) struct MetadataColumn {
    pub object: JsonObject,
    /// The bytes of its text.
    pub bytes: usize,
}

impl FromSql<Text, Pg> for MetadataColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let json = value.as_bytes();
        let object = serde_json::from_slice(json).map_err(|error| Unreadable { what: "metadata", source: Some(error) })?;
        Ok(Self { object, bytes: json.len() })
    }
}

/// A `metadata` column, as text, that is only shown.
#[derive(Debug, FromSqlRow)]
pub(crate) struct MetadataText(pub ObjectText);

impl FromSql<Text, Pg> for MetadataText {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let object = ObjectText::from_slice(value.as_bytes());
        Ok(Self(object.map_err(|error| Unreadable { what: "metadata", source: Some(error) })?))
    }
}
