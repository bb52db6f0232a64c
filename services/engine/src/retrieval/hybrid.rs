//! Hybrid search: full-text and semantic search together.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a search takes"
)]

use std::time::Instant;

use context_model::warnings::{ONLY_FULL_TEXT_RAN, ONLY_SEMANTIC_RAN};
use context_model::{
    Error, FusionMethod, HybridScores, HybridSearchContextReply, HybridSearchContextRequest,
    Include, Operation, Reason, Result, Scores, SearchMode, Violations,
};
use context_providers::Reading;
use context_store::{
    DocumentKind, FtsSearch, RankSearch, Ranking, Read, SemanticHit, SemanticSearch,
};
use context_text::{Mode, Parsed};

use super::Retrieval;
use super::documents::hybrid_hit;
use super::embedding::unavailable;
use super::fusion::{BOUNDARIES, FIRST_PART, Fused, Fusion, fuse};
use super::hits::milliseconds;
use super::ranked::{RankedHit, RankedPage, RankedSearch, depth, requested_page, times};
use super::rerank::{Candidate, EncodedQuery, HYBRID_CANDIDATES};
use crate::access::Caller;
use crate::config::Switch;
use crate::{read, validate};

/// Number of first semantic ranks that are exact. Later ones may come from estimated distances. About twice the default
/// of HYBRID_RANK_WINDOW. A rank beyond the window counts only for an entry that neither retriever found within it.
const EXACT_RANKS: u32 = 32;

impl Retrieval {
    /// Returns entries from the fused rankings of the full-text and the semantic retriever. A retriever that is
    /// unavailable is skipped with a warning.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` when no retriever works; `PROVIDER_UNAVAILABLE`
    /// when none works because the embedding provider does not respond; `SCOPE_MISSING` without `read`; the store's
    /// errors.
    pub async fn hybrid_search_context(
        &self,
        caller: &Caller,
        request: HybridSearchContextRequest,
    ) -> Result<HybridSearchContextReply> {
        caller.require(Operation::HybridSearchContext)?;
        self.hybrid_search(caller, request).await
    }

    /// Like [`hybrid_search_context`](Self::hybrid_search_context), but does not check that the caller may search
    /// contexts. The search of artifacts calls it.
    pub(crate) async fn hybrid_search(
        &self,
        caller: &Caller,
        request: HybridSearchContextRequest,
    ) -> Result<HybridSearchContextReply> {
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
        let kinds = parse_include(request.include, &mut violations);
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
        let page = requested_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let min_relevance = validate::min_relevance(request.min_relevance, &mut violations);
        let (filter, filters) = caller.filter(request.filters, &mut violations);
        violations.finish(())?;
        if kinds.contains(&DocumentKind::Artifact) {
            caller.require(Operation::SearchArtifacts)?;
        }

        let explain = request.explain_query.unwrap_or(false);
        let Retrievers {
            fts,
            full_text_works,
            semantic,
            encoded,
            rarest_line,
            reading,
            mut unavailable_because,
        } = self
            .retrievers(
                caller,
                &wanted,
                &kinds,
                &request.query,
                read::at(min_revision),
            )
            .await?;
        let model_ms = milliseconds(started);
        let highlight = request.highlight.unwrap_or(false);
        let words = || fts.as_ref().map(|fts| fts.query.clone());
        let highlight = highlight.then(|| words().or_else(|| self.any_word(&request.query)));
        let mut search = RankedSearch {
            query: &request.query,
            highlight: highlight.flatten(),
            encoded,
            rank: RankSearch {
                kind: DocumentKind::Context,
                fts,
                semantic,
                depth: depth(page, FIRST_PART as u32),
                exact: EXACT_RANKS,
                boundaries: &BOUNDARIES,
                explain,
            },
            kinds,
            filter,
            page,
            min_relevance,
            shows_relevance: true,
            reading,
            min_revision,
            include_images: request.include_images,
        };
        let combine = |ranking: &Ranking| fuse(ranking, fusion, reading.fragmentation);
        let mut found = self.ranked_page(caller, &search, combine).await;
        if full_text_works
            && let Err(error) = &found
            && error.reason == Reason::FeatureUnavailable
            && search.rank.semantic.take().is_some()
        {
            // Another service has changed the database to another model, and the vectors of this one are deleted.
            unavailable_because.push(unavailable(&error.message).message);
            found = self.ranked_page(caller, &search, combine).await;
        }
        let RankedPage {
            results,
            has_more,
            ranking,
            warnings: page_warnings,
            mut plan,
            search_ms,
        } = found?;
        let search_modes_used = used(&search.rank);
        let mut warnings = warnings(unavailable_because, &search.rank);
        warnings.extend(page_warnings);
        let (fts_count, semantic_count) = (ranking.fts.len(), ranking.semantic.len());
        if explain {
            plan.extend(rarest_line);
            if wanted.semantic && !reading.is_possible && search.rank.semantic.is_none() {
                let model = self.embeddings.model().ok();
                let model =
                    model.map_or_else(String::new, |active| active.embedder.model().name.clone());
                plan.push(format!(
                    "semantic: left out, because the model {model} cannot read the query"
                ));
            }
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
            search_modes_used,
            fts_count: fts_count as i64,
            semantic_count: semantic_count as i64,
            count: results.len() as i64,
            has_more,
            results: results.into_iter().map(hybrid_hit).collect(),
            stats,
            warnings,
            revision: ranking.revision,
        })
    }

    /// Selects the requested retrievers that are available.
    ///
    /// # Errors
    /// When none is available: the embedding error if semantic search was requested, or else `FEATURE_UNAVAILABLE`. The
    /// store's errors.
    async fn retrievers(
        &self,
        caller: &Caller,
        wanted: &Wanted,
        kinds: &[DocumentKind],
        query: &str,
        read: Read,
    ) -> Result<Retrievers> {
        let full_text_works = wanted.fts && self.search.fts_on();
        let (fts, rarest_line) = if full_text_works {
            self.fts_query(caller, kinds, query, read).await?
        } else {
            (None, None)
        };
        let mut retrievers = Retrievers {
            fts,
            full_text_works,
            rarest_line,
            semantic: None,
            encoded: None,
            reading: self.reading(query),
            unavailable_because: Vec::new(),
        };
        let reasons = &mut retrievers.unavailable_because;
        if wanted.fts && !full_text_works {
            reasons.push("full-text search is switched off by ENABLE_FTS=false".to_owned());
        }
        let mut failure = None;
        if wanted.semantic {
            // The vector of a query that the model cannot read only disturbs the full-text ranking. It is used if the
            // semantic retriever runs alone.
            if !retrievers.reading.is_possible && full_text_works {
                return Ok(retrievers);
            }
            match self.embedded_query(query).await {
                Ok(embedded) => {
                    retrievers.semantic = Some(embedded.search);
                    retrievers.encoded = embedded.encoded;
                }
                Err(error) => {
                    reasons.push(error.message.clone());
                    failure = Some(error);
                }
            }
        }
        if full_text_works || retrievers.semantic.is_some() {
            return Ok(retrievers);
        }
        let reasons = retrievers.unavailable_because.join("; ");
        let message = format!("hybrid search has no search to run: {reasons}");
        Err(match failure {
            // The reason of this error shows whether a retry can help.
            Some(mut error) => {
                error.message = message;
                error
            }
            None => Error::new(Reason::FeatureUnavailable, message),
        })
    }

    /// How well the embedding model in use reads the query.
    pub(super) fn reading(&self, query: &str) -> Reading {
        self.embeddings
            .model()
            .map_or(Reading::WELL, |active| active.embedder.reading(query))
    }

    /// The query of the full-text retriever. It matches entries with any of the query's words, because a question in
    /// natural language should not require all of them. `None` when the query has no words. The second value is the
    /// line of the plan about a long query.
    async fn fts_query(
        &self,
        caller: &Caller,
        kinds: &[DocumentKind],
        query: &str,
        read: Read,
    ) -> Result<(Option<FtsSearch>, Option<String>)> {
        let Some(parsed) = self.any_word(query) else {
            return Ok((None, None));
        };
        let (query, rarest_line) = self.with_rarest_terms(caller, kinds, parsed, read).await?;
        let search = FtsSearch {
            query,
            ranking_cap: self.search.fts_ranking_cap,
            context_weight: self.search.hybrid_context_weight,
        };
        Ok((Some(search), rarest_line))
    }

    /// The query for any of the words. `None` if there are none.
    fn any_word(&self, query: &str) -> Option<Parsed> {
        let parsed = context_text::parse(Mode::Match, query, &self.analyzer);
        let parsed = parsed.ok().flatten()?;
        Some(Parsed {
            query: parsed.loosest().clone(),
            fallback: None,
            candidates: parsed.candidates,
        })
    }
}

/// The retrievers of one search.
struct Retrievers {
    /// The query of the full-text retriever. `None` if the retriever is unavailable or the query has no words.
    fts: Option<FtsSearch>,
    /// Whether full-text search is requested and on.
    full_text_works: bool,
    /// The line of the plan about a long query.
    rarest_line: Option<String>,
    /// The query of the semantic retriever.
    semantic: Option<SemanticSearch>,
    /// The query's token vectors, if the semantic retriever created them.
    encoded: Option<EncodedQuery>,
    /// How well the embedding model reads the query. Late interaction needs it even if only the full-text retriever
    /// runs.
    reading: Reading,
    /// Why the other requested retrievers are unavailable.
    unavailable_because: Vec<String>,
}

/// The names of the retrievers that ran.
fn used(search: &RankSearch) -> Vec<String> {
    let fts = search.fts.as_ref().map(|_| SearchMode::Fts);
    let semantic = search.semantic.as_ref().map(|_| SearchMode::Semantic);
    let ran = fts.into_iter().chain(semantic);
    ran.map(|mode| mode.as_str().to_owned()).collect()
}

/// A warning for each retriever that is unavailable. It says what ran instead.
fn warnings(unavailable_because: Vec<String>, search: &RankSearch) -> Vec<String> {
    let ran = if search.semantic.is_some() {
        ONLY_SEMANTIC_RAN
    } else if search.fts.is_some() {
        ONLY_FULL_TEXT_RAN
    } else {
        "no search ran, because full-text search found no word in the query"
    };
    unavailable_because
        .into_iter()
        .map(|reason| format!("{reason}; {ran}"))
        .collect()
}

impl RankedHit for Fused {
    const MAX_RERANKED: u32 = HYBRID_CANDIDATES;

    fn candidate(self) -> Candidate {
        Candidate {
            id: self.id,
            score: self.blend,
            best_chunk: self.semantic.and_then(|found| found.chunk),
        }
    }

    fn semantic(&mut self) -> Option<&mut SemanticHit> {
        self.semantic.as_mut()
    }

    fn scores(self, rerank_score: Option<Option<f64>>) -> Scores {
        Scores::Hybrid(HybridScores {
            rrf: self.score,
            fts_rank: self.fts_rank,
            semantic_rank: self.semantic_rank,
            fts_score: self.fts_score,
            semantic_distance: self.semantic.map(|found| found.distance),
            rerank_score: rerank_score.flatten(),
        })
    }
}

/// The retrievers that the caller requested.
struct Wanted {
    fts: bool,
    semantic: bool,
}

fn parse_fusion(given: Option<&str>, rrf: Fusion, violations: &mut Violations) -> Fusion {
    let Some(given) = given else {
        return rrf;
    };
    match FusionMethod::parse(given) {
        Some(FusionMethod::Rrf) => rrf,
        Some(FusionMethod::Convex) => Fusion::Convex,
        None => {
            let shown: String = given.chars().take(40).collect();
            violations.push(
                "fusion_method",
                format!("`fusion_method` is `{shown}`; it must be `rrf` or `convex`"),
            );
            rrf
        }
    }
}

fn parse_include(given: Option<Vec<String>>, violations: &mut Violations) -> Vec<DocumentKind> {
    let Some(given) = given else {
        return vec![DocumentKind::Context];
    };
    if given.is_empty() {
        violations.push(
            "include",
            "`include` is empty; it must hold `contexts`, `artifacts` or both",
        );
    }
    let mut kinds = Vec::new();
    for (i, name) in given.iter().enumerate() {
        let kind = match Include::parse(name) {
            Some(Include::Contexts) => DocumentKind::Context,
            Some(Include::Artifacts) => DocumentKind::Artifact,
            None => {
                let shown: String = name.chars().take(40).collect();
                violations.push(
                    format!("include[{i}]"),
                    format!("`include[{i}]` is `{shown}`; it must be `contexts` or `artifacts`"),
                );
                continue;
            }
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
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
        match SearchMode::parse(mode) {
            Some(SearchMode::Fts) => wanted.fts = true,
            Some(SearchMode::Semantic) => wanted.semantic = true,
            None => {
                let shown: String = mode.chars().take(40).collect();
                violations.push(
                    format!("search_modes[{i}]"),
                    format!("`search_modes[{i}]` is `{shown}`; it must be `fts` or `semantic`"),
                );
            }
        }
    }
    wanted
}
