//! Full-text search.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a search takes"
)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use context_model::{
    Error, Filter, FtsMode, FtsScores, FtsSearchContextReply, FtsSearchContextRequest, Operation,
    Reason, Result, Scores, SearchHit, Violations,
};
use context_store::{
    DocumentKind, FtsHit, FtsPage, FtsSearch, Page, RankSearch, ScoredEntry, SemanticHit,
};
use context_text::{Mode, Parsed};

use super::Retrieval;
use super::ranked::{RankedHit, RankedPage, RankedSearch, cap_warning, depth, requested_page};
use super::rerank::Candidate;
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

impl Retrieval {
    /// Returns the entries whose text matches the query, best first. When reranking is on, the best matches are
    /// reranked.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field, and the position of the mistake in a malformed boolean query;
    /// `FEATURE_UNAVAILABLE` when full-text search is off; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn fts_search_context(
        &self,
        caller: &Caller,
        request: FtsSearchContextRequest,
    ) -> Result<FtsSearchContextReply> {
        caller.require(Operation::FtsSearchContext)?;
        let started = Instant::now();
        if !self.search.fts_on() {
            return Err(Error::new(
                Reason::FeatureUnavailable,
                "full-text search is switched off by ENABLE_FTS=false",
            ));
        }
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let (mode_name, mode) = parse_mode(request.mode.as_deref(), &mut violations);
        let page = requested_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.filters, &mut violations);
        violations.finish(())?;
        let parsed = self.parse(mode, &request.query)?;

        let explain = request.explain_query.unwrap_or(false);
        let mut reply = FtsSearchContextReply {
            query: request.query,
            mode: mode_name.as_str().to_owned(),
            language: self.language().to_owned(),
            fts_available: true,
            results: Vec::new(),
            count: 0,
            has_more: false,
            stats: None,
            warnings: Vec::new(),
            revision: 0,
        };
        let Some(parsed) = parsed else {
            // The query has only punctuation or emoji, except after `NOT`.
            reply.revision = self.revision(caller, read::at(min_revision)).await?;
            reply.stats = explain.then(|| self.stats(started, filters, 0, Vec::new(), None));
            return Ok(reply);
        };
        let read = read::at(min_revision);
        let (parsed, rarest_line) = self
            .with_rarest_terms(caller, &[DocumentKind::Context], parsed, read)
            .await?;
        let search = FullTextSearch {
            fts: FtsSearch {
                query: parsed,
                ranking_cap: self.search.fts_ranking_cap,
                context_weight: 0.0,
            },
            filter,
            page,
            min_revision,
            include_images: request.include_images,
            highlight: request.highlight.unwrap_or(false),
            explain,
        };
        let found = if self.reranks() {
            self.reranked(caller, &reply.query, mode, search).await?
        } else {
            self.in_one_read(caller, search).await?
        };
        let Found {
            results,
            has_more,
            warnings,
            mut plan,
            capped_at,
            revision,
        } = found;
        plan.extend(rarest_line);
        reply.count = results.len() as i64;
        reply.stats = explain.then(|| self.stats(started, filters, results.len(), plan, capped_at));
        reply.results = results;
        reply.has_more = has_more;
        reply.warnings = warnings;
        reply.revision = revision;
        Ok(reply)
    }

    /// Ranks, reranks the best matches, and reads the entries of the page. These are separate reads of the store.
    async fn reranked(
        &self,
        caller: &Caller,
        query: &str,
        mode: Mode,
        search: FullTextSearch,
    ) -> Result<Found> {
        let FullTextSearch {
            fts,
            filter,
            page,
            min_revision,
            include_images,
            highlight,
            explain,
        } = search;
        // A reranker would take operators for words, and excluded words for wanted ones.
        let query: Cow<'_, str> = match mode {
            Mode::Boolean => fts.query.query.wanted_words().join(" ").into(),
            Mode::Match | Mode::Prefix | Mode::Phrase => query.into(),
        };
        let highlight = highlight.then(|| fts.query.clone());
        let search = RankedSearch {
            query: &query,
            encoded: None,
            rank: RankSearch {
                kind: DocumentKind::Context,
                fts: Some(fts),
                semantic: None,
                depth: depth(page, self.max_reranked(FtsHit::MAX_RERANKED)),
                exact: 0,
                boundaries: &[],
                explain,
            },
            kinds: vec![DocumentKind::Context],
            filter,
            page,
            min_relevance: None,
            shows_relevance: false,
            reading: self.reading(&query),
            min_revision,
            include_images,
            highlight,
        };
        let RankedPage {
            results,
            has_more,
            ranking,
            warnings,
            plan,
            search_ms: _,
        } = self
            .ranked_page(caller, &search, |ranking| ranking.fts.clone())
            .await?;
        Ok(Found {
            results,
            has_more,
            warnings,
            plan,
            capped_at: ranking.capped_at,
            revision: ranking.revision,
        })
    }

    /// Ranks, and reads the entries of the page in the same read.
    async fn in_one_read(&self, caller: &Caller, search: FullTextSearch) -> Result<Found> {
        let FullTextSearch {
            fts,
            filter,
            page,
            min_revision,
            include_images,
            highlight,
            explain,
        } = search;
        let query = highlight.then(|| fts.query.clone());
        let text_chars = self.text_chars_to_read(highlight);
        let selection = self.selection(caller, include_images, explain, text_chars);
        let read = read::at(min_revision);
        let FtsPage {
            entries,
            has_more,
            used_fallback,
            capped_at,
            revision,
            plan,
        } = self
            .store
            .fts_search(&caller.owner, fts, filter, page, selection, read)
            .await
            .map_err(store_error)?;
        let scores = |scored: &ScoredEntry| {
            let hit = FtsHit {
                id: scored.entry.id,
                score: scored.score,
            };
            (hit.id, hit.scores(None))
        };
        let scores: HashMap<i64, Scores> = entries.iter().map(scores).collect();
        let entries = entries.into_iter().map(|scored| scored.entry).collect();
        let highlighted = query.map(|query| query.that_ran(used_fallback));
        let (results, damaged) = self.results(entries, scores, highlighted, None).await?;
        let mut warnings: Vec<String> = capped_at.map(cap_warning).into_iter().collect();
        warnings.extend(damaged);
        Ok(Found {
            results,
            has_more,
            warnings,
            plan,
            capped_at,
            revision,
        })
    }

    /// Parses the query for the store. `None` when it has no words to search for.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the position of the mistake in a malformed boolean query.
    fn parse(&self, mode: Mode, query: &str) -> Result<Option<Parsed>> {
        context_text::parse(mode, query, &self.analyzer).map_err(|error| {
            let description = format!(
                "`query` is malformed at character {}: {}",
                error.position, error.message
            );
            Error::invalid("query", description)
        })
    }
}

/// A validated full-text search.
struct FullTextSearch {
    fts: FtsSearch,
    filter: Filter,
    page: Page,
    min_revision: Option<i64>,
    include_images: Option<bool>,
    highlight: bool,
    explain: bool,
}

/// The results of one page.
struct Found {
    results: Vec<SearchHit>,
    has_more: bool,
    warnings: Vec<String>,
    plan: Vec<String>,
    capped_at: Option<u32>,
    revision: i64,
}

impl RankedHit for FtsHit {
    fn semantic(&mut self) -> Option<&mut SemanticHit> {
        None
    }

    fn candidate(self) -> Candidate {
        Candidate {
            id: self.id,
            score: self.score,
            best_chunk: None,
        }
    }

    fn scores(self, rerank_score: Option<Option<f64>>) -> Scores {
        Scores::Fts(FtsScores {
            fts_score: self.score,
            fts_rank: None,
            rerank_score,
        })
    }
}

fn parse_mode(given: Option<&str>, violations: &mut Violations) -> (FtsMode, Mode) {
    let given = given.unwrap_or(FtsMode::Match.as_str());
    let name = FtsMode::parse(given).unwrap_or_else(|| {
        let shown: String = given.chars().take(40).collect();
        violations.push(
            "mode",
            format!("`mode` is `{shown}`; it must be one of match, prefix, phrase, boolean"),
        );
        FtsMode::Match
    });
    let mode = match name {
        FtsMode::Match => Mode::Match,
        FtsMode::Prefix => Mode::Prefix,
        FtsMode::Phrase => Mode::Phrase,
        FtsMode::Boolean => Mode::Boolean,
    };
    (name, mode)
}
