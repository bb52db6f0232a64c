//! The owner's counts and the size of the database.

use std::path::Path;

use context_model::{ConnectionMetrics, ContentTypeCounts, SourceCounts};
use context_store::{StoreError, StoreStatistics};
use diesel::sqlite::SqliteConnection;

use crate::connection::pragma_int;
use crate::failure::store_error;
use crate::owners::Owner;

/// The owner's counts, all from its row; `None` for an owner that never wrote.
pub(crate) fn read(
    conn: &mut SqliteConnection,
    path: &Path,
    owner: Option<&Owner>,
    connections: ConnectionMetrics,
) -> Result<StoreStatistics, StoreError> {
    let count = |read: fn(&Owner) -> i64| owner.map_or(0, read);
    Ok(StoreStatistics {
        total_entries: count(|o| o.entry_count),
        by_source: SourceCounts { user: count(|o| o.user_count), agent: count(|o| o.agent_count) },
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

fn database_bytes(conn: &mut SqliteConnection, path: &Path) -> Result<u64, StoreError> {
    let pages = pragma_int(conn, "PRAGMA page_count").map_err(store_error)?;
    let page_size = pragma_int(conn, "PRAGMA page_size").map_err(store_error)?;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log_bytes = std::fs::metadata(Path::new(&log)).map_or(0, |metadata| metadata.len());
    Ok(u64::try_from(pages.saturating_mul(page_size)).unwrap_or(0).saturating_add(log_bytes))
}
