//! Marks a database as the copy of an owner of another service: rows of `meta` with the owner and the source's cursor.

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::schema::meta;

/// The key in `meta` of the id of the owner that holds the copy.
pub(crate) const OWNER: &str = "copy_owner";
/// The key in `meta` of the cursor in the source's feed that the copy has reached.
pub(crate) const CURSOR: &str = "copy_cursor";

/// Whether this database is a copy.
pub(crate) fn is_set(conn: &mut SqliteConnection) -> QueryResult<bool> {
    Ok(read(conn, OWNER)?.is_some())
}

/// The value of a key in `meta`; `None` if there is no such row.
pub(crate) fn read(conn: &mut SqliteConnection, key: &str) -> QueryResult<Option<String>> {
    meta::table
        .find(key)
        .select(meta::value)
        .get_result(conn)
        .optional()
}

/// Sets the value of a key in `meta`.
pub(crate) fn write(conn: &mut SqliteConnection, key: &str, value: &str) -> QueryResult<()> {
    diesel::replace_into(meta::table)
        .values((meta::key.eq(key), meta::value.eq(value)))
        .execute(conn)?;
    Ok(())
}
