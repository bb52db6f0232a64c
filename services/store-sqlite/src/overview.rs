//! Samples of metadata, and entries by day.

use context_model::{DayCount, Filter, ObjectText};
use context_store::{DayCounts, MetadataSample, StoreError};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::failure::store_error;
use crate::filter;
use crate::owners::Owner;
use crate::sql::{self, Bind, Fragment};

/// The metadata of the newest entries that satisfy the filter.
pub(crate) fn metadata_sample(
    conn: &mut SqliteConnection,
    owner: &Owner,
    filter: &Filter,
    limit: u32,
    max_bytes: u32,
) -> Result<MetadataSample, StoreError> {
    #[derive(QueryableByName)]
    struct Sampled {
        #[diesel(sql_type = Nullable<Text>)]
        metadata: Option<LossyText>,
    }
    let mut select = Fragment::new("SELECT CASE WHEN octet_length(entries.metadata) <= ");
    select
        .bind(Bind::Int(i64::from(max_bytes)))
        .push(" THEN entries.metadata END AS metadata FROM entries WHERE ")
        .append(filter::compile(filter, owner.owner))
        .push(" ORDER BY entries.created_at DESC, entries.row_id DESC LIMIT ")
        .bind(Bind::Int(i64::from(limit)));
    let rows: Vec<Sampled> = sql::query(conn, &select).map_err(store_error)?;
    let object = |text: LossyText| ObjectText::from_slice(String::from(text).as_bytes()).ok();
    Ok(MetadataSample {
        objects: rows
            .into_iter()
            .map(|row| row.metadata.and_then(object))
            .collect(),
        revision: owner.revision,
    })
}

/// The number of entries by day, in the newest entries that satisfy the filter.
pub(crate) fn days(
    conn: &mut SqliteConnection,
    owner: &Owner,
    filter: &Filter,
    limit: u32,
) -> Result<DayCounts, StoreError> {
    #[derive(QueryableByName)]
    struct Day {
        #[diesel(sql_type = BigInt)]
        day: i64,
        #[diesel(sql_type = BigInt)]
        entry_count: i64,
    }
    let mut select = Fragment::new("SELECT newest.created_at / ");
    select
        .bind(Bind::Int(DayCount::MICROS))
        .push(
            " AS day, count(*) AS entry_count FROM (SELECT entries.created_at FROM entries WHERE ",
        )
        .append(filter::compile(filter, owner.owner))
        .push(" ORDER BY entries.created_at DESC LIMIT ")
        .bind(Bind::Int(i64::from(limit)))
        .push(") AS newest GROUP BY 1 ORDER BY 1 DESC");
    let rows: Vec<Day> = sql::query(conn, &select).map_err(store_error)?;
    Ok(DayCounts {
        days: rows
            .into_iter()
            .map(|row| (row.day, row.entry_count))
            .collect(),
        revision: owner.revision,
    })
}
