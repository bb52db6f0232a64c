//! Finds entries without a summary, and stores summaries, which are generated after their entries are stored.

use async_trait::async_trait;
use context_model::{ThreadSet, Timestamp};
use context_store::{
    LateSummary, OwnerId, Read, Result, ScanCursor, SummaryStore, Unsummarized, UnsummarizedPage,
    WriteOptions,
};
use diesel::QueryableByName;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;

use crate::columns::LossyText;
use crate::filter::within;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::fixed;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::Reading;
use crate::schema::entries;
use crate::store::PostgresStore;
use crate::transaction::{Transaction, Writing};

/// Maximum number of entries checked in one read.
const MAX_CHECKED: i64 = 2_000;

#[async_trait]
impl SummaryStore for PostgresStore {
    async fn unsummarized(
        &self,
        after: Option<&ScanCursor>,
        min_chars: u32,
        max_chars: u32,
        limit: u32,
    ) -> Result<UnsummarizedPage> {
        let after = after
            .and_then(|cursor| cursor.as_str().split_once(' '))
            .and_then(|(id, owner)| Some((owner.to_owned(), id.parse().ok()?)));
        let page = Page {
            after: after.unwrap_or_default(),
            min_chars,
            max_chars,
            limit: limit.max(1),
        };
        self.read(&OwnerId::default(), Read::default(), page).await
    }

    async fn add_summary(&self, owner: &OwnerId, summary: LateSummary) -> Result<bool> {
        let options = WriteOptions {
            now: Timestamp(0),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        Ok(self.write(owner, options, Add(summary)).await?.outcome > 0)
    }

    async fn summarized_entries(&self, owner: &OwnerId, threads: Option<ThreadSet>) -> Result<i64> {
        self.read(owner, Read::default(), Count { threads }).await
    }
}

struct Page {
    /// The last entry of the previous page: its owner and its id.
    after: (String, i64),
    min_chars: u32,
    max_chars: u32,
    limit: u32,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = Text)]
    owner_id: String,
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = BigInt)]
    version: i64,
    /// Empty in the last row, which stands for the last entry that was checked.
    #[diesel(sql_type = Text)]
    text: LossyText,
    #[diesel(sql_type = BigInt)]
    checked: i64,
}

impl Reading for Page {
    type Outcome = UnsummarizedPage;

    fn empty(&self) -> UnsummarizedPage {
        UnsummarizedPage {
            entries: Vec::new(),
            next: None,
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        _owner: &OwnerId,
    ) -> std::result::Result<Option<(i64, UnsummarizedPage)>, Failure> {
        // Raw SQL for the CTEs: one statement sees one state, and returns only the texts of the page. `left` limits
        // how much of every other text is read.
        const SQL: &str = "WITH slice AS MATERIALIZED (SELECT owner_id, id, version, summary = '' AND char_length(left(text, ?::int)) >= ? AS waits \
                           FROM context.entries WHERE (owner_id, id) > (?, ?) ORDER BY owner_id, id LIMIT ?), \
                           page AS (SELECT owner_id, id, version FROM slice WHERE waits ORDER BY owner_id, id LIMIT ?), \
                           last AS (SELECT owner_id, id, version FROM slice ORDER BY owner_id DESC, id DESC LIMIT 1), \
                           shown AS (SELECT *, true AS waits FROM page UNION ALL SELECT *, false FROM last) \
                           SELECT s.owner_id, s.id, s.version, CASE WHEN s.waits THEN left(e.text, ?::int) ELSE '' END AS text, \
                           (SELECT count(*) FROM slice) AS checked FROM shown AS s \
                           JOIN context.entries AS e ON e.owner_id = s.owner_id AND e.id = s.id ORDER BY s.waits DESC, s.owner_id, s.id";
        let (owner_id, id) = &self.after;
        let binds = vec![
            Bind::Int(i64::from(self.min_chars)),
            Bind::Int(i64::from(self.min_chars)),
            Bind::text(owner_id),
            Bind::Int(*id),
            Bind::Int(MAX_CHECKED),
            Bind::Int(i64::from(self.limit)),
            Bind::Int(i64::from(self.max_chars)),
        ];
        let mut rows: Vec<Row> = sql::query(conn, Fragment::prepared(SQL, binds)).await?;
        let Some(last) = rows.pop() else {
            return Ok(Some((0, self.empty())));
        };
        let cursor = |row: &Row| ScanCursor::new(format!("{} {}", row.id, row.owner_id));
        let next = match rows.last() {
            Some(row) if rows.len() == self.limit as usize => Some(cursor(row)),
            _ => (last.checked == MAX_CHECKED).then(|| cursor(&last)),
        };
        let entry = |row: Row| Unsummarized {
            owner: OwnerId::new(row.owner_id),
            id: row.id,
            version: row.version,
            text: row.text.0,
        };
        Ok(Some((
            0,
            UnsummarizedPage {
                entries: rows.into_iter().map(entry).collect(),
                next,
            },
        )))
    }
}

struct Add(LateSummary);

impl Writing for Add {
    type Outcome = u64;

    async fn run(&self, transaction: &mut Transaction<'_>) -> std::result::Result<u64, Failure> {
        let LateSummary {
            id,
            version,
            summary,
        } = &self.0;
        let of_version = entries::table
            .find((transaction.owner.as_str(), id))
            .filter(entries::version.eq(version));
        let update = fixed!(diesel::update(of_version).set(entries::summary.eq(summary)));
        Ok(update.execute(transaction.conn).await? as u64)
    }
}

struct Count {
    /// Counts only entries of these threads.
    threads: Option<ThreadSet>,
}

impl Reading for Count {
    type Outcome = i64;

    fn empty(&self) -> i64 {
        0
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> std::result::Result<Option<(i64, i64)>, Failure> {
        // Raw SQL: with '' as a bound value, a plan for all values cannot use the partial index `entries_with_summary`.
        let owner = Bind::text(owner.as_str());
        let count = match &self.threads {
            None => Fragment::prepared(
                "SELECT count(*) FROM context.entries WHERE owner_id = ? AND summary <> ''",
                vec![owner],
            ),
            Some(threads) => fragment!(
                "SELECT count(*) FROM context.entries WHERE owner_id = ? AND summary <> '' AND {threads}",
                owner,
                within("thread_id", threads),
            ),
        };
        Ok(Some((0, sql::number(conn, count).await?)))
    }
}
