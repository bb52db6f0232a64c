//! Searching by meaning.

use std::sync::Arc;
use std::time::Instant;

use context_model::{
    Operation, Result, Scores, SearchHit, SemanticScores, SemanticSearchContextReply,
    SemanticSearchContextRequest, Violations,
};
use context_providers::QueryVectors;
use context_store::{Page, RankSearch, RankedByMeaning, Read, SemanticSearch, StoredEntry};

use crate::rerank::{Candidate, Question, Reranking};
use crate::search::ranked_page;
use crate::{Caller, Engine, hits, meaning, validate};

/// How deep rankings go: so deep that a page and what is reranked lie well within.
const DEPTHS: [u32; 3] = [64, 1_000, 10_100];

/// How often entries are ranked at most, when those to be shown change between their ranking and the reading of them.
pub(crate) const MOST_RANKINGS: u32 = 3;

/// The depth for this page; one of few, so that neighbouring pages come from the same ranking.
pub(crate) fn depth(page: Page, at_least: u32) -> u32 {
    let wanted = page
        .offset
        .saturating_add(u64::from(page.limit))
        .max(u64::from(at_least));
    DEPTHS
        .into_iter()
        .find(|depth| u64::from(*depth) >= wanted)
        .unwrap_or(DEPTHS[DEPTHS.len() - 1])
}

impl Engine {
    /// Entries near the query in meaning, nearest first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` naming what is missing; `STORE_UNAVAILABLE` when
    /// the embedding provider does not answer; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn semantic_search_context(
        &self,
        caller: &Caller,
        mut request: SemanticSearchContextRequest,
    ) -> Result<SemanticSearchContextReply> {
        caller.require(Operation::SemanticSearchContext)?;
        let started = Instant::now();
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let page = ranked_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.take_filters(), &mut violations);
        violations.finish(())?;
        let (ready, vectors) = self
            .meaning()
            .map_err(|reason| meaning::unavailable(&reason))?;

        let explain = request.explain_query.unwrap_or(false);
        let QueryVectors { vector, tokens } = ready.of_query(&request.query).await?;
        let model_ms = milliseconds(started);
        let search = RankSearch {
            fts: None,
            semantic: Some(SemanticSearch {
                model: ready.model.clone(),
                vector,
            }),
            depth: depth(page, self.reranked()),
            explain,
        };
        let mut rankings = 0;
        let (ranking, shown, entries, mut plan, search_ms) = loop {
            rankings += 1;
            let asked = Instant::now();
            let rank = vectors.rank(
                &caller.owner,
                search.clone(),
                filter.clone(),
                Self::read(min_revision),
            );
            let mut ranking = rank.await.map_err(crate::store_error)?;
            let search_ms = milliseconds(asked);
            let mut plan = std::mem::take(&mut ranking.plan);
            let candidates = ranking.semantic.iter().map(|found| Candidate {
                id: found.id,
                score: -found.distance,
                part: Some(*found),
            });
            let question = Question {
                text: &request.query,
                encoded: tokens.clone().map(|tokens| (Arc::clone(&ready), tokens)),
            };
            let reranking = self
                .rerank(caller, question, candidates.collect(), &mut plan)
                .await;
            let Reranking { order, warning: _ } = reranking;
            let of_id = |id: i64| {
                ranking
                    .semantic
                    .iter()
                    .find(|found| found.id == id)
                    .copied()
            };
            let shown: Vec<(RankedByMeaning, Option<f64>)> = in_page(&order, page)
                .iter()
                .filter_map(|(id, rerank_score)| of_id(*id).map(|found| (found, *rerank_score)))
                .collect();
            let ids = shown.iter().map(|(found, _)| found.id).collect();
            let entries = self
                .entries_in_order(caller, ids, request.include_images, ranking.revision)
                .await?;
            if entries.len() == shown.len() || rankings == MOST_RANKINGS {
                break (ranking, shown, entries, plan, search_ms);
            }
        };
        let (entries, _) = hits::sound(entries);
        let results = self.hits_in_order(entries, |id| {
            let (found, rerank_score) = shown.iter().find(|(found, _)| found.id == id)?;
            Some(Scores::Semantic(SemanticScores {
                semantic_distance: found.distance,
                semantic_rank: None,
                rerank_score: *rerank_score,
            }))
        });
        if explain {
            plan.push(format!(
                "times: query vector {model_ms:.1} ms, search {search_ms:.1} ms"
            ));
        }
        let stats = explain.then(|| self.stats(started, filters, results.len(), plan, None));
        Ok(SemanticSearchContextReply {
            query: request.query,
            model: ready.embedder.model().name.clone(),
            count: results.len() as i64,
            results,
            stats,
            revision: ranking.revision,
        })
    }

    /// The entries with these ids, in this order, as results show them. What was changed or deleted since the ranking is left
    /// out: it may no longer satisfy the filter, and it is not what the reply's revision shows.
    pub(crate) async fn entries_in_order(
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
            ..Self::read(Some(revision))
        };
        let mut found = self
            .store
            .get_contexts(&caller.owner, ids.clone(), selection, read)
            .await
            .map_err(crate::store_error)?
            .entries;
        found.sort_by_key(|entry| ids.iter().position(|id| *id == entry.id));
        Ok(found)
    }

    pub(crate) fn hits_in_order(
        &self,
        entries: Vec<StoredEntry>,
        scores: impl Fn(i64) -> Option<Scores>,
    ) -> Vec<SearchHit> {
        entries
            .into_iter()
            .map(|entry| (scores(entry.id), entry))
            .map(|(scores, entry)| self.hit(entry, scores, None))
            .collect()
    }
}

/// A page of a ranking.
pub(crate) fn in_page<T>(ranking: &[T], page: Page) -> &[T] {
    let start = usize::try_from(page.offset)
        .unwrap_or(usize::MAX)
        .min(ranking.len());
    let end = start.saturating_add(page.limit as usize).min(ranking.len());
    &ranking[start..end]
}

pub(crate) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
