//! Ranked search.
//!
//! FTS5 scores a match in 1 to 7 µs, so ranking every match of a common word in a large store takes seconds. In that
//! case only the newest matches up to a cap are ranked, and the result says so.
//!
//! If a database index shows that only few rows can satisfy the filter, these are the candidates, and only they are
//! ranked. How they are searched depends on the query:
//!
//! - If any one of its phrases is enough for a match, and the filter has no part for the scope column, one pass over
//!   the rows of each phrase counts how rare the phrase is and also finds the candidates that have it (`match_counts`
//!   in `bm25.rs`). Then only candidates that can be on the page are scored (`phrase_counts.rs`).
//! - Otherwise FTS5 matches the whole expression, and each match that is a candidate is scored.

use context_model::{Filter, MetadataPath};
use context_store::{DocumentKind, FtsSearch, Page};
use context_text::Query;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double};
use diesel::sqlite::SqliteConnection;

use super::phrase_counts::PhraseCounts;
use super::{expression, scope};
use crate::cancel;
use crate::collection::Collection;
use crate::filter::{Candidates, candidates, compile, index_decides, json_list};
use crate::sql::{Bind, Fragment, query};

/// When a database index shows that the filter leaves at most this many rows, only matches among them are scored. With
/// more rows, checking each match's row until the cap is reached is not more expensive.
const MAX_CANDIDATES: usize = 20_000;

/// One page of a ranked search.
#[derive(Debug)]
pub(crate) struct Found {
    /// The rows with their scores, best first. Higher is better.
    pub rows: Vec<(i64, f64)>,
    /// Whether the fallback was used.
    pub used_fallback: bool,
    /// The cap, if more entries matched than were ranked.
    pub capped_at: Option<u32>,
    /// The main statement, for `explain_query`.
    pub statement: Fragment,
}

#[derive(Clone, Copy, QueryableByName)]
struct Match {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
    #[diesel(sql_type = Double)]
    score: f64,
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    row_id: i64,
}

/// The rows that match the query and satisfy the filter, by score, then row, descending. Must be called inside a
/// transaction, because it runs several statements.
///
/// # Errors
/// Database errors.
pub(crate) fn search(
    conn: &mut SqliteConnection,
    search: &FtsSearch,
    filter: &Filter,
    collection: Collection,
    page: Page,
    indexed: &[MetadataPath],
) -> QueryResult<Found> {
    let Filter {
        within,
        thread_id: _,
        source: _,
        tags: _,
        content_type: _,
        conditions,
        created_from,
        created_to,
    } = filter;
    // The part of the filter that the scope column does not serve.
    let beyond_scope = Filter {
        within: within.clone(),
        conditions: conditions.clone(),
        created_from: *created_from,
        created_to: *created_to,
        ..Filter::default()
    };
    // Only entries have indexes of metadata.
    let has_indexes = collection.kind == DocumentKind::Context;
    let candidates = if !has_indexes || (conditions.is_empty() && within.is_none()) {
        Candidates::Many { rarest: None }
    } else {
        candidates(
            conn,
            &beyond_scope,
            collection.owner,
            indexed,
            MAX_CANDIDATES,
        )?
    };
    let is_decided = has_indexes && index_decides(&beyond_scope, indexed);
    let ranking = Ranking {
        filter,
        collection,
        cap: search.ranking_cap,
        context_weight: search.context_weight,
        is_beyond_scope: beyond_scope.count() > 0,
        is_decided,
        candidates,
        page,
    };
    let mut found = ranking.matches(conn, &search.query.query)?;
    let mut used_fallback = false;
    if let Some(fallback) = &search.query.fallback
        && !ranking.has_any(conn, &found)?
    {
        found = ranking.matches(conn, fallback)?;
        used_fallback = true;
    }
    let rows = ranking.page(conn, &found, page)?;
    Ok(Found {
        rows,
        used_fallback,
        capped_at: found.capped.then_some(search.ranking_cap),
        statement: found.statement,
    })
}

struct Ranking<'s> {
    filter: &'s Filter,
    collection: Collection,
    cap: u32,
    context_weight: f64,
    /// Whether the filter has a part that the scope column does not serve.
    is_beyond_scope: bool,
    /// Whether [`Candidates::All`] are exactly the rows that satisfy this part.
    is_decided: bool,
    /// The only rows that can satisfy the filter, if a database index shows that they are few.
    candidates: Candidates,
    page: Page,
}

/// The newest matches with their scores, up to the cap.
struct Matches {
    /// Best first. If `are_checked`, matches after the requested page may be missing.
    matches: Vec<Match>,
    /// Whether more rows match.
    capped: bool,
    /// Whether all of them satisfy the filter. Otherwise the page checks them.
    are_checked: bool,
    statement: Fragment,
}

impl Ranking<'_> {
    /// The matches of a query.
    fn matches(&self, conn: &mut SqliteConnection, query_tree: &Query) -> QueryResult<Matches> {
        let scope = scope::expression(self.filter);
        if let Candidates::All(rows) = &self.candidates
            && scope.is_empty()
            && let Some(phrases) = any_of(query_tree)
        {
            return self.matches_of_any(conn, &phrases, rows);
        }
        let cap = usize::try_from(self.cap).unwrap_or(usize::MAX);
        // Rows that the filter excludes must not use up the cap. They cannot if there are not more candidates than the
        // cap allows, or if all candidates satisfy this part of the filter. Then only rows of the page are checked.
        let is_cap_safe = match &self.candidates {
            Candidates::All(rows) => self.is_decided || rows.len() <= cap,
            Candidates::Many { .. } => false,
        };
        let joined = self.is_beyond_scope && !is_cap_safe;
        let fts = self.collection.fts_table();
        let phrases = i64::try_from(query_tree.phrases()).unwrap_or(i64::MAX);
        let mut statement = Fragment::new(format!("SELECT match_score({fts}, "));
        statement
            .bind(Bind::Int(phrases))
            .push(", ")
            .bind(Bind::Float(self.context_weight))
            .push(&format!(") AS score, {fts}.rowid AS row_id FROM {fts}"));
        if joined {
            statement.push(&format!(
                " CROSS JOIN {} ON entries.row_id = {fts}.rowid",
                self.collection.rows()
            ));
        }
        let mut expression = expression::expression(query_tree, self.context_weight > 0.0);
        expression.push_str(&scope);
        statement
            .push(&format!(" WHERE {fts} MATCH "))
            .bind(Bind::Text(expression));
        if let Candidates::All(rows) = &self.candidates {
            // The plus prevents SQLite from running the whole match once for each row.
            statement
                .push(&format!(
                    " AND +{fts}.rowid IN (SELECT value FROM json_each("
                ))
                .bind(Bind::Text(json_list(rows)))
                .push("))");
        }
        if joined {
            statement
                .push(" AND ")
                .append(compile(self.filter, self.collection.owner));
        }
        statement
            .push(&format!(" ORDER BY {fts}.rowid DESC LIMIT "))
            .bind(Bind::Int(i64::from(self.cap) + 1));
        let mut matches = match &self.candidates {
            Candidates::All(rows) if rows.is_empty() => Vec::new(),
            _ => query::<Match>(conn, &statement)?,
        };
        let capped = matches.len() > cap;
        matches.truncate(cap);
        Ok(Matches {
            matches: best_first(matches),
            capped,
            are_checked: joined || self.filter.count() == 0,
            statement,
        })
    }

    /// The candidates with any of these phrases. The filter must have no part for the scope column.
    fn matches_of_any(
        &self,
        conn: &mut SqliteConnection,
        phrases: &[&Query],
        rows: &[i64],
    ) -> QueryResult<Matches> {
        let expressions = phrases
            .iter()
            .map(|phrase| expression::expression(phrase, self.context_weight > 0.0));
        let (counts, statement) = PhraseCounts::read(conn, self.collection, rows, expressions)?;
        let mut newest_first = counts.matching();
        let cap = usize::try_from(self.cap).unwrap_or(usize::MAX);
        let mut are_checked = self.is_decided;
        if newest_first.len() > cap && !are_checked {
            let row_id = |place: &usize| counts.row_id(*place);
            newest_first = self.satisfying(conn, &newest_first, row_id, cap.saturating_add(1))?;
            are_checked = true;
        }
        let capped = newest_first.len() > cap;
        newest_first.truncate(cap);
        // Any match may be on the page if the page skips those that do not satisfy the filter.
        let wanted = if are_checked {
            let end = self.page.offset.saturating_add(self.page.limit.into());
            usize::try_from(end).unwrap_or(usize::MAX)
        } else {
            usize::MAX
        };
        let best = counts.best(conn, newest_first, wanted, self.context_weight)?;
        let matches = best
            .into_iter()
            .map(|(row_id, score)| Match { row_id, score });
        Ok(Matches {
            matches: best_first(matches.collect()),
            capped,
            are_checked,
            statement,
        })
    }

    /// Whether any of the matches satisfies the filter.
    fn has_any(&self, conn: &mut SqliteConnection, matches: &Matches) -> QueryResult<bool> {
        let first = Page {
            limit: 1,
            offset: 0,
        };
        Ok(!self.page(conn, matches, first)?.is_empty())
    }

    /// The page of the matches. Unless they are checked already, they are checked against the filter here, from the
    /// best on until the page is full: scope tokens are hashes, and candidates satisfy only a part of the filter.
    fn page(
        &self,
        conn: &mut SqliteConnection,
        found: &Matches,
        page: Page,
    ) -> QueryResult<Vec<(i64, f64)>> {
        let skip = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let take = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let checked;
        let matches = if found.are_checked {
            &found.matches
        } else {
            let row_id = |found: &Match| found.row_id;
            checked = self.satisfying(conn, &found.matches, row_id, skip.saturating_add(take))?;
            &checked
        };
        let page = matches.iter().skip(skip).take(take);
        Ok(page.map(|found| (found.row_id, found.score)).collect())
    }

    /// The first of these rows that satisfy the filter, at least `wanted` if there are so many.
    fn satisfying<R: Copy>(
        &self,
        conn: &mut SqliteConnection,
        mut rest: &[R],
        row_id: impl Fn(&R) -> i64,
        wanted: usize,
    ) -> QueryResult<Vec<R>> {
        let mut found = Vec::new();
        let mut at_once = 0;
        while found.len() < wanted && !rest.is_empty() {
            cancel::check()?;
            // More each time: with a filter that few matches satisfy, there are few statements.
            at_once = (wanted - found.len()).max(2 * at_once);
            let (chunk, later) = rest.split_at(rest.len().min(at_once));
            rest = later;
            let ids: Vec<i64> = chunk.iter().map(&row_id).collect();
            let mut statement = Fragment::new(
                "SELECT entries.row_id AS row_id FROM entries NOT INDEXED WHERE entries.row_id IN (",
            );
            statement
                .push("SELECT value FROM json_each(")
                .bind(Bind::Text(json_list(&ids)))
                .push(")) AND ");
            statement.append(compile(self.filter, self.collection.owner));
            let mut satisfying: Vec<i64> = query::<Row>(conn, &statement)?
                .into_iter()
                .map(|row| row.row_id)
                .collect();
            satisfying.sort_unstable();
            let satisfies = |row: &&R| satisfying.binary_search(&row_id(row)).is_ok();
            found.extend(chunk.iter().filter(satisfies).copied());
        }
        Ok(found)
    }
}

/// The phrases of a query that every text with at least one of them matches. `None` for other queries.
fn any_of(query_tree: &Query) -> Option<Vec<&Query>> {
    match query_tree {
        Query::Word(_) | Query::Prefix(_) | Query::Phrase(_) => Some(vec![query_tree]),
        Query::Or(queries) => {
            let phrases: Option<Vec<_>> = queries.iter().map(any_of).collect();
            phrases.map(|phrases| phrases.concat())
        }
        Query::And(_) | Query::Not { .. } => None,
    }
}

fn best_first(mut matches: Vec<Match>) -> Vec<Match> {
    matches.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.row_id.cmp(&a.row_id)));
    matches
}
