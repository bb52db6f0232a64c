//! The embedded database: SQLite in one file, owned by one process.

pub(crate) mod schema;
pub(crate) mod sql;
