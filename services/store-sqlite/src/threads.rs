//! The rows of threads: counts, first and last times, and the newest entry.

use context_model::{Thread, ThreadNamePart, ThreadSet};
use context_store::rules::counts::EntryCounts;
use context_store::rules::thread::{ThreadEnds, ThreadState};
use context_store::{MAX_NAMED_THREADS, Page, StoreError, ThreadsPage, clock};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::failure::store_error;
use crate::filter::within;
use crate::owners::{Owner, id_of_row};
use crate::schema::{entries, threads};
use crate::sql::{self, Bind, Fragment};
use crate::statement::{self, Value};
use crate::transaction::Transaction;

/// The row of one thread.
#[derive(Debug, Queryable, QueryableByName, Selectable)]
#[diesel(table_name = threads)]
struct ThreadRow {
    #[diesel(deserialize_as = LossyText)]
    thread_id: String,
    entry_count: i64,
    user_count: i64,
    agent_count: i64,
    multimodal_count: i64,
    first_entry: i64,
    last_entry: i64,
    last_id: i64,
    #[diesel(deserialize_as = LossyText)]
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

/// Inserts a thread's row.
pub(crate) fn insert(
    conn: &mut SqliteConnection,
    owner: i64,
    thread: &ThreadState,
) -> QueryResult<()> {
    let ThreadState {
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
    } = thread;
    diesel::insert_into(threads::table)
        .values((
            threads::owner.eq(owner),
            threads::thread_id.eq(thread_id),
            threads::entry_count.eq(entry_count),
            threads::user_count.eq(user_count),
            threads::agent_count.eq(agent_count),
            threads::multimodal_count.eq(multimodal_count),
            threads::first_entry.eq(first_entry),
            threads::last_entry.eq(last_entry),
            threads::last_id.eq(last_id),
            threads::last_source.eq(last_source),
            threads::last_hash.eq(last_hash),
        ))
        .execute(conn)?;
    Ok(())
}

/// Updates an existing thread's row.
pub(crate) fn update(
    conn: &mut SqliteConnection,
    owner: i64,
    thread: &ThreadState,
) -> QueryResult<()> {
    use Value::{Int, Text};
    let ThreadState {
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
    } = thread;
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
            Int(owner),
            Text(thread_id),
        ],
    )?;
    Ok(())
}

/// The thread. `None` when it has no entries.
pub(crate) fn find(
    conn: &mut SqliteConnection,
    owner: i64,
    thread_id: &str,
) -> QueryResult<Option<ThreadState>> {
    let row = threads::table
        .find((owner, thread_id))
        .select(ThreadRow::as_select())
        .get_result(conn)
        .optional()?;
    Ok(row.map(ThreadState::from))
}

/// Updates a thread's row after some of its entries were deleted. If no entry is left, deletes the row and returns
/// true.
pub(crate) fn after_removal(
    transaction: &mut Transaction<'_>,
    thread_id: &str,
    removed: EntryCounts,
) -> QueryResult<bool> {
    let owner = transaction.owner.owner;
    let Some(mut thread) = find(transaction.conn, owner, thread_id)? else {
        return Ok(false);
    };
    thread.count(-removed);
    if thread.entry_count == 0 {
        diesel::delete(threads::table.find((owner, thread_id))).execute(transaction.conn)?;
        return Ok(true);
    }
    let last_row = transaction.owner.row_id(thread.last_id).unwrap_or_default();
    let plausible = clock::latest_plausible(transaction.now);
    let conn = &mut *transaction.conn;
    let ends = find_ends(conn, owner, thread_id, last_row, plausible)?;
    thread.set_ends(ends);
    update(conn, owner, &thread)?;
    Ok(false)
}

/// The first and the newest entry of a thread that has entries. The recorded newest entry stays the newest, even if
/// entries stored with a wrong clock have a later time. If it was deleted, the newest is the latest entry with a
/// plausible time, or else the latest one.
fn find_ends(
    conn: &mut SqliteConnection,
    owner: i64,
    thread_id: &str,
    last_row: i64,
    plausible: i64,
) -> QueryResult<ThreadEnds> {
    let of_thread = || {
        entries::table
            .filter(entries::owner.eq(owner))
            .filter(entries::thread_id.eq(thread_id))
    };
    let newest = || of_thread().order((entries::created_at.desc(), entries::row_id.desc()));
    let columns = (entries::row_id, entries::created_at, entries::source);
    let mut last: Option<(i64, i64, LossyText)> = entries::table
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
    let (row, last_entry, last_source) = match last {
        Some(last) => last,
        None => newest().select(columns).first(conn)?,
    };
    let text = |conn: &mut SqliteConnection| {
        entries::table
            .find(row)
            .select(entries::text)
            .get_result::<LossyText>(conn)
    };
    Ok(ThreadEnds {
        first_entry: of_thread()
            .select(entries::created_at)
            .order((entries::created_at.asc(), entries::row_id.asc()))
            .first(conn)?,
        last_entry,
        last_id: id_of_row(row),
        last_source: last_source.into(),
        last_text: match row == last_row {
            true => None,
            false => Some(text(conn)?.into()),
        },
    })
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
        threads: rows.into_iter().map(into_thread).collect(),
        total: owner.thread_count,
        revision: owner.revision,
    })
}

/// Like [`list`], but only threads of this set whose name contains this text, as far as they are given.
pub(crate) fn list_selected(
    conn: &mut SqliteConnection,
    owner: &Owner,
    threads: Option<&ThreadSet>,
    name: Option<&ThreadNamePart>,
    page: Page,
) -> Result<ThreadsPage, StoreError> {
    #[derive(QueryableByName)]
    struct Total {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        total: i64,
    }
    let of = |start: &str| {
        let mut statement = Fragment::new(format!("{start} FROM "));
        if name.is_some() {
            statement.push("(SELECT * FROM ");
        }
        statement
            .push("threads WHERE owner = ")
            .bind(Bind::Int(owner.owner));
        if let Some(threads) = threads {
            statement.push(" AND ").append(within("thread_id", threads));
        }
        if let Some(name) = name {
            // No index finds a part of a name, so the number of rows that are read is limited.
            statement
                .push(" ORDER BY last_entry DESC, last_id DESC LIMIT ")
                .bind(Bind::Int(MAX_NAMED_THREADS))
                .push(") WHERE instr(lower(thread_id), ")
                .bind(Bind::Text(name.as_str().to_owned()))
                .push(") > 0");
        }
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
        threads: rows.into_iter().map(into_thread).collect(),
        total,
        revision: owner.revision,
    })
}

fn into_thread(row: ThreadRow) -> Thread {
    ThreadState::from(row).into()
}
