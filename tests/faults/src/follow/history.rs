//! The changes that were committed, read from the database itself.

use std::collections::BTreeMap;
use std::path::Path;

use context_test_postgres::Client;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

use crate::audit::connect;

/// A committed change.
#[derive(Debug, Clone, PartialEq, QueryableByName)]
#[expect(missing_docs, reason = "the columns of the table")]
pub struct Row {
    #[diesel(sql_type = BigInt)]
    pub revision: i64,
    #[diesel(sql_type = BigInt)]
    pub at: i64,
    #[diesel(sql_type = Text)]
    pub operation: String,
    #[diesel(sql_type = Text)]
    pub entity: String,
    #[diesel(sql_type = Text)]
    pub entity_id: String,
    #[diesel(sql_type = Nullable<Text>)]
    pub thread_id: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    pub version: Option<i64>,
    /// Unknown after the change left the feed.
    #[diesel(sql_type = Nullable<Text>)]
    pub source: Option<String>,
    /// 1 at the end of a commit, else 0. Unknown after the change left the feed.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub commit_end: Option<i64>,
}

/// The columns of a change in the feed. The query adds the type of `commit_end`, whose name differs between the
/// databases.
const FEED_COLUMNS: &str =
    "revision, at, operation, entity, entity_id, thread_id, version, source, CAST(commit_end AS ";
/// The columns of a change in the audit log.
const AUDIT_COLUMNS: &str =
    "revision, at, operation, entity, entity_id, thread_id, version, NULL, NULL";

impl Row {
    /// Whether both are the same change. The columns that the audit log does not have are not compared.
    fn is_same(&self, other: &Self) -> bool {
        let without = |row: &Self| Self {
            source: None,
            commit_end: None,
            ..row.clone()
        };
        without(self) == without(other)
    }
}

/// The history of one state of the database: from its creation, or since it was replaced, until it is replaced.
#[derive(Debug, Clone, Default)]
pub struct Epoch {
    /// The changes, by revision.
    pub rows: BTreeMap<i64, Row>,
    /// The last revision that this state has in common with the one before it.
    pub common: i64,
    /// Whether changes left the feed.
    pub is_compacted: bool,
}

impl Epoch {
    fn add(&mut self, rows: Vec<Row>) {
        for row in rows {
            // An earlier reading of the feed has the columns that the audit log does not have.
            let earlier = self.rows.remove(&row.revision);
            let (source, commit_end) =
                earlier.map_or((None, None), |row| (row.source, row.commit_end));
            let row = Row {
                source: row.source.or(source),
                commit_end: row.commit_end.or(commit_end),
                ..row
            };
            self.rows.insert(row.revision, row);
        }
    }

    /// The last revision, or 0.
    #[must_use]
    pub fn last(&self) -> i64 {
        self.rows
            .last_key_value()
            .map_or(0, |(revision, _)| *revision)
    }
}

/// The states of the database, one after the other.
#[derive(Debug, Clone)]
pub struct History(pub Vec<Epoch>);

impl Default for History {
    fn default() -> Self {
        Self(vec![Epoch::default()])
    }
}

impl History {
    /// The present state.
    ///
    /// # Panics
    /// Never: there is one.
    pub fn current(&mut self) -> &mut Epoch {
        self.0.last_mut().expect("an epoch")
    }

    /// Begins another state, which has the changes up to this revision in common with the present one.
    pub fn begin(&mut self, common: i64) {
        let is_compacted = self.current().is_compacted;
        let mut rows = self.current().rows.clone();
        rows.retain(|revision, _| *revision <= common);
        self.0.push(Epoch {
            rows,
            common,
            is_compacted,
        });
    }

    /// The last revision that all states from `from` to `to` have in common.
    #[must_use]
    pub fn common(&self, from: usize, to: usize) -> i64 {
        let between = self.0[from + 1..=to].iter();
        between.map(|epoch| epoch.common).min().unwrap_or(i64::MAX)
    }

    /// Begins another state and reads its changes. Compares them with those of the present state to find what both have
    /// in common.
    ///
    /// # Panics
    /// When they cannot be read.
    pub async fn begin_in_postgres(&mut self, client: &Client) {
        let mut next = Epoch::default();
        next.add(rows_of_postgres(client).await);
        let before = self.current().rows.clone();
        let same = next
            .rows
            .values()
            .zip(before.values())
            .take_while(|(row, other)| row.is_same(other));
        let common = same.last().map_or(0, |(row, _)| row.revision);
        self.begin(common);
        self.current().add(next.rows.into_values().collect());
    }

    /// Reads the changes that a file has now.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read_file(&mut self, database: &Path) {
        self.current().add(rows_of_file(database));
    }

    /// Reads the changes that a PostgreSQL database has now.
    ///
    /// # Panics
    /// When they cannot be read.
    pub async fn read_postgres(&mut self, client: &Client) {
        self.current().add(rows_of_postgres(client).await);
    }
}

async fn rows_of_postgres(client: &Client) -> Vec<Row> {
    let query = format!(
        "SELECT {FEED_COLUMNS}integer)::bigint FROM context.changes WHERE owner_id = 'default' \
         UNION ALL SELECT {AUDIT_COLUMNS} FROM context.audited_changes WHERE owner_id = 'default'"
    );
    let found = client
        .query(&query, &[])
        .await
        .expect("the changes are read");
    let rows = found.iter().map(|row| Row {
        revision: row.get(0),
        at: row.get(1),
        operation: row.get(2),
        entity: row.get(3),
        entity_id: row.get(4),
        thread_id: row.get(5),
        version: row.get(6),
        source: row.get(7),
        commit_end: row.get(8),
    });
    rows.collect()
}

/// The last revision that a file has.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn last_of_file(database: &Path) -> i64 {
    let revisions = rows_of_file(database).into_iter().map(|row| row.revision);
    revisions.max().unwrap_or(0)
}

fn rows_of_file(database: &Path) -> Vec<Row> {
    let query = format!(
        "SELECT {FEED_COLUMNS}INTEGER) AS commit_end FROM changes WHERE owner = (SELECT owner FROM owners WHERE owner_id = 'default') \
         UNION ALL SELECT {AUDIT_COLUMNS} FROM audited_changes WHERE owner = (SELECT owner FROM owners WHERE owner_id = 'default')"
    );
    let rows = diesel::sql_query(query).load(&mut connect(database));
    rows.expect("the changes are read")
}
