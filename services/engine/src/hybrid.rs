//! Searching by words and meaning together.

use std::time::Instant;

use context_model::{
    Error, Filter, HybridScores, HybridSearchContextReply, HybridSearchContextRequest, Reason, Result, Scores, Violations,
};
use context_store::{FtsPage, FtsSearch, ScoredEntry};
use context_text::{Mode, Parsed};

use crate::search::{cap_warning, ranked_page};
use crate::{Caller, Engine, Scope, Switch, validate};

impl Engine {
    /// Entries found by words and by meaning, fused by reciprocal rank. A leg that cannot take part is left out, with
    /// a warning.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `FEATURE_UNAVAILABLE` when no leg works; `SCOPE_MISSING` without
    /// `read`; the store's errors.
    pub async fn hybrid_search_context(
        &self,
        caller: &Caller,
        mut request: HybridSearchContextRequest,
    ) -> Result<HybridSearchContextReply> {
        caller.require(Scope::Read)?;
        let started = Instant::now();
        if self.config.hybrid == Switch::False {
            return Err(Error::new(Reason::FeatureUnavailable, "hybrid search is switched off by ENABLE_HYBRID_SEARCH=false"));
        }
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let legs = parse_legs(request.search_modes.take(), &mut violations);
        if let Some(method) = request.fusion_method.as_deref().filter(|m| *m != "rrf") {
            let shown: String = method.chars().take(40).collect();
            violations.push("fusion_method", format!("`fusion_method` is `{shown}`; it must be `rrf`"));
        }
        let k = request.rrf_k.map_or(i64::from(self.config.hybrid_rrf_k), |k| validate::in_range(k, &(1..=1000), "rrf_k", &mut violations));
        let page = ranked_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let filter = Filter::parse(request.take_filters(), &mut violations);
        violations.finish(())?;

        if !(legs.fts && self.config.fts_on()) {
            let mut reasons = Vec::new();
            if legs.fts {
                reasons.push("full-text search is switched off by ENABLE_FTS=false".to_owned());
            }
            if legs.semantic {
                reasons.push(self.semantic_unavailable().message);
            }
            return Err(Error::new(Reason::FeatureUnavailable, format!("hybrid search has no search to run: {}", reasons.join("; "))));
        }
        let explain = request.explain_query.unwrap_or(false);
        let filters = filter.count();
        let mut reply = HybridSearchContextReply {
            query: request.query,
            fusion_method: "rrf".to_owned(),
            search_modes_used: vec!["fts".to_owned()],
            fts_count: 0,
            semantic_count: 0,
            results: Vec::new(),
            count: 0,
            stats: None,
            warnings: Vec::new(),
            revision: 0,
        };
        if legs.semantic {
            reply.warnings.push(format!("{}; only full text was searched", self.semantic_unavailable().message));
        }
        // A natural-language query must not demand all of its words: any of them, ranked.
        let parsed = context_text::parse(Mode::Match, &reply.query, &self.analyzer).ok().flatten();
        let Some(parsed) = parsed.map(|parsed| Parsed { query: parsed.loosest().clone(), fallback: None }) else {
            let statistics = self.store.statistics(&caller.owner, Self::read(min_revision)).await.map_err(crate::store_error)?;
            reply.stats = explain.then(|| self.stats(started, filters, 0, Vec::new(), None));
            return Ok(HybridSearchContextReply { revision: statistics.revision, ..reply });
        };
        let selection = self.selection(request.include_images, explain, self.shown_chars());
        let search = FtsSearch { query: parsed, ranking_cap: self.config.fts_ranking_cap };
        let found = self
            .store
            .fts_search(&caller.owner, search, filter, page, selection, Self::read(min_revision))
            .await
            .map_err(crate::store_error)?;
        let FtsPage { entries, used_fallback: _, capped_at, revision, plan } = found;
        // With one leg the fused order is that leg's order, so its page is the page.
        let first_rank = i64::try_from(page.offset).unwrap_or(i64::MAX - 200) + 1;
        reply.results = entries
            .into_iter()
            .zip(first_rank..)
            .map(|(ScoredEntry { entry, score }, rank)| {
                let scores = HybridScores {
                    rrf: 1.0 / (k as f64 + rank as f64),
                    fts_rank: Some(rank),
                    semantic_rank: None,
                    fts_score: Some(score),
                    semantic_distance: None,
                    rerank_score: None,
                };
                self.hit(entry, Some(Scores::Hybrid(scores)), None)
            })
            .collect();
        reply.count = reply.results.len() as i64;
        reply.fts_count = first_rank - 1 + reply.count;
        reply.stats = explain.then(|| self.stats(started, filters, reply.results.len(), plan, capped_at));
        reply.warnings.extend(capped_at.map(cap_warning));
        reply.revision = revision;
        Ok(reply)
    }
}

/// The searches a caller wants fused.
struct Legs {
    fts: bool,
    semantic: bool,
}

fn parse_legs(modes: Option<Vec<String>>, violations: &mut Violations) -> Legs {
    let Some(modes) = modes else { return Legs { fts: true, semantic: true } };
    let mut legs = Legs { fts: false, semantic: false };
    if modes.is_empty() {
        violations.push("search_modes", "`search_modes` is empty; it must hold `fts`, `semantic` or both");
    }
    for (i, mode) in modes.iter().enumerate() {
        match mode.as_str() {
            "fts" => legs.fts = true,
            "semantic" => legs.semantic = true,
            other => {
                let shown: String = other.chars().take(40).collect();
                violations.push(format!("search_modes[{i}]"), format!("`search_modes[{i}]` is `{shown}`; it must be `fts` or `semantic`"));
            }
        }
    }
    legs
}
