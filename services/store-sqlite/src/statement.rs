//! Statements without values. diesel prepares each once for a connection.

use diesel::QueryResult;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sqlite::{Sqlite, SqliteConnection};

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
    /// Starts a transaction that reads one state of the database.
    Begin = "BEGIN";
    /// Starts a transaction that writes.
    BeginImmediate = "BEGIN IMMEDIATE";
    /// Ends a transaction.
    Commit = "COMMIT";
    /// Undoes a transaction.
    Rollback = "ROLLBACK";
    /// Starts a part of a transaction that can be undone alone.
    Savepoint = "SAVEPOINT part";
    /// Keeps what the innermost part did.
    Release = "RELEASE part";
    /// Undoes what the innermost part did; it stays open.
    RollbackTo = "ROLLBACK TO part";
}
