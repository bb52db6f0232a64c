//! Finds the rows of a filter, newest first, without reading the whole table.
//!
//! SQLite's planner would choose between an index and the newest-first scan by statistics that a fresh database does
//! not have, and it cannot know how many rows a bound value selects. Therefore each index that the filter can use is
//! read first, up to a bound. If one ends before the bound, only its rows are candidates. If none does, matches are
//! frequent, and reading newest first until the page is full finds them soon. That scan uses the index that reached
//! furthest back in time for the same number of rows, because it skips the most entries.

use context_model::{ContentType, Filter, MetadataPath};
use context_store::Page;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel::sqlite::SqliteConnection;

use super::condition::IndexTerm;
use super::index::index_name;
use super::{compile, condition, one_of, tag_list};
use crate::sql::{Bind, Fragment, query};

/// The rows of one page and the statement that found them.
pub(crate) struct Selected {
    /// The rows, newest first.
    pub row_ids: Vec<i64>,
    /// The main statement, for `explain_query`.
    pub statement: Fragment,
}

/// The result of reading the indexes before the filter is evaluated.
pub(crate) enum Candidates {
    /// Only these rows can satisfy the filter.
    All(Vec<i64>),
    /// There are more rows than the bound, or no index can be used.
    Many {
        /// The index that returns rows newest first and has the fewest rows per time span.
        rarest: Option<String>,
    },
}

/// A query on one index.
pub(super) struct Probe {
    /// The rows that may satisfy the filter.
    pub statement: Fragment,
    /// The name of the index, if it returns rows newest first.
    newest_first: Option<String>,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
}

/// The rows of an owner that satisfy the filter, newest first (created_at, then row_id, descending).
///
/// `indexed` are the fields that have an index (see [`index_statement`](super::index_statement)). `entries` is the
/// number of the owner's entries, which determines how many rows of an index are read.
///
/// # Errors
/// Database errors.
pub(crate) fn select(
    conn: &mut SqliteConnection,
    filter: &Filter,
    owner: i64,
    page: Page,
    indexed: &[MetadataPath],
    entries: i64,
) -> QueryResult<Selected> {
    let access = access(conn, filter, owner, page, indexed, entries)?;
    let mut statement = Fragment::new("SELECT entries.row_id AS row_id FROM entries ");
    match access {
        Access::Rows(rows) => {
            statement.push("NOT INDEXED WHERE entries.row_id IN (SELECT value FROM json_each(");
            statement.bind(Bind::Text(json_list(&rows))).push(")) AND ");
        }
        Access::Index(name) => _ = statement.push(&format!("INDEXED BY \"{name}\" WHERE ")),
    }
    statement.append(compile(filter, owner));
    statement
        .push(" ORDER BY entries.created_at DESC, entries.row_id DESC LIMIT ")
        .bind(Bind::Int(i64::from(page.limit)));
    statement
        .push(" OFFSET ")
        .bind(Bind::Int(i64::try_from(page.offset).unwrap_or(i64::MAX)));
    let row_ids = query::<Row>(conn, &statement)?
        .into_iter()
        .map(|row| row.row_id)
        .collect();
    Ok(Selected { row_ids, statement })
}

/// Reads at most one row more than `bound` of each index that the filter can use, and returns the shortest complete
/// result.
///
/// # Errors
/// Database errors.
pub(crate) fn candidates(
    conn: &mut SqliteConnection,
    filter: &Filter,
    owner: i64,
    indexed: &[MetadataPath],
    bound: usize,
) -> QueryResult<Candidates> {
    read_probes(conn, probes(filter, owner, indexed), bound)
}

fn read_probes(
    conn: &mut SqliteConnection,
    probes: Vec<Probe>,
    bound: usize,
) -> QueryResult<Candidates> {
    let mut best: Option<Vec<i64>> = None;
    let mut rarest: Option<(i64, String)> = None;
    for Probe {
        statement,
        newest_first,
    } in probes
    {
        // A result that is not shorter is useless.
        let bound = best.as_ref().map_or(bound, Vec::len);
        let rows = run(conn, statement, newest_first.is_some(), bound)?;
        if rows.len() <= bound {
            let done = rows.is_empty();
            best = Some(rows);
            if done {
                break;
            }
        } else if let (Some(index), Some(&oldest)) = (newest_first, rows.last()) {
            // The row ids of an owner ascend with time.
            rarest = rarest
                .filter(|(reached, _)| *reached <= oldest)
                .or(Some((oldest, index)));
        }
    }
    Ok(best.map_or(
        Candidates::Many {
            rarest: rarest.map(|(_, index)| index),
        },
        Candidates::All,
    ))
}

/// Whether one index decides the filter: if [`candidates`] returns all rows, they are those that satisfy it.
pub(crate) fn index_decides(filter: &Filter, indexed: &[MetadataPath]) -> bool {
    let Filter {
        within,
        thread_id: None,
        source: None,
        tags: None,
        content_type: None,
        conditions,
        // All indexes contain the time.
        created_from: _,
        created_to: _,
    } = filter
    else {
        return false;
    };
    match (within, conditions.as_slice()) {
        (Some(_), []) => true,
        (None, [condition]) => {
            indexed.contains(&condition.path) && condition::is_decided_by_index(condition)
        }
        _ => false,
    }
}

/// Whether an index has exactly the rows of the filter, newest first, so that a page is read without reading others.
pub(crate) const fn is_direct(filter: &Filter) -> bool {
    let Filter {
        within,
        thread_id: _,
        source,
        tags,
        content_type,
        conditions,
        // All indexes contain the time.
        created_from: _,
        created_to: _,
    } = filter;
    within.is_none()
        && source.is_none()
        && tags.is_none()
        && content_type.is_none()
        && conditions.is_empty()
}

/// How the rows of a filter are found.
enum Access {
    /// Check only these rows.
    Rows(Vec<i64>),
    /// Scan this index, which returns rows newest first.
    Index(String),
}

fn access(
    conn: &mut SqliteConnection,
    filter: &Filter,
    owner: i64,
    page: Page,
    indexed: &[MetadataPath],
    entries: i64,
) -> QueryResult<Access> {
    let mut selected = probes(filter, owner, indexed);
    let parts = filter.conditions.len()
        + usize::from(filter.thread_id.is_some())
        + usize::from(filter.content_type == Some(ContentType::Multimodal));
    let index = match selected.as_mut_slice() {
        // No other index could skip more, and this one returns its rows newest first. The rest of the filter, such as
        // its source, is checked row by row.
        [
            Probe {
                newest_first: Some(index),
                ..
            },
        ] if parts == 1 => Some(std::mem::take(index)),
        _ => match read_probes(conn, selected, probe_bound(page, entries))? {
            Candidates::All(rows) => return Ok(Access::Rows(rows)),
            Candidates::Many { rarest } => rarest,
        },
    };
    Ok(Access::Index(
        index.unwrap_or_else(|| "entries_by_time".to_owned()),
    ))
}

/// The number of rows up to which an index is read. With `n` entries and a page that ends at rank `p`, a filter that
/// √(n·p) rows satisfy fills the page after reading about √(n·p) rows newest first. At the bound both ways cost the
/// same.
fn probe_bound(page: Page, entries: i64) -> usize {
    let wanted = u64::from(page.limit).saturating_add(page.offset).max(1);
    let rows = u64::try_from(entries)
        .unwrap_or(0)
        .saturating_mul(wanted)
        .isqrt();
    usize::try_from(rows.clamp(200, 20_000)).unwrap_or(20_000)
}

/// One probe for each index that can serve part of the filter.
pub(super) fn probes(filter: &Filter, owner: i64, indexed: &[MetadataPath]) -> Vec<Probe> {
    let mut probes = Vec::new();
    if let (Some(threads), None) = (&filter.within, &filter.thread_id) {
        let mut probe = Fragment::default();
        // The patterns do not overlap.
        for (i, pattern) in threads.patterns().iter().enumerate() {
            probe.push(if i == 0 { "" } else { " UNION ALL " });
            probe
                .push("SELECT row_id FROM entries INDEXED BY entries_by_thread WHERE owner = ")
                .bind(Bind::Int(owner));
            probe.push(" AND ").append(one_of("thread_id", pattern));
            probe = within_dates(probe, filter);
        }
        probes.push(Probe {
            statement: probe,
            newest_first: None,
        });
    }
    if let Some(thread_id) = &filter.thread_id {
        let mut term = Fragment::new("thread_id = ");
        term.bind(Bind::Text(thread_id.as_str().to_owned()));
        probes.push(through(
            "entries_by_thread".to_owned(),
            true,
            term,
            owner,
            filter,
        ));
    }
    if filter.content_type == Some(ContentType::Multimodal) {
        probes.push(through(
            "entries_with_images".to_owned(),
            true,
            Fragment::new("image_count > 0"),
            owner,
            filter,
        ));
    }
    if let Some(tags) = &filter.tags {
        let mut probe = Fragment::new("SELECT DISTINCT row_id FROM entry_tags WHERE owner = ");
        probe
            .bind(Bind::Int(owner))
            .push(" AND tag IN (")
            .append(tag_list(tags))
            .push(")");
        probes.push(Probe {
            statement: probe,
            newest_first: None,
        });
    }
    for condition in filter
        .conditions
        .iter()
        .filter(|condition| indexed.contains(&condition.path))
    {
        if let Some(IndexTerm { term, ordered }) = condition::index_term(condition) {
            probes.push(through(
                index_name(&condition.path),
                ordered,
                term,
                owner,
                filter,
            ));
        }
    }
    probes
}

/// A query for the rows that the term selects from an index.
fn through(
    index: String,
    newest_first: bool,
    term: Fragment,
    owner: i64,
    filter: &Filter,
) -> Probe {
    let mut statement = Fragment::new(format!(
        "SELECT row_id FROM entries INDEXED BY \"{index}\" WHERE owner = "
    ));
    statement.bind(Bind::Int(owner)).push(" AND ").append(term);
    Probe {
        statement: within_dates(statement, filter),
        newest_first: newest_first.then_some(index),
    }
}

/// All these indexes also contain `created_at`.
fn within_dates(mut probe: Fragment, filter: &Filter) -> Fragment {
    if let Some(from) = filter.created_from {
        probe
            .push(" AND created_at >= ")
            .bind(Bind::Int(from.micros()));
    }
    if let Some(to) = filter.created_to {
        probe
            .push(" AND created_at <= ")
            .bind(Bind::Int(to.micros()));
    }
    probe
}

/// Reads at most one row more than the bound.
fn run(
    conn: &mut SqliteConnection,
    mut probe: Fragment,
    newest_first: bool,
    bound: usize,
) -> QueryResult<Vec<i64>> {
    if newest_first {
        probe.push(" ORDER BY created_at DESC, row_id DESC");
    }
    probe.push(" LIMIT ").bind(Bind::Int(
        i64::try_from(bound).unwrap_or(i64::MAX).saturating_add(1),
    ));
    Ok(query::<Row>(conn, &probe)?
        .into_iter()
        .map(|row| row.row_id)
        .collect())
}

/// Row ids as JSON, so that any number of them is one bound value.
pub(crate) fn json_list(rows: &[i64]) -> String {
    let mut list = String::with_capacity(rows.len() * 20 + 2);
    list.push('[');
    for (i, row) in rows.iter().enumerate() {
        if i > 0 {
            list.push(',');
        }
        list.push_str(&row.to_string());
    }
    list.push(']');
    list
}
