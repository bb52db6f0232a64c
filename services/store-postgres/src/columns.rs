//! Rust types of columns that PostgreSQL sends as text. Each is decoded straight from the driver's buffer.

use context_model::{ObjectText, Source};
use context_store::Unreadable;
use std::borrow::Cow;
use std::io::Write as _;

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Json, Jsonb, Text};

/// A `source` column.
#[derive(Debug, Clone, Copy, FromSqlRow)]
pub(crate) struct SourceColumn(pub Source);

impl FromSql<Text, Pg> for SourceColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let source = std::str::from_utf8(value.as_bytes())
            .ok()
            .and_then(Source::named);
        source.map(Self).ok_or_else(|| {
            Unreadable {
                what: "source",
                source: None,
            }
            .into()
        })
    }
}

/// A `text` column. Bytes that are not UTF-8 become U+FFFD: a damaged text must not prevent reading the other rows.
#[derive(Debug, FromSqlRow)]
pub(crate) struct LossyText(pub String);

impl FromSql<Text, Pg> for LossyText {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(String::from_utf8_lossy(value.as_bytes()).into_owned()))
    }
}

/// As [`LossyText`], for a reader that must know of damage.
#[derive(Debug, FromSqlRow)]
pub(crate) struct CheckedText {
    /// The text, in which invalid UTF-8 is replaced by U+FFFD.
    pub text: String,
    /// Whether nothing was replaced.
    pub is_valid: bool,
}

impl FromSql<Text, Pg> for CheckedText {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let text = String::from_utf8_lossy(value.as_bytes());
        Ok(Self {
            is_valid: matches!(text, Cow::Borrowed(_)),
            text: text.into_owned(),
        })
    }
}

/// A `metadata` column that is only passed on: its text, unparsed. `None` when the text is not an object.
#[derive(Debug, FromSqlRow)]
pub(crate) struct MetadataText(pub Option<ObjectText>);

impl FromSql<Text, Pg> for MetadataText {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(Self(ObjectText::from_slice(value.as_bytes()).ok()))
    }
}

/// JSON text to store.
#[derive(Debug, Clone, Copy, AsExpression)]
#[diesel(sql_type = Json)]
#[diesel(sql_type = Jsonb)]
pub(crate) struct JsonText<'t>(pub &'t str);

impl ToSql<Json, Pg> for JsonText<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_bytes())?;
        Ok(IsNull::No)
    }
}

impl ToSql<Jsonb, Pg> for JsonText<'_> {
    /// PostgreSQL (`jsonb_recv`) expects a version byte before the text.
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(&[1])?;
        out.write_all(self.0.as_bytes())?;
        Ok(IsNull::No)
    }
}

impl FromSql<Json, Pg> for LossyText {
    /// A json value is sent as its text.
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        FromSql::<Text, Pg>::from_sql(value)
    }
}
