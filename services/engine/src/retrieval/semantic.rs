//! Semantic search.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a search takes"
)]

use std::sync::Arc;
use std::time::Instant;

use context_model::{
    Operation, Result, Scores, SemanticScores, SemanticSearchContextReply,
    SemanticSearchContextRequest, Violations,
};
use context_providers::QueryVectors;
use context_store::{DocumentKind, RankSearch, SemanticHit, SemanticSearch};

use super::Retrieval;
use super::embedding::{ActiveModel, awaited, unavailable};
use super::hits::milliseconds;
use super::ranked::{RankedHit, RankedPage, RankedSearch, depth, needed, requested_page, times};
use super::relevance::MAX_CONSIDERED;
use super::rerank::{Candidate, EncodedQuery};
use crate::access::Caller;
use crate::validate;

impl Retrieval {
    /// Returns the entries whose embeddings are nearest to the query, nearest first. When reranking is on, the nearest
    /// ones are reranked.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` naming what is missing; `PROVIDER_UNAVAILABLE`
    /// when the embedding provider does not respond; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn semantic_search_context(
        &self,
        caller: &Caller,
        request: SemanticSearchContextRequest,
    ) -> Result<SemanticSearchContextReply> {
        caller.require(Operation::SemanticSearchContext)?;
        let started = Instant::now();
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let page = requested_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let min_relevance = validate::min_relevance(request.min_relevance, &mut violations);
        let (filter, filters) = caller.filter(request.filters, &mut violations);
        violations.finish(())?;

        let explain = request.explain_query.unwrap_or(false);
        let embedded = self.embedded_query(&request.query).await?;
        let model_ms = milliseconds(started);
        let at_least = match min_relevance {
            Some(_) => MAX_CONSIDERED,
            None => self.max_reranked(SemanticHit::MAX_RERANKED),
        };
        let depth = depth(page, at_least);
        // The others only show how far the nearest stand out.
        let exact = needed(page, at_least).min(u64::from(depth)) as u32;
        let search = RankedSearch {
            query: &request.query,
            encoded: embedded.encoded,
            rank: RankSearch {
                kind: DocumentKind::Context,
                fts: None,
                semantic: Some(embedded.search),
                depth,
                exact,
                boundaries: &[],
                explain,
            },
            kinds: vec![DocumentKind::Context],
            filter,
            page,
            min_relevance,
            shows_relevance: true,
            reading: embedded.active.embedder.reading(&request.query),
            min_revision,
            include_images: request.include_images,
            highlight: None,
        };
        let RankedPage {
            results,
            has_more,
            ranking,
            warnings,
            mut plan,
            search_ms,
        } = self
            .ranked_page(caller, &search, |ranking| ranking.semantic.clone())
            .await?;
        if explain {
            plan.push(times(model_ms, search_ms));
        }
        let stats = explain.then(|| self.stats(started, filters, results.len(), plan, None));
        Ok(SemanticSearchContextReply {
            query: request.query,
            model: embedded.active.embedder.model().name.clone(),
            count: results.len() as i64,
            has_more,
            results,
            stats,
            warnings,
            revision: ranking.revision,
        })
    }

    /// Embeds a query with the model in use.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` naming what is missing; `PROVIDER_UNAVAILABLE` before the provider has responded; the
    /// provider's errors.
    pub(super) async fn embedded_query(&self, query: &str) -> Result<EmbeddedQuery> {
        let active = self.embeddings.model().map_err(|reason| {
            if self.embeddings.is_awaited() {
                awaited(reason)
            } else {
                unavailable(&reason)
            }
        })?;
        let QueryVectors { vector, tokens } = active.embed_query(query).await?;
        Ok(EmbeddedQuery {
            search: SemanticSearch {
                model: active.model.clone(),
                vector,
            },
            encoded: tokens.map(|tokens| (Arc::clone(&active), Arc::new(tokens))),
            active,
        })
    }
}

/// A query for the semantic retriever.
pub(super) struct EmbeddedQuery {
    pub search: SemanticSearch,
    /// The vectors of the query's tokens, if the provider returns them together with the query's vector.
    pub encoded: Option<EncodedQuery>,
    /// The model that created the vectors.
    active: Arc<ActiveModel>,
}

impl RankedHit for SemanticHit {
    fn candidate(self) -> Candidate {
        Candidate {
            id: self.id,
            score: -self.distance,
            best_chunk: self.chunk,
        }
    }

    fn semantic(&mut self) -> Option<&mut SemanticHit> {
        Some(self)
    }

    fn scores(self, rerank_score: Option<Option<f64>>) -> Scores {
        Scores::Semantic(SemanticScores {
            semantic_distance: self.distance,
            semantic_rank: None,
            rerank_score,
        })
    }
}
