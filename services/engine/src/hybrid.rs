//! Searching by words and meaning together.

use std::time::Instant;

use context_model::{
    Error, Filter, HybridScores, HybridSearchContextReply, HybridSearchContextRequest, Operation,
    Reason, Result, Scores, Violations,
};
use context_providers::QueryVectors;
use context_store::{
    FtsPage, FtsSearch, Page, RankSearch, RankedByWords, Ranking, RowSelection, SemanticSearch,
};
use context_text::{Mode, Parsed};

use crate::fusion::{Fused, Fusion, SHALLOW, fuse};
use crate::rerank::{Candidate, EncodedQuery, Question, Reranking};
use crate::search::{cap_warning, ranked_page};
use crate::semantic::{MOST_RANKINGS, depth, in_page, milliseconds};
use crate::{Caller, Engine, Switch, hits, validate};

impl Engine {
    /// Entries found by words and by meaning, fused. A leg that cannot take part is left out, with a warning.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` when no leg works; `SCOPE_MISSING` without
    /// `read`; the store's errors.
    pub async fn hybrid_search_context(
        &self,
        caller: &Caller,
        mut request: HybridSearchContextRequest,
    ) -> Result<HybridSearchContextReply> {
        caller.require(Operation::HybridSearchContext)?;
        let started = Instant::now();
        if self.config.hybrid == Switch::False {
            return Err(Error::new(
                Reason::FeatureUnavailable,
                "hybrid search is switched off by ENABLE_HYBRID_SEARCH=false",
            ));
        }
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let wanted = parse_legs(request.search_modes.take(), &mut violations);
        let k = request
            .rrf_k
            .map_or(i64::from(self.config.hybrid_rrf_k), |k| {
                validate::in_range(k, &(1..=1000), "rrf_k", &mut violations)
            });
        let rrf = Fusion::ReciprocalRank {
            k: k as f64,
            window: i64::from(self.config.hybrid_rank_window),
        };
        let fusion = parse_fusion(request.fusion_method.as_deref(), rrf, &mut violations);
        let page = ranked_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.take_filters(), &mut violations);
        violations.finish(())?;

        let explain = request.explain_query.unwrap_or(false);
        let (legs, mut warnings) = self.legs(&wanted, &request.query).await?;
        let model_ms = milliseconds(started);
        let Legs {
            fts,
            semantic,
            encoded,
            used,
        } = legs;
        let search = RankSearch {
            fts,
            semantic,
            depth: depth(page, SHALLOW as u32),
            explain,
        };
        let mut rankings = 0;
        let (ranking, shown, entries, mut plan, search_ms) = loop {
            rankings += 1;
            let asked = Instant::now();
            let mut ranking = self
                .rank(
                    caller,
                    search.clone(),
                    filter.clone(),
                    Self::read(min_revision),
                )
                .await?;
            let search_ms = milliseconds(asked);
            let fused = fuse(&ranking, fusion);
            let mut plan = std::mem::take(&mut ranking.plan);
            let candidates = fused.iter().map(|entry| Candidate {
                id: entry.id,
                score: entry.blend,
                part: entry.meaning,
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
        let (entries, damaged) = hits::sound(entries);
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
    async fn legs(&self, wanted: &Wanted, query: &str) -> Result<(Legs, Vec<String>)> {
        let mut legs = Legs {
            fts: None,
            semantic: None,
            encoded: None,
            used: Vec::new(),
        };
        let (mut reasons, mut warnings) = (Vec::new(), Vec::new());
        if wanted.fts && !self.config.fts_on() {
            reasons.push("full-text search is switched off by ENABLE_FTS=false".to_owned());
        } else if wanted.fts {
            legs.used.push("fts".to_owned());
            // A natural-language query must not demand all of its words: any of them, ranked.
            let parsed = context_text::parse(Mode::Match, query, &self.analyzer)
                .ok()
                .flatten();
            let parsed = parsed.map(|parsed| Parsed {
                query: parsed.loosest().clone(),
                fallback: None,
            });
            let (ranking_cap, context_weight) = (
                self.config.fts_ranking_cap,
                self.config.hybrid_context_weight,
            );
            legs.fts = parsed.map(|query| FtsSearch {
                query,
                ranking_cap,
                context_weight,
            });
        }
        if wanted.semantic {
            match self.query_vector(query).await {
                Ok((search, encoded)) => {
                    legs.used.push("semantic".to_owned());
                    legs.semantic = Some(search);
                    legs.encoded = encoded;
                }
                Err(error) => reasons.push(error.message),
            }
        }
        if legs.used.is_empty() {
            let message = format!("hybrid search has no search to run: {}", reasons.join("; "));
            return Err(Error::new(Reason::FeatureUnavailable, message));
        }
        let only = if legs.semantic.is_some() {
            "only meaning was searched"
        } else {
            "only full text was searched"
        };
        warnings.extend(
            reasons
                .into_iter()
                .map(|reason| format!("{reason}; {only}")),
        );
        Ok((legs, warnings))
    }

    async fn query_vector(&self, query: &str) -> Result<(SemanticSearch, Option<EncodedQuery>)> {
        let (ready, _) = self
            .meaning()
            .map_err(|reason| crate::meaning::unavailable(&reason))?;
        let QueryVectors { vector, tokens } = ready.of_query(query).await?;
        let search = SemanticSearch {
            model: ready.model.clone(),
            vector,
        };
        Ok((search, tokens.map(|tokens| (ready, tokens))))
    }

    /// The rankings; by words alone from a store without vectors too.
    async fn rank(
        &self,
        caller: &Caller,
        search: RankSearch,
        filter: Filter,
        read: context_store::Read,
    ) -> Result<Ranking> {
        if search.fts.is_none() && search.semantic.is_none() {
            // Nothing in the query can be searched for: punctuation, emoji.
            let statistics = self
                .store
                .statistics(&caller.owner, read)
                .await
                .map_err(crate::store_error)?;
            return Ok(Ranking {
                revision: statistics.revision,
                ..Ranking::default()
            });
        }
        if let Some(vectors) = self.store.vectors() {
            return vectors
                .rank(&caller.owner, search, filter, read)
                .await
                .map_err(crate::store_error);
        }
        let RankSearch {
            fts: Some(words),
            semantic: _,
            depth,
            explain,
        } = search
        else {
            return Ok(Ranking::default());
        };
        let page = Page {
            limit: depth,
            offset: 0,
        };
        let selection = RowSelection {
            images: false,
            text_chars: Some(0),
            explain,
            max_bytes: u64::MAX,
            memory: caller.memory.clone(),
        };
        let found = self
            .store
            .fts_search(&caller.owner, words, filter, page, selection, read)
            .await
            .map_err(crate::store_error)?;
        let FtsPage {
            entries,
            used_fallback: _,
            capped_at,
            revision,
            plan,
        } = found;
        let fts = entries
            .into_iter()
            .map(|found| RankedByWords {
                id: found.entry.id,
                score: found.score,
            })
            .collect();
        Ok(Ranking {
            fts,
            semantic: Vec::new(),
            capped_at,
            revision,
            plan,
        })
    }
}

fn scores(entry: &Fused, rerank_score: Option<f64>) -> HybridScores {
    HybridScores {
        rrf: entry.score,
        fts_rank: entry.fts_rank,
        semantic_rank: entry.semantic_rank,
        fts_score: entry.fts_score,
        semantic_distance: entry.meaning.map(|found| found.distance),
        rerank_score,
    }
}

/// What is searched.
struct Legs {
    fts: Option<FtsSearch>,
    semantic: Option<SemanticSearch>,
    /// What reranking needs of the query, when searching by meaning made it.
    encoded: Option<EncodedQuery>,
    /// The names of the searches that take part.
    used: Vec<String>,
}

/// The searches a caller wants fused.
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

fn parse_legs(modes: Option<Vec<String>>, violations: &mut Violations) -> Wanted {
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
