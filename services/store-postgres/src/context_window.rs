//! The words of a reply's context window, in the column `context`. Other entries have none there ([`ContextWindow`]).
//!
//! The window holds only earlier entries of the thread, so storing an entry changes no other context. When a
//! text changes or is deleted, the contexts of the entries after it are rebuilt. The words are the lexemes with weight
//! C in `words` ([`crate::fts::Document`]), so the server builds contexts without sending texts. In a language that
//! only the server stems, entries have no contexts.

use context_model::Source;
use context_store::{ContextWindow, OwnerId};

use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Bind, Fragment};

/// The context of an entry in SQL: the lexemes of its context window. `$source` is the source of the entry, and
/// `$position` the condition on the entries `b` of the window: their thread, their position and their earliest time. The
/// bound values are the owner, those of `$position`, the maximum number of entries, which may be 0, and those of
/// `$source`.
///
/// The owner is a bound value and not a column of another table, because only then does Citus recognise that all rows
/// are on one server.
macro_rules! context_of {
    ($source:literal, $position:literal) => {
        concat!(
            "array_to_tsvector(ARRAY(SELECT unnest(tsvector_to_array(ts_filter(n.words, '{c}'))) FROM (SELECT words, \
             first_value(source) OVER (ORDER BY b.created_at DESC, b.id DESC) AS preceding \
             FROM context.entries AS b WHERE b.owner_id = ? AND ",
            $position,
            " ORDER BY b.created_at DESC, b.id DESC LIMIT ?) AS n WHERE n.preceding <> ",
            $source,
            "))"
        )
    };
}

/// The context of a new entry at an [`EntryPosition`]. [`EntryPosition::binds`] returns the values.
macro_rules! context_of_position {
    () => {
        $crate::context_window::context_of!(
            "?",
            "b.thread_id = ? AND (b.created_at, b.id) < (?, ?) AND b.created_at >= ?"
        )
    };
}

/// The context of the row `e`. The bound values are the owner, the maximum gap in microseconds and the number of
/// entries.
macro_rules! context_of_row {
    () => {
        context_of!(
            "e.source",
            "b.thread_id = e.thread_id AND (b.created_at, b.id) < (e.created_at, e.id) AND b.created_at >= e.created_at - ?"
        )
    };
}

pub(crate) use {context_of, context_of_position};

/// The position of an entry in its thread, and its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPosition<'e> {
    pub owner: &'e OwnerId,
    pub thread_id: &'e str,
    pub source: Source,
    pub created_at: i64,
    pub id: i64,
}

impl<'e> EntryPosition<'e> {
    /// The values for `context_of_position!`.
    pub fn binds(&self, context_window: ContextWindow) -> [Bind<'e>; 7] {
        let Self {
            owner,
            thread_id,
            source,
            created_at,
            id,
        } = *self;
        [
            Bind::text(owner.as_str()),
            Bind::text(thread_id),
            Bind::Int(created_at),
            Bind::Int(id),
            Bind::Int(created_at.saturating_sub(context_window.gap_micros())),
            Bind::Int(i64::from(context_window.entries)),
            Bind::text(source.as_str()),
        ]
    }
}

/// Positions of one owner's entries whose texts changed or were deleted, column by column.
#[derive(Debug, Default)]
pub(crate) struct EntryPositions {
    pub threads: Vec<String>,
    pub created_at: Vec<i64>,
    pub ids: Vec<i64>,
}

/// Rebuilds the contexts of the entries after these positions.
pub(crate) async fn rebuild_after(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    positions: &EntryPositions,
    context_window: ContextWindow,
) -> diesel::QueryResult<()> {
    if context_window.entries == 0 || positions.ids.is_empty() {
        return Ok(());
    }
    // Raw SQL for `unnest` and LATERAL.
    const SQL: &str = concat!(
        "UPDATE context.entries AS e SET context = ",
        context_of_row!(),
        " WHERE e.owner_id = ? AND e.id IN (SELECT f.id \
         FROM unnest(?::text[], ?::bigint[], ?::bigint[]) AS d(thread_id, created_at, id), \
         LATERAL (SELECT a.id FROM context.entries AS a WHERE a.owner_id = ? AND a.thread_id = d.thread_id \
         AND (a.created_at, a.id) > (d.created_at, d.id) ORDER BY a.created_at, a.id LIMIT ?) AS f)"
    );
    let of_owner = || Bind::text(owner.as_str());
    let entries = || Bind::Int(i64::from(context_window.entries));
    let binds = vec![
        of_owner(),
        Bind::Int(context_window.gap_micros()),
        entries(),
        of_owner(),
        Bind::texts(&positions.threads),
        Bind::ints(positions.created_at.iter().copied()),
        Bind::ints(positions.ids.iter().copied()),
        of_owner(),
        entries(),
    ];
    sql::execute(conn, Fragment::planned(SQL, binds)).await?;
    Ok(())
}

/// Rebuilds the contexts of these entries.
pub(crate) async fn rebuild(
    conn: &mut AsyncPgConnection,
    owner_id: &str,
    ids: Vec<i64>,
    context_window: ContextWindow,
) -> diesel::QueryResult<()> {
    // Raw SQL for the functions of tsvector.
    const SQL: &str = concat!(
        "UPDATE context.entries AS e SET context = ",
        context_of_row!(),
        " WHERE e.owner_id = ? AND e.id = ANY(?)"
    );
    let binds = vec![
        Bind::text(owner_id),
        Bind::Int(context_window.gap_micros()),
        Bind::Int(i64::from(context_window.entries)),
        Bind::text(owner_id),
        Bind::ints(ids),
    ];
    sql::execute(conn, Fragment::planned(SQL, binds)).await?;
    Ok(())
}
