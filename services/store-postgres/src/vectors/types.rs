//! pgvector's type as diesel sees it. The crate `pgvector` could do it only together with libpq.

use std::io::Write as _;

use diesel::pg::Pg;
use diesel::query_builder::QueryId;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::SqlType;

/// `vector`, in whatever schema the extension lives.
#[derive(Debug, Clone, Copy, SqlType, QueryId)]
#[diesel(postgres_type(name = "vector"))]
pub(crate) struct Vector;

/// A vector to be bound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct VectorRef<'v>(pub &'v [f32]);

impl ToSql<Vector, Pg> for VectorRef<'_> {
    /// The form of pgvector's `vector_recv`: dimensions, a zero, and 32-bit floats, all big-endian.
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(&u16::try_from(self.0.len())?.to_be_bytes())?;
        out.write_all(&0u16.to_be_bytes())?;
        for value in self.0 {
            out.write_all(&value.to_be_bytes())?;
        }
        Ok(IsNull::No)
    }
}
