//! Samples of metadata, and entries by day.

use std::sync::Arc;

use context_model::{DayCount, Filter, MetadataPath, ObjectText};
use context_store::{DayCounts, DocumentKind, MetadataSample, OwnerId};
use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};

use crate::filter;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, fragment};
use crate::read::Reading;

/// The metadata of the newest entries that satisfy a filter.
pub(crate) struct Sample {
    pub filter: Filter,
    pub limit: u32,
    pub max_bytes: u32,
    pub indexed: Arc<[MetadataPath]>,
}

#[derive(QueryableByName)]
struct Sampled {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    metadata: Option<String>,
}

impl Reading for Sample {
    type Outcome = MetadataSample;

    fn empty(&self) -> MetadataSample {
        MetadataSample::default()
    }

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.indexed))
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, MetadataSample)>, Failure> {
        // Raw SQL for LATERAL: the owner has a row even where no entry matches. JSON needs a cast before it can be
        // measured.
        let select = fragment!(
            "SELECT o.revision, s.id, s.metadata FROM context.owners AS o LEFT JOIN LATERAL \
             (SELECT entries.id, entries.created_at, CASE WHEN octet_length(entries.metadata::text) <= ? \
              THEN entries.metadata::text END AS metadata FROM context.entries AS entries WHERE {filter} \
              ORDER BY entries.created_at DESC, entries.id DESC LIMIT ?) AS s ON true \
             WHERE o.owner_id = ? ORDER BY s.created_at DESC, s.id DESC",
            Bind::Int(i64::from(self.max_bytes)),
            filter::compile(
                DocumentKind::Context,
                &self.filter,
                owner.as_str(),
                &self.indexed
            ),
            Bind::Int(i64::from(self.limit)),
            Bind::text(owner.as_str()),
        );
        let rows: Vec<Sampled> = sql::query(conn, select).await?;
        let Some(revision) = rows.first().map(|row| row.revision) else {
            return Ok(None);
        };
        let object = |text: String| ObjectText::from_slice(text.as_bytes()).ok();
        let objects = rows
            .into_iter()
            .filter(|row| row.id.is_some())
            .map(|row| row.metadata.and_then(object))
            .collect();
        Ok(Some((revision, MetadataSample { objects, revision })))
    }
}

/// The number of entries by day, in the newest entries that satisfy a filter.
pub(crate) struct Days {
    pub filter: Filter,
    pub limit: u32,
    pub indexed: Arc<[MetadataPath]>,
}

#[derive(QueryableByName)]
struct Day {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = Nullable<BigInt>)]
    day: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    entry_count: Option<i64>,
}

impl Reading for Days {
    type Outcome = DayCounts;

    fn empty(&self) -> DayCounts {
        DayCounts::default()
    }

    fn filter(&self) -> Option<(&Filter, &[MetadataPath])> {
        Some((&self.filter, &self.indexed))
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, DayCounts)>, Failure> {
        // Raw SQL for LATERAL: the owner has a row even where no entry matches.
        let select = fragment!(
            "SELECT o.revision, d.day, d.entry_count FROM context.owners AS o LEFT JOIN LATERAL \
             (SELECT newest.day, count(*) AS entry_count FROM (SELECT entries.created_at / ? AS day \
              FROM context.entries AS entries WHERE {filter} ORDER BY entries.created_at DESC LIMIT ?) AS newest \
              GROUP BY newest.day) AS d ON true WHERE o.owner_id = ? ORDER BY d.day DESC",
            Bind::Int(DayCount::MICROS),
            filter::compile(
                DocumentKind::Context,
                &self.filter,
                owner.as_str(),
                &self.indexed
            ),
            Bind::Int(i64::from(self.limit)),
            Bind::text(owner.as_str()),
        );
        let rows: Vec<Day> = sql::query(conn, select).await?;
        let Some(revision) = rows.first().map(|row| row.revision) else {
            return Ok(None);
        };
        let day = |row: Day| Some((row.day?, row.entry_count?));
        let days = rows.into_iter().filter_map(day).collect();
        Ok(Some((revision, DayCounts { days, revision })))
    }
}
