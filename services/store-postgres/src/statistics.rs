//! Reads the owner's counts and the size of its data.

use context_model::{ConnectionMetrics, ContentTypeCounts, SourceCounts, ThreadSet};
use context_store::{Idempotency, OwnerId, StoreStatistics, Usage};
use diesel::QueryableByName;
use diesel::sql_types::BigInt;

use crate::filter::within;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::Reading;

/// Reads the owner's counts. Nearly all of them are in the owner's row.
pub(crate) struct Statistics {
    pub connections: ConnectionMetrics,
}

#[derive(QueryableByName)]
struct Counts {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = BigInt)]
    entry_count: i64,
    #[diesel(sql_type = BigInt)]
    user_count: i64,
    #[diesel(sql_type = BigInt)]
    agent_count: i64,
    #[diesel(sql_type = BigInt)]
    multimodal_count: i64,
    #[diesel(sql_type = BigInt)]
    image_count: i64,
    #[diesel(sql_type = BigInt)]
    tag_count: i64,
    #[diesel(sql_type = BigInt)]
    database_bytes: i64,
}

impl Reading for Statistics {
    type Outcome = StoreStatistics;

    fn empty(&self) -> StoreStatistics {
        self.of(&Counts {
            revision: 0,
            entry_count: 0,
            user_count: 0,
            agent_count: 0,
            multimodal_count: 0,
            image_count: 0,
            tag_count: 0,
            database_bytes: 0,
        })
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, StoreStatistics)>, Failure> {
        // Raw SQL for the recursive CTE. It counts tags by stepping from one tag to the next in their index. A stored
        // count would make all writers of a common tag wait for each other.
        const SQL: &str = "WITH RECURSIVE tags AS ((SELECT tag FROM context.entry_tags WHERE owner_id = ? ORDER BY tag LIMIT 1) UNION ALL \
                           SELECT (SELECT next.tag FROM context.entry_tags AS next WHERE next.owner_id = ? AND next.tag > tags.tag \
                           ORDER BY next.tag LIMIT 1) FROM tags WHERE tags.tag IS NOT NULL) \
                           SELECT revision, entry_count, user_count, agent_count, multimodal_count, image_count, \
                           (SELECT count(tag) FROM tags) AS tag_count, pg_database_size(current_database()) AS database_bytes \
                           FROM context.owners WHERE owner_id = ?";
        let owner = || Bind::text(owner.as_str());
        let rows: Vec<Counts> = sql::query(
            conn,
            Fragment::prepared(SQL, vec![owner(), owner(), owner()]),
        )
        .await?;
        Ok(rows
            .first()
            .map(|counts| (counts.revision, self.of(counts))))
    }
}

/// Reads the owner's usage: entries, artifacts and bytes. It loads neither long texts nor images, because
/// `octet_length` reads only their stored length. Metadata and tags are loaded.
pub(crate) struct CountUsage;

impl Reading for CountUsage {
    type Outcome = Usage;

    fn empty(&self) -> Usage {
        Usage::default()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, Usage)>, Failure> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = BigInt)]
            revision: i64,
            #[diesel(sql_type = BigInt)]
            entries: i64,
            #[diesel(sql_type = BigInt)]
            artifacts: i64,
            #[diesel(sql_type = BigInt)]
            bytes: i64,
        }
        // Raw SQL: the sums are numeric and need a cast. JSON needs a cast before it can be measured.
        const SQL: &str = "SELECT o.revision, o.entry_count AS entries, \
             (SELECT count(*) FROM context.artifacts AS a WHERE a.owner_id = ?) AS artifacts, \
             ((SELECT coalesce(sum(octet_length(e.text) + octet_length(e.metadata::text) + octet_length(array_to_string(e.tags, ''))), 0) \
               FROM context.entries AS e WHERE e.owner_id = ?) \
              + (SELECT coalesce(sum(octet_length(i.data) + coalesce(octet_length(i.metadata::text), 0)), 0) FROM context.images AS i WHERE i.owner_id = ?) \
              + (SELECT coalesce(sum(octet_length(v.title) + octet_length(v.content) + octet_length(v.metadata::text)), 0) \
                 FROM context.artifact_versions AS v WHERE v.owner_id = ?) \
              + (SELECT coalesce(sum(octet_length(p.path)), 0) FROM context.artifacts AS p WHERE p.owner_id = ?) \
              + (SELECT coalesce(sum(octet_length(k.key) + octet_length(k.outcome) + ?), 0) FROM context.idempotency AS k \
                 WHERE k.owner_id = ?))::bigint AS bytes \
             FROM context.owners AS o WHERE o.owner_id = ?";
        let mut binds: Vec<Bind<'_>> = (0..7).map(|_| Bind::text(owner.as_str())).collect();
        binds.insert(5, Bind::Int(Idempotency::OVERHEAD_BYTES));
        let rows: Vec<Row> = sql::query(conn, Fragment::prepared(SQL, binds)).await?;
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Ok(rows.first().map(|row| {
            let usage = Usage {
                entries: number(row.entries),
                artifacts: number(row.artifacts),
                bytes: number(row.bytes),
            };
            (row.revision, usage)
        }))
    }
}

/// Reads the number and the bytes of the entries in some threads.
pub(crate) struct StatisticsWithin {
    pub threads: ThreadSet,
    pub connections: ConnectionMetrics,
}

impl StatisticsWithin {
    fn counted(&self, counts: &Counts) -> StoreStatistics {
        Statistics {
            connections: self.connections.clone(),
        }
        .of(counts)
    }
}

impl Reading for StatisticsWithin {
    type Outcome = StoreStatistics;

    fn empty(&self) -> StoreStatistics {
        Statistics {
            connections: self.connections.clone(),
        }
        .empty()
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, StoreStatistics)>, Failure> {
        // Raw SQL for the CTE, which reads the entries only once.
        let select = fragment!(
            "WITH reached AS (SELECT id, source, image_count, tags, \
             octet_length(text) + octet_length(metadata::text) + octet_length(array_to_string(tags, '')) AS bytes \
             FROM context.entries WHERE owner_id = ? AND {within}) \
             SELECT o.revision, counts.* FROM context.owners AS o CROSS JOIN \
             (SELECT count(*) AS entry_count, count(*) FILTER (WHERE source = 'user') AS user_count, \
              count(*) FILTER (WHERE source = 'agent') AS agent_count, count(*) FILTER (WHERE image_count > 0) AS multimodal_count, \
              coalesce(sum(image_count), 0)::bigint AS image_count, \
              (SELECT count(DISTINCT tag) FROM reached AS r, unnest(r.tags) AS tag) AS tag_count, \
              (coalesce(sum(bytes), 0) + (SELECT coalesce(sum(octet_length(data) + coalesce(octet_length(metadata::text), 0)), 0) FROM context.images \
               WHERE owner_id = ? AND id IN (SELECT id FROM reached WHERE image_count > 0)))::bigint AS database_bytes \
              FROM reached) AS counts WHERE o.owner_id = ?",
            Bind::text(owner.as_str()),
            within("thread_id", &self.threads),
            Bind::text(owner.as_str()),
            Bind::text(owner.as_str()),
        )
        .cached();
        let rows: Vec<Counts> = sql::query(conn, select).await?;
        Ok(rows
            .first()
            .map(|counts| (counts.revision, self.counted(counts))))
    }
}

impl Statistics {
    fn of(&self, counts: &Counts) -> StoreStatistics {
        let Counts {
            revision,
            entry_count,
            user_count,
            agent_count,
            multimodal_count,
            image_count,
            tag_count,
            database_bytes,
        } = counts;
        StoreStatistics {
            total_entries: *entry_count,
            by_source: SourceCounts {
                user: *user_count,
                agent: *agent_count,
            },
            by_content_type: ContentTypeCounts {
                text: entry_count - multimodal_count,
                multimodal: *multimodal_count,
            },
            total_images: *image_count,
            unique_tags: *tag_count,
            // Entries are indexed in the transaction that stores them.
            indexed_entries: *entry_count,
            database_bytes: u64::try_from(*database_bytes).unwrap_or(0),
            connections: self.connections.clone(),
            fts_engine: "tsvector",
            revision: *revision,
        }
    }
}
