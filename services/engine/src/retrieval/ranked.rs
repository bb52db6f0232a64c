//! The common steps of semantic and hybrid search: rank ids with the retrievers, rerank the best candidates, and read
//! the entries of the page.

#![expect(clippy::disallowed_methods, reason = "how long ranking takes")]

use std::time::Instant;

use context_model::{Filter, Limits, Result, Scores, SearchHit, Violations};
use context_store::{Page, RankSearch, Ranking, Read, StoredEntry};

use super::Retrieval;
use super::hits::{milliseconds, undamaged};
use super::rerank::{Candidate, EncodedQuery, RerankQuery, Reranking};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// The possible depths of a ranking. Each has room for a page and for the candidates of reranking.
const DEPTHS: [u32; 3] = [64, 1_000, 10_100];

/// Maximum number of rankings for one search. The search ranks again if entries of the page changed after the ranking.
const MAX_RANKINGS: u32 = 3;

/// A search with a validated request and an embedded query.
pub(super) struct RankedSearch<'r> {
    pub query: &'r str,
    /// The query's token vectors for reranking, if the semantic retriever created them.
    pub encoded: Option<EncodedQuery>,
    /// The query of each retriever, and the depth of the ranking.
    pub rank: RankSearch,
    pub filter: Filter,
    pub page: Page,
    pub min_revision: Option<i64>,
    pub include_images: Option<bool>,
}

/// An entry in the ranking of a search.
pub(super) trait Ranked: Copy {
    /// The entry as a candidate for reranking.
    fn candidate(self) -> Candidate;

    /// The scores in the entry's result.
    fn scores(self, rerank_score: Option<f64>) -> Scores;
}

/// The results of one page.
pub(super) struct RankedPage {
    /// The results, best first.
    pub results: Vec<SearchHit>,
    /// What the retrievers found, after `order` has processed it.
    pub ranking: Ranking,
    /// The limitations of the results, one sentence each.
    pub warnings: Vec<String>,
    /// The query plan for `explain_query`, in lines.
    pub plan: Vec<String>,
    /// Duration of the store's ranking, in milliseconds.
    pub search_ms: f64,
}

impl Retrieval {
    /// Runs a ranked search. `order` combines the retrievers' rankings into one, best first.
    ///
    /// # Errors
    /// The store's errors.
    pub(super) async fn ranked<R: Ranked>(
        &self,
        caller: &Caller,
        search: RankedSearch<'_>,
        order: impl Fn(&mut Ranking) -> Vec<R>,
    ) -> Result<RankedPage> {
        let mut rankings = 0;
        loop {
            rankings += 1;
            let started = Instant::now();
            let mut ranking = self.rank(caller, &search).await?;
            let search_ms = milliseconds(started);
            let mut plan = std::mem::take(&mut ranking.plan);

            let ordered = order(&mut ranking);
            let candidates: Vec<Candidate> =
                ordered.iter().map(|entry| entry.candidate()).collect();
            let query = RerankQuery {
                text: search.query,
                encoded: search.encoded.clone(),
            };
            let Reranking {
                order: reranked,
                warning,
            } = self.rerank(caller, query, &candidates, &mut plan).await;

            let shown = in_page(&reranked, search.page);
            let ids = shown.iter().map(|(id, _)| *id).collect();
            let entries = self
                .entries_in_order(caller, ids, search.include_images, ranking.revision)
                .await?;
            let changed = shown.len() - entries.len();
            if changed > 0 && rankings < MAX_RANKINGS {
                continue;
            }

            let mut warnings: Vec<String> = warning.into_iter().collect();
            warnings.extend(ranking.capped_at.map(cap_warning));
            if changed > 0 {
                warnings.push(format!(
                    "{changed} results were changed while they were searched, and are left out; search again"
                ));
            }
            let (entries, damaged) = undamaged(entries);
            warnings.extend(damaged);
            let scores = |id: i64| {
                let position = candidates.iter().position(|entry| entry.id == id)?;
                let (_, rerank_score) = shown.iter().find(|(shown, _)| *shown == id)?;
                Some(ordered[position].scores(*rerank_score))
            };
            let results = entries
                .into_iter()
                .map(|entry| (scores(entry.id), entry))
                .map(|(scores, entry)| self.hit(entry, scores, None))
                .collect();
            return Ok(RankedPage {
                results,
                ranking,
                warnings,
                plan,
                search_ms,
            });
        }
    }

    /// Runs the retrievers.
    async fn rank(&self, caller: &Caller, search: &RankedSearch<'_>) -> Result<Ranking> {
        let read = read::at(search.min_revision);
        if search.rank.fts.is_none() && search.rank.semantic.is_none() {
            // Only the full-text retriever is used, and the query contains only punctuation or emoji.
            let revision = self.revision(caller, read).await?;
            return Ok(Ranking {
                revision,
                ..Ranking::default()
            });
        }
        self.store
            .vectors()
            .rank(
                &caller.owner,
                search.rank.clone(),
                search.filter.clone(),
                read,
            )
            .await
            .map_err(store_error)
    }

    /// The owner's revision, for a search that reads nothing else.
    pub(super) async fn revision(&self, caller: &Caller, read: Read) -> Result<i64> {
        let statistics = self
            .store
            .statistics(&caller.owner, None, read)
            .await
            .map_err(store_error)?;
        Ok(statistics.revision)
    }

    /// Reads the entries with these ids, in this order. Entries that were updated or deleted after `revision` are
    /// omitted. They may no longer match the filter, and they differ from the state at the reply's revision.
    async fn entries_in_order(
        &self,
        caller: &Caller,
        ids: Vec<i64>,
        include_images: Option<bool>,
        revision: i64,
    ) -> Result<Vec<StoredEntry>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let selection = self.selection(caller, include_images, false, self.shown_chars());
        let read = Read {
            as_of: Some(revision),
            ..read::at(Some(revision))
        };
        let mut found = self
            .store
            .get_contexts(&caller.owner, ids.clone(), selection, read)
            .await
            .map_err(store_error)?
            .entries;
        found.sort_by_key(|entry| ids.iter().position(|id| *id == entry.id));
        Ok(found)
    }
}

/// The page of a ranked search.
pub(super) fn ranked_page(
    limit: Option<i64>,
    offset: Option<i64>,
    violations: &mut Violations,
) -> Page {
    validate::page(limit, offset, 5, 100, Limits::MAX_RANKED_OFFSET, violations)
}

/// The depth of the ranking for this page. It is one of [`DEPTHS`], so that adjacent pages come from the same ranking.
pub(super) fn depth(page: Page, at_least: u32) -> u32 {
    let wanted = page
        .offset
        .saturating_add(u64::from(page.limit))
        .max(u64::from(at_least));
    DEPTHS
        .into_iter()
        .find(|depth| u64::from(*depth) >= wanted)
        .unwrap_or(DEPTHS[DEPTHS.len() - 1])
}

/// The warning when more entries matched than were ranked.
pub(super) fn cap_warning(cap: u32) -> String {
    format!("more than {cap} entries match; the newest {cap} of them were ranked")
}

/// The line of the plan with the durations.
pub(super) fn times(model_ms: f64, search_ms: f64) -> String {
    format!("times: query vector {model_ms:.1} ms, search {search_ms:.1} ms")
}

/// A page of a ranking.
fn in_page<T>(ranking: &[T], page: Page) -> &[T] {
    let start = usize::try_from(page.offset)
        .unwrap_or(usize::MAX)
        .min(ranking.len());
    let end = start.saturating_add(page.limit as usize).min(ranking.len());
    &ranking[start..end]
}
