//! Hybrid search: full-text and semantic search together.

use std::time::Instant;

use context_model::{
    Error, Filter, HybridScores, HybridSearchContextReply, HybridSearchContextRequest, Operation,
    Reason, Result, Scores, Violations,
};
use context_providers::QueryVectors;
use context_store::{FtsSearch, RankSearch, Ranking, Read, SemanticSearch};
use context_text::{Mode, Parsed};

use super::Retrieval;
use super::embedding::unavailable;
use super::fusion::{Fused, Fusion, SHALLOW, fuse};
use super::hits::sound;
use super::ranked::{MOST_RANKINGS, cap_warning, depth, in_page, milliseconds, ranked_page};
use super::rerank::{Candidate, EncodedQuery, Question, Reranking};
use crate::access::Caller;
use crate::config::Switch;
use crate::error::store_error;
use crate::{read, validate};

impl Retrieval {
    /// Entries found by the full-text and the semantic retriever, fused. A retriever that cannot take
    /// part is left out, with a warning.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` when no retriever works; `SCOPE_MISSING` without
    /// `read`; the store's errors.
    pub async fn hybrid_search_context(
        &self,
        caller: &Caller,
        mut request: HybridSearchContextRequest,
    ) -> Result<HybridSearchContextReply> {
        caller.require(Operation::HybridSearchContext)?;
        let started = Instant::now();
        if self.search.hybrid == Switch::False {
            return Err(Error::new(
                Reason::FeatureUnavailable,
                "hybrid search is switched off by ENABLE_HYBRID_SEARCH=false",
            ));
        }
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let wanted = parse_retrievers(request.search_modes.take(), &mut violations);
        let k = request
            .rrf_k
            .map_or(i64::from(self.search.hybrid_rrf_k), |k| {
                validate::in_range(k, &(1..=1000), "rrf_k", &mut violations)
            });
        let rrf = Fusion::ReciprocalRank {
            k: k as f64,
            window: i64::from(self.search.hybrid_rank_window),
        };
        let fusion = parse_fusion(request.fusion_method.as_deref(), rrf, &mut violations);
        let page = ranked_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.take_filters(), &mut violations);
        violations.finish(())?;

        let explain = request.explain_query.unwrap_or(false);
        let (retrievers, mut warnings) = self.retrievers(&wanted, &request.query).await?;
        let model_ms = milliseconds(started);
        let Retrievers {
            fts,
            semantic,
            encoded,
            used,
        } = retrievers;
        let search = RankSearch {
            fts,
            semantic,
            depth: depth(page, SHALLOW as u32),
            explain,
        };
        let mut rankings = 0;
        let (ranking, shown, entries, mut plan, search_ms) = loop {
            rankings += 1;
            let search_started = Instant::now();
            let mut ranking = self
                .rank(
                    caller,
                    search.clone(),
                    filter.clone(),
                    read::at(min_revision),
                )
                .await?;
            let search_ms = milliseconds(search_started);
            let fused = fuse(&ranking, fusion);
            let mut plan = std::mem::take(&mut ranking.plan);
            let candidates = fused.iter().map(|entry| Candidate {
                id: entry.id,
                score: entry.blend,
                part: entry.semantic,
            });
            let question = Question {
                text: &request.query,
                encoded: encoded.clone(),
            };
            let Reranking { order, warning } = self
                .rerank(caller, question, candidates.collect(), &mut plan)
                .await;
            let of_id = |id: i64| fused.iter().find(|entry| entry.id == id).copied();
            let shown: Vec<(Fused, Option<f64>)> = in_page(&order, page)
                .iter()
                .filter_map(|(id, rerank_score)| of_id(*id).map(|entry| (entry, *rerank_score)))
                .collect();
            let ids = shown.iter().map(|(entry, _)| entry.id).collect();
            let entries = self
                .entries_in_order(caller, ids, request.include_images, ranking.revision)
                .await?;
            if entries.len() == shown.len() || rankings == MOST_RANKINGS {
                warnings.extend(warning);
                break (ranking, shown, entries, plan, search_ms);
            }
        };
        warnings.extend(ranking.capped_at.map(cap_warning));
        let changed = shown.len() - entries.len();
        if changed > 0 {
            warnings.push(format!("{changed} results were changed while they were searched, and are left out; search again"));
        }
        let (entries, damaged) = sound(entries);
        warnings.extend(damaged);
        let results = self.hits_in_order(entries, |id| {
            let (entry, rerank_score) = shown.iter().find(|(entry, _)| entry.id == id)?;
            Some(Scores::Hybrid(scores(entry, *rerank_score)))
        });
        if explain {
            plan.push(format!(
                "fusion: {} of {} by words and {} by meaning",
                fusion.name(),
                ranking.fts.len(),
                ranking.semantic.len()
            ));
            plan.push(format!(
                "times: query vector {model_ms:.1} ms, search {search_ms:.1} ms"
            ));
        }
        let stats =
            explain.then(|| self.stats(started, filters, results.len(), plan, ranking.capped_at));
        Ok(HybridSearchContextReply {
            query: request.query,
            fusion_method: fusion.name().to_owned(),
            search_modes_used: used,
            fts_count: ranking.fts.len() as i64,
            semantic_count: ranking.semantic.len() as i64,
            count: results.len() as i64,
            results,
            stats,
            warnings,
            revision: ranking.revision,
        })
    }

    /// What can be searched of what is wanted, with a warning for what cannot.
    async fn retrievers(&self, wanted: &Wanted, query: &str) -> Result<(Retrievers, Vec<String>)> {
        let mut retrievers = Retrievers {
            fts: None,
            semantic: None,
            encoded: None,
            used: Vec::new(),
        };
        let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
        if wanted.fts && !self.search.fts_on() {
            reasons.push("full-text search is switched off by ENABLE_FTS=false".to_owned());
        } else if wanted.fts {
            retrievers.used.push("fts".to_owned());
            // A natural-language query must not demand all of its words: any of them, ranked.
            let parsed = context_text::parse(Mode::Match, query, &self.analyzer)
                .ok()
                .flatten();
            let parsed = parsed.map(|parsed| Parsed {
                query: parsed.loosest().clone(),
                fallback: None,
            });
            let (ranking_cap, context_weight) = (
                self.search.fts_ranking_cap,
                self.search.hybrid_context_weight,
            );
            retrievers.fts = parsed.map(|query| FtsSearch {
                query,
                ranking_cap,
                context_weight,
            });
        }
        if wanted.semantic {
            match self.query_vector(query).await {
                Ok((search, encoded)) => {
                    retrievers.used.push("semantic".to_owned());
                    retrievers.semantic = Some(search);
                    retrievers.encoded = encoded;
                }
                Err(error) => reasons.push(error.message),
            }
        }
        if retrievers.used.is_empty() {
            let message = format!("hybrid search has no search to run: {}", reasons.join("; "));
            return Err(Error::new(Reason::FeatureUnavailable, message));
        }
        let only = if retrievers.semantic.is_some() {
            "only meaning was searched"
        } else {
            "only full text was searched"
        };
        warnings.extend(
            reasons
                .into_iter()
                .map(|reason| format!("{reason}; {only}")),
        );
        Ok((retrievers, warnings))
    }

    async fn query_vector(&self, query: &str) -> Result<(SemanticSearch, Option<EncodedQuery>)> {
        let active = self
            .embeddings
            .model()
            .map_err(|reason| unavailable(&reason))?;
        let QueryVectors { vector, tokens } = active.of_query(query).await?;
        let search = SemanticSearch {
            model: active.model.clone(),
            vector,
        };
        Ok((search, tokens.map(|tokens| (active, tokens))))
    }

    /// The rankings of these retrievers.
    async fn rank(
        &self,
        caller: &Caller,
        search: RankSearch,
        filter: Filter,
        read: Read,
    ) -> Result<Ranking> {
        if search.fts.is_none() && search.semantic.is_none() {
            // Nothing in the query can be searched for: punctuation, emoji.
            let statistics = self
                .store
                .statistics(&caller.owner, None, read)
                .await
                .map_err(store_error)?;
            return Ok(Ranking {
                revision: statistics.revision,
                ..Ranking::default()
            });
        }
        self.store
            .vectors()
            .rank(&caller.owner, search, filter, read)
            .await
            .map_err(store_error)
    }
}

fn scores(entry: &Fused, rerank_score: Option<f64>) -> HybridScores {
    HybridScores {
        rrf: entry.score,
        fts_rank: entry.fts_rank,
        semantic_rank: entry.semantic_rank,
        fts_score: entry.fts_score,
        semantic_distance: entry.semantic.map(|found| found.distance),
        rerank_score,
    }
}

/// The retrievers that take part.
struct Retrievers {
    fts: Option<FtsSearch>,
    semantic: Option<SemanticSearch>,
    /// What reranking needs of the query, when the semantic retriever made it.
    encoded: Option<EncodedQuery>,
    /// Their names.
    used: Vec<String>,
}

/// The retrievers that a caller wants fused.
struct Wanted {
    fts: bool,
    semantic: bool,
}

fn parse_fusion(given: Option<&str>, rrf: Fusion, violations: &mut Violations) -> Fusion {
    match given {
        None | Some("rrf") => rrf,
        Some("convex") => Fusion::Convex,
        Some(other) => {
            let shown: String = other.chars().take(40).collect();
            violations.push(
                "fusion_method",
                format!("`fusion_method` is `{shown}`; it must be `rrf` or `convex`"),
            );
            rrf
        }
    }
}

fn parse_retrievers(modes: Option<Vec<String>>, violations: &mut Violations) -> Wanted {
    let Some(modes) = modes else {
        return Wanted {
            fts: true,
            semantic: true,
        };
    };
    let mut wanted = Wanted {
        fts: false,
        semantic: false,
    };
    if modes.is_empty() {
        violations.push(
            "search_modes",
            "`search_modes` is empty; it must hold `fts`, `semantic` or both",
        );
    }
    for (i, mode) in modes.iter().enumerate() {
        match mode.as_str() {
            "fts" => wanted.fts = true,
            "semantic" => wanted.semantic = true,
            other => {
                let shown: String = other.chars().take(40).collect();
                violations.push(
                    format!("search_modes[{i}]"),
                    format!("`search_modes[{i}]` is `{shown}`; it must be `fts` or `semantic`"),
                );
            }
        }
    }
    wanted
}
