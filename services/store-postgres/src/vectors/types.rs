//! Implements pgvector's type for diesel, because the diesel support of the crate `pgvector` links libpq. The bytes are
//! encoded by that crate.

use diesel::pg::Pg;
use diesel::query_builder::QueryId;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::SqlType;
use tokio_postgres::types::{ToSql as _, Type};

/// The SQL type `vector`, whichever schema the extension is in.
#[derive(Debug, Clone, Copy, SqlType, QueryId)]
#[diesel(postgres_type(name = "vector"))]
pub(crate) struct VectorType;

/// A vector as a bound value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Vector(pgvector::Vector);

impl Vector {
    pub fn new(values: &[f32]) -> Self {
        Self(pgvector::Vector::from(values.to_vec()))
    }
}

impl ToSql<VectorType, Pg> for Vector {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        let mut bytes = bytes::BytesMut::with_capacity(4 + 4 * self.0.as_slice().len());
        // pgvector ignores the type that it is given.
        self.0.to_sql(&Type::BYTEA, &mut bytes)?;
        std::io::Write::write_all(out, &bytes)?;
        Ok(IsNull::No)
    }
}
