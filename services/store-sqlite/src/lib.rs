//! The embedded database: SQLite in one file, owned by one process.

mod filter;
pub(crate) mod schema;
pub(crate) mod sql;
