//! Converts diesel's statements for the driver, and the driver's rows for diesel.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::BytesMut;
use diesel::QueryResult;
use diesel::pg::{Pg, PgMetadataLookup, PgQueryBuilder, PgTypeMetadata, PgValue};
use diesel::query_builder::bind_collector::RawBytesBindCollector;
use diesel::query_builder::{QueryBuilder as _, QueryFragment};
use diesel::result::Error as DieselError;
use diesel::row::{Field, PartialRow, Row, RowIndex, RowSealed};
use tokio_postgres::Statement;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type};

use crate::pg::statement_cache::{CachePolicy, StatementId};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The origin of a statement's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// diesel's query language.
    Diesel,
    /// Raw SQL and its literal in the source code. `None` for text that is put together at run time.
    Raw(Option<&'static str>),
}

/// A statement in the form that is sent to the server.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub sql: String,
    pub values: Vec<Value>,
    pub types: Vec<Type>,
    /// How long a connection may keep it prepared.
    pub policy: CachePolicy,
    /// The id of its text, if the text is fixed and the statement was not found by this id.
    pub id: Option<StatementId>,
    /// The prepared statement, if it was found by its id. Text and types are then empty.
    pub prepared: Option<Statement>,
    pub source: Source,
}

impl Encoded {
    /// A prepared statement with the values of a query.
    pub fn of_prepared(
        prepared: Statement,
        query: &(impl QueryFragment<Pg> + ?Sized),
        extension_types: &Types,
    ) -> QueryResult<Self> {
        let binds = binds(query, extension_types)?.binds;
        let values = binds.into_iter().map(Value).collect();
        Ok(Self {
            sql: String::new(),
            values,
            types: Vec::new(),
            policy: CachePolicy::Always,
            id: None,
            prepared: Some(prepared),
            source: Source::Diesel,
        })
    }

    /// The statement of a query. The server infers the type of a parameter whose type is neither built into PostgreSQL
    /// nor in `extension_types`.
    pub fn of(
        query: &(impl QueryFragment<Pg> + ?Sized),
        policy: CachePolicy,
        extension_types: &Types,
    ) -> QueryResult<Self> {
        let mut sql = PgQueryBuilder::default();
        query.to_sql(&mut sql, &Pg)?;
        let binds = binds(query, extension_types)?;
        let mut types = Vec::with_capacity(binds.metadata.len());
        for metadata in &binds.metadata {
            types.push(type_of(
                metadata
                    .oid()
                    .map_err(|error| DieselError::SerializationError(error.into()))?,
            ));
        }
        Ok(Self {
            sql: sql.finish(),
            values: binds.binds.into_iter().map(Value).collect(),
            types,
            policy,
            id: None,
            prepared: None,
            source: Source::Diesel,
        })
    }

    /// Number of bytes of the values. The text is not counted.
    pub fn bytes(&self) -> usize {
        self.values
            .iter()
            .map(|Value(value)| value.as_ref().map_or(0, Vec::len))
            .sum()
    }

    /// Each value with its type. Empty if the statement was found by its id.
    pub fn parameters(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.values
            .iter()
            .zip(&self.types)
            .map(|(value, ty)| (value as &(dyn ToSql + Sync), ty.clone()))
            .collect()
    }
}

fn binds(
    query: &(impl QueryFragment<Pg> + ?Sized),
    extension_types: &Types,
) -> QueryResult<RawBytesBindCollector<Pg>> {
    let mut binds = RawBytesBindCollector::<Pg>::new();
    let mut lookup = TypeLookup(Arc::clone(extension_types));
    query.collect_binds(&mut binds, &mut lookup, &Pg)?;
    Ok(binds)
}

fn type_of(oid: u32) -> Type {
    Type::from_oid(oid)
        .unwrap_or_else(|| Type::new("unknown".to_owned(), oid, Kind::Simple, String::new()))
}

/// The OIDs of extension types by name: of the type and of its array type.
pub(crate) type Types = Arc<HashMap<&'static str, (u32, u32)>>;

struct TypeLookup(Types);

impl PgMetadataLookup for TypeLookup {
    fn lookup_type(&mut self, name: &str, _: Option<&str>) -> PgTypeMetadata {
        let (oid, array_oid) = self.0.get(name).copied().unwrap_or_default();
        PgTypeMetadata::new(oid, array_oid)
    }
}

/// A value in PostgreSQL's binary format; `None` is NULL.
#[derive(Debug)]
pub(crate) struct Value(Option<Vec<u8>>);

impl ToSql for Value {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        Ok(match &self.0 {
            None => IsNull::Yes,
            Some(bytes) => {
                out.extend_from_slice(bytes);
                IsNull::No
            }
        })
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// A row of the driver.
pub(crate) struct PgRow(pub tokio_postgres::Row);

impl RowSealed for PgRow {}

impl<'a> Row<'a, Pg> for PgRow {
    type Field<'f>
        = PgField<'f>
    where
        'a: 'f,
        Self: 'f;
    type InnerPartialRow = Self;

    fn field_count(&self) -> usize {
        self.0.len()
    }

    fn get<'b, I>(&'b self, index: I) -> Option<PgField<'b>>
    where
        'a: 'b,
        Self: RowIndex<I>,
    {
        let index = self.idx(index)?;
        let column = self.0.columns().get(index)?;
        Some(PgField {
            name: column.name(),
            oid: NonZeroU32::new(column.type_().oid())?,
            bytes: self
                .0
                .try_get::<_, Option<Bytes<'b>>>(index)
                .ok()?
                .map(|Bytes(bytes)| bytes),
        })
    }

    fn partial_row(&self, range: std::ops::Range<usize>) -> PartialRow<'_, Self> {
        PartialRow::new::<Pg>(self, range)
    }
}

impl RowIndex<usize> for PgRow {
    fn idx(&self, index: usize) -> Option<usize> {
        (index < self.0.len()).then_some(index)
    }
}

impl<'n> RowIndex<&'n str> for PgRow {
    fn idx(&self, name: &'n str) -> Option<usize> {
        self.0
            .columns()
            .iter()
            .position(|column| column.name() == name)
    }
}

/// One field of a row.
pub(crate) struct PgField<'a> {
    name: &'a str,
    oid: NonZeroU32,
    bytes: Option<&'a [u8]>,
}

impl<'a> Field<'a, Pg> for PgField<'a> {
    fn field_name(&self) -> Option<&str> {
        Some(self.name)
    }

    fn value(&self) -> Option<PgValue<'_>> {
        Some(PgValue::new(self.bytes?, &self.oid))
    }
}

/// A field's bytes. Any type is accepted, because diesel decodes them.
struct Bytes<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Bytes<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(raw))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}
