//! Ranked search.
//!
//! FTS5 scores a match in 1 to 7 µs, so ranking every match of a common word in a large store takes seconds. In that
//! case only the newest matches up to a cap are ranked, and the result says so.

use context_model::{Filter, MetadataPath};
use context_store::{DocumentKind, FtsSearch, Page};
use context_text::Query;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Double};
use diesel::sqlite::SqliteConnection;

use super::{expression, scope};
use crate::cancel;
use crate::collection::Collection;
use crate::filter::{Candidates, candidates, compile, json_list};
use crate::sql::{Bind, Fragment, query};

/// When an index shows that the filter leaves at most this many rows, matches are looked up among them before they are
/// scored. With more rows, checking each match's row until the cap is reached is not more expensive.
const CANDIDATES: usize = 20_000;

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

#[derive(QueryableByName)]
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
    let reached = if !has_indexes || (conditions.is_empty() && within.is_none()) {
        Candidates::Many { rarest: None }
    } else {
        candidates(conn, &beyond_scope, collection.owner, indexed, CANDIDATES)?
    };
    let (cap, context_weight) = (search.ranking_cap, search.context_weight);
    let fit_the_cap = matches!(&reached, Candidates::All(rows) if i64::try_from(rows.len()).is_ok_and(|rows| rows <= i64::from(cap)));
    let ranking = Ranking {
        filter,
        collection,
        cap,
        context_weight,
        // If every candidate can be ranked, only those of the page are read and checked.
        joined: beyond_scope.count() > 0 && !fit_the_cap,
        reached,
    };
    let (mut matches, mut capped, mut statement) = ranking.matches(conn, &search.query.query)?;
    let mut used_fallback = false;
    if let Some(fallback) = &search.query.fallback
        && !ranking.has_any(conn, &matches)?
    {
        (matches, capped, statement) = ranking.matches(conn, fallback)?;
        used_fallback = true;
    }
    let rows = ranking.page(conn, &matches, page)?;
    Ok(Found {
        rows,
        used_fallback,
        capped_at: capped.then_some(search.ranking_cap),
        statement,
    })
}

struct Ranking<'s> {
    filter: &'s Filter,
    collection: Collection,
    cap: u32,
    context_weight: f64,
    /// Whether each match's row is checked before it is ranked.
    joined: bool,
    reached: Candidates,
}

impl Ranking<'_> {
    /// The newest matches with their scores, up to the cap, best first, and whether there are more.
    fn matches(
        &self,
        conn: &mut SqliteConnection,
        query_tree: &Query,
    ) -> QueryResult<(Vec<Match>, bool, Fragment)> {
        let fts = self.collection.fts_table();
        let mut statement =
            Fragment::new(format!("SELECT {fts}.rowid AS row_id, match_score({fts}, "));
        statement
            .bind(Bind::Int(
                i64::try_from(query_tree.phrases()).unwrap_or(i64::MAX),
            ))
            .push(", ");
        statement
            .bind(Bind::Float(self.context_weight))
            .push(&format!(") AS score FROM {fts}"));
        if self.joined {
            statement.push(&format!(
                " CROSS JOIN {} ON entries.row_id = {fts}.rowid",
                self.collection.rows()
            ));
        }
        let mut expression = expression::expression(query_tree, self.context_weight > 0.0);
        expression.push_str(&scope::expression(self.filter));
        statement
            .push(&format!(" WHERE {fts} MATCH "))
            .bind(Bind::Text(expression));
        if let Candidates::All(rows) = &self.reached {
            // The plus prevents SQLite from running the whole match once for each row.
            statement
                .push(&format!(
                    " AND +{fts}.rowid IN (SELECT value FROM json_each("
                ))
                .bind(Bind::Text(json_list(rows)))
                .push("))");
        }
        if self.joined {
            statement
                .push(" AND ")
                .append(compile(self.filter, self.collection.owner));
        }
        statement
            .push(&format!(" ORDER BY {fts}.rowid DESC LIMIT "))
            .bind(Bind::Int(i64::from(self.cap) + 1));
        let mut matches = match &self.reached {
            Candidates::All(rows) if rows.is_empty() => Vec::new(),
            _ => query::<Match>(conn, &statement)?,
        };
        let cap = usize::try_from(self.cap).unwrap_or(usize::MAX);
        let capped = matches.len() > cap;
        matches.truncate(cap);
        matches.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.row_id.cmp(&a.row_id)));
        Ok((matches, capped, statement))
    }

    /// Whether any of the matches satisfies the filter.
    fn has_any(&self, conn: &mut SqliteConnection, matches: &[Match]) -> QueryResult<bool> {
        let first = Page {
            limit: 1,
            offset: 0,
        };
        Ok(!self.page(conn, matches, first)?.is_empty())
    }

    /// The page of the sorted matches. Matches that were not joined are checked against the filter here, from the best
    /// on until the page is full: scope tokens are hashes, and candidates satisfy only a part of the filter.
    fn page(
        &self,
        conn: &mut SqliteConnection,
        matches: &[Match],
        page: Page,
    ) -> QueryResult<Vec<(i64, f64)>> {
        let skip = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let take = usize::try_from(page.limit).unwrap_or(usize::MAX);
        let scored = |found: &Match| (found.row_id, found.score);
        if self.joined || self.filter.count() == 0 {
            return Ok(matches.iter().skip(skip).take(take).map(scored).collect());
        }
        let wanted = skip.saturating_add(take);
        let mut checked: Vec<(i64, f64)> = Vec::new();
        let mut rest = matches;
        let mut at_once = 0;
        while checked.len() < wanted && !rest.is_empty() {
            cancel::check()?;
            // More each time: with a filter that few matches satisfy, there are few statements.
            at_once = (wanted - checked.len()).max(2 * at_once);
            let (chunk, later) = rest.split_at(rest.len().min(at_once));
            rest = later;
            let ids: Vec<i64> = chunk.iter().map(|found| found.row_id).collect();
            let mut statement = Fragment::new(
                "SELECT entries.row_id AS row_id FROM entries NOT INDEXED WHERE entries.row_id IN (",
            );
            statement
                .push("SELECT value FROM json_each(")
                .bind(Bind::Text(json_list(&ids)))
                .push(")) AND ");
            statement.append(compile(self.filter, self.collection.owner));
            let mut true_ids: Vec<i64> = query::<Row>(conn, &statement)?
                .into_iter()
                .map(|row| row.row_id)
                .collect();
            true_ids.sort_unstable();
            checked.extend(
                chunk
                    .iter()
                    .filter(|found| true_ids.binary_search(&found.row_id).is_ok())
                    .map(scored),
            );
        }
        Ok(checked.into_iter().skip(skip).take(take).collect())
    }
}
