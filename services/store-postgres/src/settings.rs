//! The database's own settings, by key.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::schema::settings;

pub(crate) async fn read(conn: &mut AsyncPgConnection, key: &str) -> QueryResult<Option<String>> {
    let value = settings::table.find(key).select(settings::value);
    value.get_result(conn).await.optional()
}

pub(crate) async fn write(conn: &mut AsyncPgConnection, key: &str, value: &str) -> QueryResult<()> {
    let write = diesel::insert_into(settings::table)
        .values((settings::key.eq(key), settings::value.eq(value)))
        .on_conflict(settings::key)
        .do_update()
        .set(settings::value.eq(value));
    fixed!(write).execute(conn).await?;
    Ok(())
}

pub(crate) async fn delete(conn: &mut AsyncPgConnection, key: &str) -> QueryResult<()> {
    diesel::delete(settings::table.find(key))
        .execute(conn)
        .await?;
    Ok(())
}
