//! The threads' rows: counts, first and last times, and the newest entry.

use context_model::{Thread, ThreadNamePart, ThreadSet, Timestamp};
use context_store::rules::thread::{ThreadEnds, ThreadState};
use context_store::{MAX_NAMED_THREADS, OwnerId, Page, ThreadsPage, clock};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::RunQueryDsl;

use crate::columns::LossyText;
use crate::filter::within;
use crate::pg::connection::AsyncPgConnection;
use crate::pg::dsl::{PipelineDsl as _, fixed};
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment, fragment};
use crate::read::Reading;
use crate::schema::{entries, threads};

/// One thread's row.
#[derive(Debug, Queryable, QueryableByName, Selectable)]
#[diesel(table_name = threads)]
struct ThreadRow {
    thread_id: String,
    entry_count: i64,
    user_count: i64,
    agent_count: i64,
    multimodal_count: i64,
    first_entry: i64,
    last_entry: i64,
    last_id: i64,
    last_source: String,
    last_hash: i64,
}

impl From<ThreadRow> for ThreadState {
    fn from(row: ThreadRow) -> Self {
        let ThreadRow {
            thread_id,
            entry_count,
            user_count,
            agent_count,
            multimodal_count,
            first_entry,
            last_entry,
            last_id,
            last_source,
            last_hash,
        } = row;
        Self {
            thread_id,
            entry_count,
            user_count,
            agent_count,
            multimodal_count,
            first_entry,
            last_entry,
            last_id,
            last_source,
            last_hash,
        }
    }
}

/// Locks these threads, which must be sorted, and returns their rows. Missing threads are created without entries.
pub(crate) async fn lock_or_create(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    thread_ids: &[String],
) -> Result<Vec<ThreadState>, Failure> {
    if thread_ids.len() == 1 {
        // Most writes go to one existing thread, for which the statement below would write a row version for nothing.
        let existing = lock(conn, owner, thread_ids).await?;
        if !existing.is_empty() {
            return Ok(existing);
        }
    }
    // Raw SQL for `unnest`: rows are inserted or locked in the given order.
    const SQL: &str = "INSERT INTO context.threads AS t (owner_id, thread_id, entry_count, user_count, agent_count, \
                       multimodal_count, first_entry, last_entry, last_id, last_source, last_hash) \
                       SELECT ?, n.thread_id, 0, 0, 0, 0, 0, 0, 0, '', 0 \
                       FROM unnest(?) WITH ORDINALITY AS n(thread_id, place) ORDER BY n.place \
                       ON CONFLICT (owner_id, thread_id) DO UPDATE SET entry_count = t.entry_count \
                       RETURNING thread_id, entry_count, user_count, agent_count, multimodal_count, \
                       first_entry, last_entry, last_id, last_source, last_hash";
    let binds = vec![Bind::text(owner.as_str()), Bind::texts(thread_ids)];
    let rows: Vec<ThreadRow> = sql::query(conn, Fragment::prepared(SQL, binds)).await?;
    Ok(rows.into_iter().map(ThreadState::from).collect())
}

/// Locks those of these threads that exist, in the order of their names, and returns their rows.
pub(crate) async fn lock(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    thread_ids: &[String],
) -> Result<Vec<ThreadState>, Failure> {
    let rows: Vec<ThreadRow> = if let [thread_id] = thread_ids {
        threads::table
            .find((owner.as_str(), thread_id))
            .select(ThreadRow::as_select())
            .for_update()
            .load(conn)
            .await?
    } else {
        let query = threads::table
            .filter(threads::owner_id.eq(owner.as_str()))
            .filter(threads::thread_id.eq_any(thread_ids))
            .order(threads::thread_id)
            .select(ThreadRow::as_select())
            .for_update();
        fixed!(query).load(conn).await?
    };
    Ok(rows.into_iter().map(ThreadState::from).collect())
}

/// The names of the threads of these entries. An id without an entry is skipped.
pub(crate) async fn of_entries(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    ids: Vec<i64>,
) -> Result<Vec<String>, Failure> {
    let thread_ids = entries::table
        .filter(entries::owner_id.eq(owner.as_str()))
        .filter(entries::id.eq_any(ids))
        .select(entries::thread_id)
        .distinct();
    Ok(fixed!(thread_ids).load(conn).await?)
}

/// Writes changed rows. Threads without entries are deleted.
pub(crate) async fn write(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    rows: &[&ThreadState],
) -> Result<(), Failure> {
    let (remaining, deleted): (Vec<&ThreadState>, Vec<&ThreadState>) =
        rows.iter().partition(|row| row.entry_count > 0);
    if let [row] = remaining.as_slice() {
        let update = diesel::update(threads::table.find((owner.as_str(), &row.thread_id))).set((
            threads::entry_count.eq(row.entry_count),
            threads::user_count.eq(row.user_count),
            threads::agent_count.eq(row.agent_count),
            threads::multimodal_count.eq(row.multimodal_count),
            threads::first_entry.eq(row.first_entry),
            threads::last_entry.eq(row.last_entry),
            threads::last_id.eq(row.last_id),
            threads::last_source.eq(&row.last_source),
            threads::last_hash.eq(row.last_hash),
        ));
        fixed!(update).send(conn).await?;
    } else if !remaining.is_empty() {
        let ints =
            |value: fn(&ThreadState) -> i64| Bind::ints(remaining.iter().map(|row| value(row)));
        // Raw SQL for `unnest`: one statement for any number of rows.
        let update = "UPDATE context.threads AS t SET entry_count = n.entry_count, user_count = n.user_count, agent_count = n.agent_count, \
                      multimodal_count = n.multimodal_count, first_entry = n.first_entry, last_entry = n.last_entry, last_id = n.last_id, \
                      last_source = n.last_source, last_hash = n.last_hash \
                      FROM unnest(?, ?, ?, ?, ?, ?, ?, ?, ?, ?) AS n(thread_id, entry_count, user_count, agent_count, multimodal_count, \
                      first_entry, last_entry, last_id, last_source, last_hash) \
                      WHERE t.owner_id = ? AND t.thread_id = n.thread_id";
        let binds = vec![
            Bind::Texts(
                remaining
                    .iter()
                    .map(|row| row.thread_id.as_str().into())
                    .collect(),
            ),
            ints(|row| row.entry_count),
            ints(|row| row.user_count),
            ints(|row| row.agent_count),
            ints(|row| row.multimodal_count),
            ints(|row| row.first_entry),
            ints(|row| row.last_entry),
            ints(|row| row.last_id),
            Bind::Texts(
                remaining
                    .iter()
                    .map(|row| row.last_source.as_str().into())
                    .collect(),
            ),
            ints(|row| row.last_hash),
            Bind::text(owner.as_str()),
        ];
        sql::send(conn, Fragment::prepared(update, binds)).await?;
    }
    if !deleted.is_empty() {
        let names: Vec<&str> = deleted.iter().map(|row| row.thread_id.as_str()).collect();
        let delete = diesel::delete(
            threads::table
                .filter(threads::owner_id.eq(owner.as_str()))
                .filter(threads::thread_id.eq_any(names)),
        );
        fixed!(delete).send(conn).await?;
    }
    Ok(())
}

#[derive(QueryableByName)]
struct Ends {
    #[diesel(sql_type = Text)]
    thread_id: String,
    #[diesel(sql_type = BigInt)]
    first_entry: i64,
    #[diesel(sql_type = BigInt)]
    last_entry: i64,
    #[diesel(sql_type = BigInt)]
    last_id: i64,
    #[diesel(sql_type = Text)]
    last_source: String,
    #[diesel(sql_type = Nullable<Text>)]
    last_text: Option<LossyText>,
}

/// Finds the first and newest entries of threads that lost entries, and sets them in `rows`.
pub(crate) async fn find_ends(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    now: Timestamp,
    rows: &mut [&mut ThreadState],
) -> Result<(), Failure> {
    // Raw SQL for `unnest` and LATERAL. If the newest entry still exists, it stays the newest, even if a wrong clock
    // gave others later times. The text is read only where another entry has become the newest.
    const SQL: &str = "SELECT n.thread_id, f.created_at AS first_entry, l.created_at AS last_entry, l.id AS last_id, \
                       l.source AS last_source, CASE WHEN l.id <> n.last_id THEN l.text END AS last_text \
                       FROM unnest(?, ?) AS n(thread_id, last_id) \
                       CROSS JOIN LATERAL (SELECT c.* FROM (\
                         (SELECT id, created_at, source, text, 1 AS choice FROM context.entries \
                          WHERE owner_id = ? AND id = n.last_id) \
                         UNION ALL (SELECT id, created_at, source, text, 2 AS choice FROM context.entries \
                          WHERE owner_id = ? AND thread_id = n.thread_id AND created_at <= ? ORDER BY created_at DESC, id DESC LIMIT 1) \
                         UNION ALL (SELECT id, created_at, source, text, 3 AS choice FROM context.entries \
                          WHERE owner_id = ? AND thread_id = n.thread_id ORDER BY created_at DESC, id DESC LIMIT 1)\
                         ) AS c ORDER BY c.choice LIMIT 1) AS l \
                       CROSS JOIN LATERAL (SELECT created_at FROM context.entries \
                         WHERE owner_id = ? AND thread_id = n.thread_id ORDER BY created_at, id LIMIT 1) AS f";
    let names: Vec<String> = rows.iter().map(|row| row.thread_id.clone()).collect();
    let last_ids = Bind::ints(rows.iter().map(|row| row.last_id));
    let owner = || Bind::text(owner.as_str());
    let plausible = Bind::Int(clock::latest_plausible(now));
    let binds = vec![
        Bind::texts(&names),
        last_ids,
        owner(),
        owner(),
        plausible,
        owner(),
        owner(),
    ];
    for ends in sql::query::<Ends>(conn, Fragment::prepared(SQL, binds)).await? {
        let Ends {
            thread_id,
            first_entry,
            last_entry,
            last_id,
            last_source,
            last_text,
        } = ends;
        if let Some(row) = rows.iter_mut().find(|row| row.thread_id == thread_id) {
            row.set_ends(ThreadEnds {
                first_entry,
                last_entry,
                last_id,
                last_source,
                last_text: last_text.map(|LossyText(text)| text),
            });
        }
    }
    Ok(())
}

/// A page of an owner's threads, latest activity first.
pub(crate) struct List {
    /// Lists only these threads.
    pub within: Option<ThreadSet>,
    /// Lists only threads whose name contains this.
    pub name: Option<ThreadNamePart>,
    pub page: Page,
}

#[derive(QueryableByName)]
struct Listed {
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = BigInt)]
    thread_count: i64,
    #[diesel(sql_type = Nullable<Text>)]
    thread_id: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    entry_count: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    user_count: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    agent_count: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    multimodal_count: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    first_entry: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    last_entry: Option<i64>,
    #[diesel(sql_type = Nullable<BigInt>)]
    last_id: Option<i64>,
}

impl Reading for List {
    type Outcome = ThreadsPage;

    fn empty(&self) -> ThreadsPage {
        ThreadsPage {
            threads: Vec::new(),
            total: 0,
            revision: 0,
        }
    }

    async fn read(
        &self,
        conn: &mut AsyncPgConnection,
        owner: &OwnerId,
    ) -> Result<Option<(i64, ThreadsPage)>, Failure> {
        // Raw SQL for LATERAL: one statement sees one state of the database, even for an owner without threads.
        let of_owner = || Bind::text(owner.as_str());
        let limit = Bind::Int(i64::from(self.page.limit));
        let offset = Bind::Int(i64::try_from(self.page.offset).unwrap_or(i64::MAX));
        let select = match (&self.within, &self.name) {
            // No index finds a part of a name, so the number of threads that are searched is limited.
            (reach, Some(name)) => fragment!(
                "WITH found AS MATERIALIZED (SELECT newest.* FROM \
                 (SELECT thread_id, entry_count, user_count, agent_count, multimodal_count, first_entry, last_entry, last_id \
                  FROM context.threads WHERE owner_id = ? AND {within} ORDER BY last_entry DESC, last_id DESC LIMIT ?) AS newest \
                 WHERE strpos(lower(newest.thread_id), ?) > 0) \
                 SELECT o.revision, (SELECT count(*) FROM found) AS thread_count, t.* \
                 FROM context.owners AS o LEFT JOIN LATERAL \
                 (SELECT * FROM found ORDER BY last_entry DESC, last_id DESC LIMIT ? OFFSET ?) AS t \
                 ON true WHERE o.owner_id = ? ORDER BY t.last_entry DESC, t.last_id DESC",
                of_owner(),
                match reach {
                    Some(threads) => within("thread_id", threads),
                    None => Fragment::new("true"),
                },
                Bind::Int(MAX_NAMED_THREADS),
                Bind::text(name.as_str()),
                limit,
                offset,
                of_owner(),
            ),
            (None, None) => Fragment::prepared(
                "SELECT o.revision, o.thread_count, t.* FROM context.owners AS o LEFT JOIN LATERAL \
                 (SELECT thread_id, entry_count, user_count, agent_count, multimodal_count, first_entry, last_entry, last_id \
                  FROM context.threads WHERE owner_id = ? ORDER BY last_entry DESC, last_id DESC LIMIT ? OFFSET ?) AS t \
                 ON true WHERE o.owner_id = ? ORDER BY t.last_entry DESC, t.last_id DESC",
                vec![of_owner(), limit, offset, of_owner()],
            ),
            (Some(threads), None) => fragment!(
                "SELECT o.revision, (SELECT count(*) FROM context.threads WHERE owner_id = ? AND {within}) AS thread_count, t.* \
                 FROM context.owners AS o LEFT JOIN LATERAL \
                 (SELECT thread_id, entry_count, user_count, agent_count, multimodal_count, first_entry, last_entry, last_id \
                  FROM context.threads WHERE owner_id = ? AND {within} ORDER BY last_entry DESC, last_id DESC LIMIT ? OFFSET ?) AS t \
                 ON true WHERE o.owner_id = ? ORDER BY t.last_entry DESC, t.last_id DESC",
                of_owner(),
                within("thread_id", threads),
                of_owner(),
                within("thread_id", threads),
                limit,
                offset,
                of_owner(),
            )
            .cached(),
        };
        let rows: Vec<Listed> = sql::query(conn, select).await?;
        let Some(first) = rows.as_slice().first() else {
            return Ok(None);
        };
        let (revision, total) = (first.revision, first.thread_count);
        let threads = rows.into_iter().filter_map(thread).collect();
        Ok(Some((
            revision,
            ThreadsPage {
                threads,
                total,
                revision,
            },
        )))
    }
}

/// Converts a row to a thread. `None` for the row that has only the owner's counts.
fn thread(row: Listed) -> Option<Thread> {
    let Listed {
        revision: _,
        thread_count: _,
        thread_id,
        entry_count,
        user_count,
        agent_count,
        multimodal_count,
        first_entry,
        last_entry,
        last_id,
    } = row;
    let state = ThreadState {
        thread_id: thread_id?,
        entry_count: entry_count?,
        user_count: user_count?,
        agent_count: agent_count?,
        multimodal_count: multimodal_count?,
        first_entry: first_entry?,
        last_entry: last_entry?,
        last_id: last_id?,
        // These columns are not read, because a list of threads does not show them.
        last_source: String::new(),
        last_hash: 0,
    };
    Some(state.into())
}
