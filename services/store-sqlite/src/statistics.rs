//! The owner's counts and the size of the database.

use std::path::Path;

use context_model::{ConnectionMetrics, ContentTypeCounts, SourceCounts, ThreadSet};
use context_store::{Idempotency, StoreError, StoreStatistics, Usage};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use crate::connection::pragma_int;
use crate::failure::store_error;
use crate::filter;
use crate::owners::Owner;
use crate::sql::{self, Bind, Fragment};

/// The owner's counts, all from its row, and the size of the database. Without an owner, all counts are 0.
pub(crate) fn read(
    conn: &mut SqliteConnection,
    path: &Path,
    owner: Option<&Owner>,
    connections: ConnectionMetrics,
) -> Result<StoreStatistics, StoreError> {
    let count = |read: fn(&Owner) -> i64| owner.map_or(0, read);
    Ok(StoreStatistics {
        total_entries: count(|o| o.entry_count),
        by_source: SourceCounts {
            user: count(|o| o.user_count),
            agent: count(|o| o.agent_count),
        },
        by_content_type: ContentTypeCounts {
            text: count(|o| o.entry_count - o.multimodal_count),
            multimodal: count(|o| o.multimodal_count),
        },
        total_images: count(|o| o.image_count),
        unique_tags: count(|o| o.tag_count),
        // Every entry is indexed in the transaction that stores it.
        indexed_entries: count(|o| o.entry_count),
        database_bytes: database_bytes(conn, path)?,
        connections,
        fts_engine: "fts5",
        revision: count(|o| o.revision),
    })
}

#[derive(QueryableByName)]
struct Counts {
    #[diesel(sql_type = BigInt)]
    entries: i64,
    #[diesel(sql_type = BigInt)]
    users: i64,
    #[diesel(sql_type = BigInt)]
    multimodal: i64,
    #[diesel(sql_type = BigInt)]
    images: i64,
    #[diesel(sql_type = BigInt)]
    tags: i64,
    #[diesel(sql_type = BigInt)]
    bytes: i64,
}

/// The counts of the entries in these threads, and their bytes.
pub(crate) fn within(
    conn: &mut SqliteConnection,
    owner: Option<&Owner>,
    threads: &ThreadSet,
    connections: ConnectionMetrics,
) -> Result<StoreStatistics, StoreError> {
    let number = owner.map_or(0, |owner| owner.owner);
    let mut select = Fragment::new(
        "WITH reached AS (\
         SELECT row_id, source, image_count, octet_length(text) + octet_length(metadata) AS bytes \
         FROM entries WHERE owner = ",
    );
    select
        .bind(Bind::Int(number))
        .push(" AND ")
        .append(filter::within("thread_id", threads));
    select
        .push(
            "), tagged AS (\
             SELECT count(DISTINCT tag) AS tags, coalesce(sum(octet_length(tag)), 0) AS bytes \
             FROM entry_tags WHERE owner = ",
        )
        .bind(Bind::Int(number))
        .push(" AND row_id IN (SELECT row_id FROM reached)) ");
    select.push(
        "SELECT count(*) AS entries, \
             coalesce(sum(source = 'user'), 0) AS users, \
             coalesce(sum(image_count > 0), 0) AS multimodal, \
             coalesce(sum(image_count), 0) AS images, \
             (SELECT tags FROM tagged) AS tags, \
             coalesce(sum(bytes), 0) + (SELECT bytes FROM tagged) + (SELECT coalesce(sum(octet_length(data) + coalesce(octet_length(metadata), 0)), 0) FROM images WHERE owner = ",
    );
    select.bind(Bind::Int(number)).push(
        " AND row_id IN (SELECT row_id FROM reached WHERE image_count > 0)) AS bytes FROM reached",
    );
    let counts = sql::query::<Counts>(conn, &select)
        .map_err(store_error)?
        .pop();
    let Counts {
        entries,
        users,
        multimodal,
        images,
        tags,
        bytes,
    } = counts.unwrap_or(Counts {
        entries: 0,
        users: 0,
        multimodal: 0,
        images: 0,
        tags: 0,
        bytes: 0,
    });
    Ok(StoreStatistics {
        total_entries: entries,
        by_source: SourceCounts {
            user: users,
            agent: entries - users,
        },
        by_content_type: ContentTypeCounts {
            text: entries - multimodal,
            multimodal,
        },
        total_images: images,
        unique_tags: tags,
        indexed_entries: entries,
        database_bytes: u64::try_from(bytes).unwrap_or(0),
        connections,
        fts_engine: "fts5",
        revision: owner.map_or(0, |owner| owner.revision),
    })
}

/// The storage that the owner uses. `octet_length` reads only the length, not the overflow pages.
pub(crate) fn usage(conn: &mut SqliteConnection, owner: &Owner) -> Result<Usage, StoreError> {
    #[derive(QueryableByName)]
    struct Sums {
        #[diesel(sql_type = BigInt)]
        artifacts: i64,
        #[diesel(sql_type = BigInt)]
        bytes: i64,
    }
    let mut select = Fragment::new("SELECT (SELECT count(*) FROM artifacts WHERE owner = ");
    select.bind(Bind::Int(owner.owner));
    select.push(
        ") AS artifacts, \
         (SELECT coalesce(sum(octet_length(text) + octet_length(metadata)), 0) FROM entries WHERE owner = ",
    );
    select
        .bind(Bind::Int(owner.owner))
        .push(") + (SELECT coalesce(sum(octet_length(tag) * entries), 0) FROM tag_counts WHERE owner = ")
        .bind(Bind::Int(owner.owner))
        .push(") + (SELECT coalesce(sum(octet_length(data) + coalesce(octet_length(metadata), 0)), 0) FROM images WHERE owner = ");
    select.bind(Bind::Int(owner.owner));
    select
        .push(") + (SELECT coalesce(sum(octet_length(title) + octet_length(content) + octet_length(metadata)), 0) \
            FROM artifact_versions ");
    select.push("WHERE owner = ").bind(Bind::Int(owner.owner));
    select
        .push(") + (SELECT coalesce(sum(octet_length(path)), 0) FROM artifacts WHERE owner = ")
        .bind(Bind::Int(owner.owner));
    select
        .push(") + (SELECT coalesce(sum(octet_length(key) + octet_length(outcome) + ")
        .bind(Bind::Int(Idempotency::OVERHEAD_BYTES));
    select
        .push("), 0) FROM idempotency WHERE owner = ")
        .bind(Bind::Int(owner.owner))
        .push(") AS bytes");
    let sums = sql::query::<Sums>(conn, &select)
        .map_err(store_error)?
        .pop()
        .unwrap_or(Sums {
            artifacts: 0,
            bytes: 0,
        });
    let number = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok(Usage {
        entries: number(owner.entry_count),
        artifacts: number(sums.artifacts),
        bytes: number(sums.bytes),
    })
}

fn database_bytes(conn: &mut SqliteConnection, path: &Path) -> Result<u64, StoreError> {
    let pages = pragma_int(conn, "PRAGMA page_count").map_err(store_error)?;
    let page_size = pragma_int(conn, "PRAGMA page_size").map_err(store_error)?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log_bytes = std::fs::metadata(Path::new(&log)).map_or(0, |metadata| metadata.len());
    Ok(u64::try_from(pages.saturating_mul(page_size))
        .unwrap_or(0)
        .saturating_add(log_bytes))
}
