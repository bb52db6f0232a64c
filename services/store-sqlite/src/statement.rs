//! Statements that stay prepared where diesel's own do not.
//!
//! diesel prepares an `UPDATE` and an `ON CONFLICT DO UPDATE` every time (`UpdateStatement` is "unsafe to cache").
//! Therefore the write path updates through [`Prepared`]. `tokenizer.rs` keeps SQLite itself from preparing a statement
//! with `LIMIT ?` again for each value. Both together were a quarter of the cost of a store.

use diesel::QueryResult;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Binary, Text};
use diesel::sqlite::{Sqlite, SqliteConnection};

/// A value of a prepared statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'v> {
    Int(i64),
    Text(&'v str),
    Blob(&'v [u8]),
    Null,
}

/// A statement with one of a few fixed texts. Its `?` are the values in order. It contains no other question mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared<'v> {
    pub sql: &'v str,
    pub values: &'v [Value<'v>],
}

impl QueryFragment<Sqlite> for Prepared<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
        let mut parts = self.sql.split('?');
        out.push_sql(parts.next().unwrap_or_default());
        for (value, part) in self.values.iter().zip(parts) {
            match value {
                Value::Int(int) => out.push_bind_param::<BigInt, _>(int)?,
                Value::Text(text) => out.push_bind_param::<Text, _>(*text)?,
                Value::Blob(bytes) => out.push_bind_param::<Binary, _>(*bytes)?,
                Value::Null => out.push_sql("NULL"),
            }
            out.push_sql(part);
        }
        Ok(())
    }
}

// The text identifies the statement, not the type.
impl QueryId for Prepared<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl RunQueryDsl<SqliteConnection> for Prepared<'_> {}

/// Runs a statement with a fixed text and returns the number of changed rows.
pub(crate) fn execute(
    conn: &mut SqliteConnection,
    sql: &'static str,
    values: &[Value<'_>],
) -> QueryResult<usize> {
    debug_assert_eq!(sql.matches('?').count(), values.len(), "{sql}");
    Prepared { sql, values }.execute(conn)
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, QueryId)]
        pub(crate) struct $name;

        impl QueryFragment<Sqlite> for $name {
            fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Sqlite>) -> QueryResult<()> {
                out.push_sql($sql);
                Ok(())
            }
        }

        impl RunQueryDsl<SqliteConnection> for $name {}
    )*};
}

statements! {
    /// Starts a read transaction.
    Begin = "BEGIN";
    /// Starts a write transaction.
    BeginImmediate = "BEGIN IMMEDIATE";
    /// Commits a transaction.
    Commit = "COMMIT";
    /// Rolls back a transaction.
    Rollback = "ROLLBACK";
    /// Starts a part of a transaction that can be rolled back separately.
    Savepoint = "SAVEPOINT part";
    /// Keeps the changes of the innermost part.
    Release = "RELEASE part";
    /// Rolls back the innermost part, which stays open.
    RollbackTo = "ROLLBACK TO part";
}
