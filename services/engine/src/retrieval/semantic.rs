//! Semantic search.

use std::sync::Arc;
use std::time::Instant;

use context_model::{
    Operation, Result, Scores, SemanticScores, SemanticSearchContextReply,
    SemanticSearchContextRequest, Violations,
};
use context_providers::QueryVectors;
use context_store::{RankSearch, RankedByMeaning, SemanticSearch};

use super::Retrieval;
use super::embedding::unavailable;
use super::hits::sound;
use super::ranked::{MOST_RANKINGS, depth, in_page, milliseconds, ranked_page};
use super::rerank::{Candidate, Question, Reranking};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

impl Retrieval {
    /// Entries whose embeddings are nearest to the query, nearest first.
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
        let active = self
            .embeddings
            .model()
            .map_err(|reason| unavailable(&reason))?;

        let explain = request.explain_query.unwrap_or(false);
        let QueryVectors { vector, tokens } = active.of_query(&request.query).await?;
        let model_ms = milliseconds(started);
        let search = RankSearch {
            fts: None,
            semantic: Some(SemanticSearch {
                model: active.model.clone(),
                vector,
            }),
            depth: depth(page, self.reranked()),
            explain,
        };
        let mut rankings = 0;
        let (ranking, shown, entries, mut plan, search_ms) = loop {
            rankings += 1;
            let search_started = Instant::now();
            let rank = self.store.vectors().rank(
                &caller.owner,
                search.clone(),
                filter.clone(),
                read::at(min_revision),
            );
            let mut ranking = rank.await.map_err(store_error)?;
            let search_ms = milliseconds(search_started);
            let mut plan = std::mem::take(&mut ranking.plan);
            let candidates = ranking.semantic.iter().map(|found| Candidate {
                id: found.id,
                score: -found.distance,
                part: Some(*found),
            });
            let question = Question {
                text: &request.query,
                encoded: tokens.clone().map(|tokens| (Arc::clone(&active), tokens)),
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
        let (entries, _) = sound(entries);
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
            model: active.embedder.model().name.clone(),
            count: results.len() as i64,
            results,
            stats,
            revision: ranking.revision,
        })
    }
}
