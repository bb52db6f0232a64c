//! The threads' rows: counts, first and last times, and the newest entry.

use context_model::{Source, SourceCounts, Thread, ThreadSet, Timestamp};
use context_store::{Page, StoreError, ThreadsPage, clock};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use sha2::{Digest as _, Sha256};

use crate::failure::store_error;
use crate::filter::within;
use crate::owners::{Owner, id_of_row};
use crate::schema::{entries, threads};
use crate::sql::{self, Bind, Fragment};
use crate::statement::{self, Value};
use crate::transaction::Transaction;

/// One thread's row.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, QueryableByName, Selectable, Insertable)]
#[diesel(table_name = threads)]
pub(crate) struct ThreadRow {
    pub owner: i64,
    pub thread_id: String,
    pub entry_count: i64,
    pub user_count: i64,
    pub agent_count: i64,
    pub multimodal_count: i64,
    pub first_entry: i64,
    pub last_entry: i64,
    pub last_id: i64,
    pub last_source: String,
    pub last_hash: i64,
}

/// What decides whether a text is the same as the newest one, before the texts are compared.
pub(crate) fn text_hash(text: &str) -> i64 {
    let digest = Sha256::digest(text.as_bytes());
    i64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

/// What leaves a thread with one deletion.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    pub user: i64,
    pub agent: i64,
    pub multimodal: i64,
}

impl Removed {
    pub fn add(&mut self, source: Source, multimodal: bool) {
        match source {
            Source::User => self.user += 1,
            Source::Agent => self.agent += 1,
        }
        self.multimodal += i64::from(multimodal);
    }
}

impl ThreadRow {
    /// The row after this newest entry, made from the row before it.
    pub fn with_newest(before: Option<Self>, owner: i64, thread_id: &str, newest: &Newest) -> Self {
        let mut row = before.unwrap_or_else(|| Self {
            owner,
            thread_id: thread_id.to_owned(),
            entry_count: 0,
            user_count: 0,
            agent_count: 0,
            multimodal_count: 0,
            first_entry: newest.created_at,
            last_entry: 0,
            last_id: 0,
            last_source: String::new(),
            last_hash: 0,
        });
        row.entry_count += 1;
        match newest.source {
            Source::User => row.user_count += 1,
            Source::Agent => row.agent_count += 1,
        }
        row.multimodal_count += i64::from(newest.multimodal);
        row.first_entry = row.first_entry.min(newest.created_at);
        row.last_entry = newest.created_at;
        row.last_id = newest.id;
        newest.source.as_str().clone_into(&mut row.last_source);
        row.last_hash = newest.hash;
        row
    }

    pub fn insert(&self, conn: &mut SqliteConnection) -> QueryResult<()> {
        diesel::insert_into(threads::table)
            .values(self)
            .execute(conn)?;
        Ok(())
    }

    pub fn update(&self, conn: &mut SqliteConnection) -> QueryResult<()> {
        use Value::{Int, Text};
        let Self {
            owner,
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
        } = self;
        statement::execute(
            conn,
            "UPDATE threads SET entry_count = ?, user_count = ?, agent_count = ?, multimodal_count = ?, first_entry = ?, \
             last_entry = ?, last_id = ?, last_source = ?, last_hash = ? WHERE owner = ? AND thread_id = ?",
            &[
                Int(*entry_count),
                Int(*user_count),
                Int(*agent_count),
                Int(*multimodal_count),
                Int(*first_entry),
                Int(*last_entry),
                Int(*last_id),
                Text(last_source),
                Int(*last_hash),
                Int(*owner),
                Text(thread_id),
            ],
        )?;
        Ok(())
    }
}

/// A thread's newest entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Newest {
    pub id: i64,
    pub source: Source,
    pub multimodal: bool,
    pub created_at: i64,
    pub hash: i64,
}

pub(crate) fn find(
    conn: &mut SqliteConnection,
    owner: i64,
    thread_id: &str,
) -> QueryResult<Option<ThreadRow>> {
    threads::table
        .find((owner, thread_id))
        .select(ThreadRow::as_select())
        .get_result(conn)
        .optional()
}

/// Brings a thread's row in line with its entries after some were deleted. Gives whether the thread is gone.
pub(crate) fn after_removal(
    transaction: &mut Transaction<'_>,
    thread_id: &str,
    removed: Removed,
) -> QueryResult<bool> {
    let owner = transaction.owner.owner;
    let Some(mut row) = find(transaction.conn, owner, thread_id)? else {
        return Ok(false);
    };
    let last_row = transaction.owner.row_id(row.last_id).unwrap_or_default();
    let plausible = clock::latest_plausible(transaction.now);
    let conn = &mut *transaction.conn;
    let of_thread = || {
        entries::table
            .filter(entries::owner.eq(owner))
            .filter(entries::thread_id.eq(thread_id))
    };
    let newest = || of_thread().order((entries::created_at.desc(), entries::row_id.desc()));
    let columns = (entries::row_id, entries::created_at, entries::source);
    // The newest entry stays the newest, whatever a wrong clock said when others were stored.
    let mut last: Option<(i64, i64, String)> = entries::table
        .find(last_row)
        .select(columns)
        .first(conn)
        .optional()?;
    if last.is_none() {
        last = newest()
            .filter(entries::created_at.le(plausible))
            .select(columns)
            .first(conn)
            .optional()?;
    }
    if last.is_none() {
        last = newest().select(columns).first(conn).optional()?;
    }
    let Some((last_row, last_entry, last_source)) = last else {
        diesel::delete(threads::table.find((owner, thread_id))).execute(conn)?;
        return Ok(true);
    };
    row.user_count -= removed.user;
    row.agent_count -= removed.agent;
    row.entry_count -= removed.user + removed.agent;
    row.multimodal_count -= removed.multimodal;
    row.first_entry = of_thread()
        .select(entries::created_at)
        .order((entries::created_at.asc(), entries::row_id.asc()))
        .first(conn)?;
    if row.last_id != id_of_row(last_row) {
        let text: String = entries::table
            .find(last_row)
            .select(entries::text)
            .get_result(conn)?;
        row.last_hash = text_hash(&text);
    }
    row.last_entry = last_entry;
    row.last_id = id_of_row(last_row);
    row.last_source = last_source;
    row.update(conn)?;
    Ok(false)
}

/// A page of an owner's threads, latest activity first.
pub(crate) fn list(
    conn: &mut SqliteConnection,
    owner: &Owner,
    page: Page,
) -> Result<ThreadsPage, StoreError> {
    let rows = threads::table
        .filter(threads::owner.eq(owner.owner))
        .order((threads::last_entry.desc(), threads::last_id.desc()))
        .limit(i64::from(page.limit))
        .offset(i64::try_from(page.offset).unwrap_or(i64::MAX))
        .select(ThreadRow::as_select())
        .load(conn)
        .map_err(store_error)?;
    Ok(ThreadsPage {
        threads: rows.into_iter().map(Thread::from).collect(),
        total: owner.thread_count,
        revision: owner.revision,
    })
}

/// The same, of these threads alone.
pub(crate) fn list_within(
    conn: &mut SqliteConnection,
    owner: &Owner,
    threads: &ThreadSet,
    page: Page,
) -> Result<ThreadsPage, StoreError> {
    #[derive(QueryableByName)]
    struct Total {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        total: i64,
    }
    let of = |start: &str| {
        let mut statement = Fragment::new(format!("{start} FROM threads WHERE owner = "));
        statement
            .bind(Bind::Int(owner.owner))
            .push(" AND ")
            .append(within("thread_id", threads));
        statement
    };
    let total = sql::query::<Total>(conn, &of("SELECT count(*) AS total")).map_err(store_error)?;
    let mut select = of("SELECT *");
    select
        .push(" ORDER BY last_entry DESC, last_id DESC LIMIT ")
        .bind(Bind::Int(i64::from(page.limit)));
    select
        .push(" OFFSET ")
        .bind(Bind::Int(i64::try_from(page.offset).unwrap_or(i64::MAX)));
    let rows: Vec<ThreadRow> = sql::query(conn, &select).map_err(store_error)?;
    let total = total.first().map_or(0, |row| row.total);
    Ok(ThreadsPage {
        threads: rows.into_iter().map(Thread::from).collect(),
        total,
        revision: owner.revision,
    })
}

impl From<ThreadRow> for Thread {
    fn from(row: ThreadRow) -> Self {
        let ThreadRow {
            owner: _,
            thread_id,
            entry_count,
            user_count,
            agent_count,
            multimodal_count,
            first_entry,
            last_entry,
            last_id,
            last_source: _,
            last_hash: _,
        } = row;
        Self {
            thread_id,
            entry_count,
            source_types: i64::from(user_count > 0) + i64::from(agent_count > 0),
            sources: SourceCounts {
                user: user_count,
                agent: agent_count,
            },
            multimodal_count,
            first_entry: Timestamp(first_entry),
            last_entry: Timestamp(last_entry),
            last_id,
        }
    }
}
