//! Hybrid search: full-text and semantic search together.

#![expect(clippy::disallowed_methods, reason = "how long a search takes")]

use std::time::Instant;

use context_model::{
    Error, HybridScores, HybridSearchContextReply, HybridSearchContextRequest, Operation, Reason,
    Result, Scores, Violations,
};
use context_store::{FtsSearch, RankSearch};
use context_text::{Mode, Parsed};

use super::Retrieval;
use super::fusion::{Fused, Fusion, SHALLOW, fuse};
use super::hits::milliseconds;
use super::ranked::{Ranked, RankedPage, RankedSearch, depth, ranked_page, times};
use super::rerank::Candidate;
use super::semantic::EmbeddedQuery;
use crate::access::Caller;
use crate::config::Switch;
use crate::validate;

impl Retrieval {
    /// Returns entries from the fused rankings of the full-text and the semantic retriever. A retriever that is
    /// unavailable is skipped with a warning.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` when no retriever works; `SCOPE_MISSING` without
    /// `read`; the store's errors.
    pub async fn hybrid_search_context(
        &self,
        caller: &Caller,
        request: HybridSearchContextRequest,
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
        let wanted = parse_retrievers(request.search_modes, &mut violations);
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
        let (filter, filters) = caller.filter(request.filters, &mut violations);
        violations.finish(())?;

        let explain = request.explain_query.unwrap_or(false);
        let Retrievers {
            fts,
            semantic,
            used,
            mut warnings,
        } = self.retrievers(&wanted, &request.query).await?;
        let model_ms = milliseconds(started);
        let (semantic, encoded) = semantic
            .map(|embedded| (embedded.search, embedded.encoded))
            .unzip();
        let search = RankedSearch {
            query: &request.query,
            encoded: encoded.flatten(),
            rank: RankSearch {
                fts,
                semantic,
                depth: depth(page, SHALLOW as u32),
                explain,
            },
            filter,
            page,
            min_revision,
            include_images: request.include_images,
        };
        let RankedPage {
            results,
            ranking,
            warnings: more_warnings,
            mut plan,
            search_ms,
        } = self
            .ranked(caller, search, |ranking| fuse(ranking, fusion))
            .await?;
        warnings.extend(more_warnings);
        let (fts_count, semantic_count) = (ranking.fts.len(), ranking.semantic.len());
        if explain {
            plan.push(format!(
                "fusion: {} of {fts_count} full-text and {semantic_count} semantic candidates",
                fusion.name()
            ));
            plan.push(times(model_ms, search_ms));
        }
        let stats =
            explain.then(|| self.stats(started, filters, results.len(), plan, ranking.capped_at));
        Ok(HybridSearchContextReply {
            query: request.query,
            fusion_method: fusion.name().to_owned(),
            search_modes_used: used,
            fts_count: fts_count as i64,
            semantic_count: semantic_count as i64,
            count: results.len() as i64,
            results,
            stats,
            warnings,
            revision: ranking.revision,
        })
    }

    /// Selects the requested retrievers that are available, with a warning for each that is not.
    ///
    /// # Errors
    /// `FEATURE_UNAVAILABLE` when none is available.
    async fn retrievers(&self, wanted: &Wanted, query: &str) -> Result<Retrievers> {
        let (mut used, mut missing) = (Vec::new(), Vec::new());
        let mut fts = None;
        if wanted.fts && self.search.fts_on() {
            used.push("fts".to_owned());
            fts = self.fts_query(query);
        } else if wanted.fts {
            missing.push("full-text search is switched off by ENABLE_FTS=false".to_owned());
        }
        let mut semantic = None;
        if wanted.semantic {
            match self.embedded_query(query).await {
                Ok(embedded) => {
                    used.push("semantic".to_owned());
                    semantic = Some(embedded);
                }
                Err(error) => missing.push(error.message),
            }
        }
        if used.is_empty() {
            let message = format!("hybrid search has no search to run: {}", missing.join("; "));
            return Err(Error::new(Reason::FeatureUnavailable, message));
        }
        let only = if semantic.is_some() {
            "only semantic search ran"
        } else {
            "only full-text search ran"
        };
        let warnings = missing
            .into_iter()
            .map(|reason| format!("{reason}; {only}"))
            .collect();
        Ok(Retrievers {
            fts,
            semantic,
            used,
            warnings,
        })
    }

    /// The query of the full-text retriever. It matches entries with any of the query's words, because a question in
    /// natural language should not require all of them. `None` when the query has no words.
    fn fts_query(&self, query: &str) -> Option<FtsSearch> {
        let parsed = context_text::parse(Mode::Match, query, &self.analyzer)
            .ok()
            .flatten()?;
        Some(FtsSearch {
            query: Parsed {
                query: parsed.loosest().clone(),
                fallback: None,
            },
            ranking_cap: self.search.fts_ranking_cap,
            context_weight: self.search.hybrid_context_weight,
        })
    }
}

/// The retrievers of one search.
struct Retrievers {
    /// The query of the full-text retriever. Also `None` when the query has no words.
    fts: Option<FtsSearch>,
    /// The query of the semantic retriever.
    semantic: Option<EmbeddedQuery>,
    /// The names of the retrievers used.
    used: Vec<String>,
    /// Why the other requested retrievers are unavailable.
    warnings: Vec<String>,
}

impl Ranked for Fused {
    fn candidate(self) -> Candidate {
        Candidate {
            id: self.id,
            score: self.blend,
            part: self.semantic,
        }
    }

    fn scores(self, rerank_score: Option<f64>) -> Scores {
        Scores::Hybrid(HybridScores {
            rrf: self.score,
            fts_rank: self.fts_rank,
            semantic_rank: self.semantic_rank,
            fts_score: self.fts_score,
            semantic_distance: self.semantic.map(|found| found.distance),
            rerank_score,
        })
    }
}

/// The retrievers that the caller requested.
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
