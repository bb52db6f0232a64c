//! Searching by filters and by words.

use std::collections::HashMap;
use std::time::Instant;

use context_model::{
    Error, FtsScores, FtsSearchContextReply, FtsSearchContextRequest, Limits, Operation,
    QueryStats, Reason, Result, Scores, SearchContextReply, SearchContextRequest, Violations,
};
use context_store::{FtsPage, FtsSearch, Page, RowSelection, StoredEntry};
use context_text::{Mode, Query};

use crate::{Caller, Engine, hits, validate};

/// Characters of a highlighted snippet, at most.
const SNIPPET_CHARS: usize = 300;

impl Engine {
    /// Entries that satisfy the filters, newest first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field; `RESULT_TOO_LARGE`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn search_context(
        &self,
        caller: &Caller,
        mut request: SearchContextRequest,
    ) -> Result<SearchContextReply> {
        caller.require(Operation::SearchContext)?;
        let started = Instant::now();
        let mut violations = Violations::default();
        let page = validate::page(
            request.limit,
            request.offset,
            30,
            100,
            i64::from(u32::MAX),
            &mut violations,
        );
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.take_filters(), &mut violations);
        violations.finish(())?;
        let explain = request.explain_query.unwrap_or(false);
        let selection = self.selection(caller, request.include_images, explain, self.shown_chars());
        let found = self
            .store
            .search_contexts(
                &caller.owner,
                filter,
                page,
                selection,
                Self::read(min_revision),
            )
            .await
            .map_err(crate::store_error)?;
        let (entries, _) = hits::sound(found.entries);
        let results: Vec<_> = entries
            .into_iter()
            .map(|entry| self.hit(entry, None, None))
            .collect();
        let stats = explain.then(|| self.stats(started, filters, results.len(), found.plan, None));
        Ok(SearchContextReply {
            count: results.len() as i64,
            results,
            stats,
            revision: found.revision,
        })
    }

    /// Entries whose text matches the query, best first.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming each bad field, with the position for a malformed boolean query;
    /// `FEATURE_UNAVAILABLE` when full-text search is off; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn fts_search_context(
        &self,
        caller: &Caller,
        mut request: FtsSearchContextRequest,
    ) -> Result<FtsSearchContextReply> {
        caller.require(Operation::FtsSearchContext)?;
        let started = Instant::now();
        if !self.config.fts_on() {
            return Err(Error::new(
                Reason::FeatureUnavailable,
                "full-text search is switched off by ENABLE_FTS=false",
            ));
        }
        let mut violations = Violations::default();
        validate::query(&request.query, &mut violations);
        let (mode_name, mode) = parse_mode(request.mode.as_deref(), &mut violations);
        let page = ranked_page(request.limit, request.offset, &mut violations);
        let min_revision = validate::min_revision(request.min_revision, &mut violations);
        let (filter, filters) = caller.filter(request.take_filters(), &mut violations);
        let parsed = if violations.is_empty() {
            context_text::parse(mode, &request.query, &self.analyzer).unwrap_or_else(|error| {
                violations.push(
                    "query",
                    format!(
                        "`query` is malformed at character {}: {}",
                        error.position, error.message
                    ),
                );
                None
            })
        } else {
            None
        };
        violations.finish(())?;

        let explain = request.explain_query.unwrap_or(false);
        let highlight = request.highlight.unwrap_or(false);
        let mut reply = FtsSearchContextReply {
            query: request.query,
            mode: mode_name.to_owned(),
            language: self.analyzer.language().name().to_owned(),
            fts_available: true,
            results: Vec::new(),
            count: 0,
            stats: None,
            warnings: Vec::new(),
            revision: 0,
        };
        let Some(parsed) = parsed else {
            // Nothing in the query can be searched for: punctuation, emoji.
            let statistics = self
                .store
                .statistics(&caller.owner, Self::read(min_revision))
                .await
                .map_err(crate::store_error)?;
            reply.stats = explain.then(|| self.stats(started, filters, 0, Vec::new(), None));
            return Ok(FtsSearchContextReply {
                revision: statistics.revision,
                ..reply
            });
        };
        let selection = self.selection(
            caller,
            request.include_images,
            explain,
            if highlight { None } else { self.shown_chars() },
        );
        let search = FtsSearch {
            query: parsed.clone(),
            ranking_cap: self.config.fts_ranking_cap,
            context_weight: 0.0,
        };
        let found = self
            .store
            .fts_search(
                &caller.owner,
                search,
                filter,
                page,
                selection,
                Self::read(min_revision),
            )
            .await
            .map_err(crate::store_error)?;
        let FtsPage {
            entries,
            used_fallback,
            capped_at,
            revision,
            plan,
        } = found;
        let scores: HashMap<i64, f64> = entries
            .iter()
            .map(|scored| (scored.entry.id, scored.score))
            .collect();
        let (entries, damaged) =
            hits::sound(entries.into_iter().map(|scored| scored.entry).collect());
        let snippets = if highlight {
            let query = if used_fallback {
                parsed.loosest().clone()
            } else {
                parsed.query
            };
            self.snippets(&entries, query).await?
        } else {
            vec![None; entries.len()]
        };
        reply.results = entries
            .into_iter()
            .zip(snippets)
            .map(|(entry, snippet)| {
                let score = scores.get(&entry.id).copied().unwrap_or_default();
                self.hit(
                    entry,
                    Some(Scores::Fts(FtsScores {
                        fts_score: score,
                        fts_rank: None,
                        rerank_score: None,
                    })),
                    snippet,
                )
            })
            .collect();
        reply.count = reply.results.len() as i64;
        reply.stats =
            explain.then(|| self.stats(started, filters, reply.results.len(), plan, capped_at));
        reply.warnings.extend(capped_at.map(cap_warning));
        reply.warnings.extend(damaged);
        reply.revision = revision;
        Ok(reply)
    }

    pub(crate) fn selection(
        &self,
        caller: &Caller,
        include_images: Option<bool>,
        explain: bool,
        text_chars: Option<u32>,
    ) -> RowSelection {
        RowSelection {
            images: include_images.unwrap_or(false),
            text_chars,
            explain,
            max_bytes: self.max_reply_bytes(),
            memory: caller.memory.clone(),
        }
    }

    pub(crate) fn stats(
        &self,
        started: Instant,
        filters: usize,
        rows: usize,
        query_plan: Vec<String>,
        capped_at: Option<u32>,
    ) -> QueryStats {
        QueryStats {
            execution_time_ms: (started.elapsed().as_secs_f64() * 1e6).round() / 1e3,
            filters_applied: filters as i64,
            rows_returned: rows as i64,
            backend: self.store.backend().to_owned(),
            query_plan,
            ranking_cap: capped_at.map(i64::from),
        }
    }

    /// Marks the hits. Texts may be long, so this does not run on an async worker.
    async fn snippets(&self, entries: &[StoredEntry], query: Query) -> Result<Vec<Option<String>>> {
        let analyzer = self.analyzer.clone();
        let texts: Vec<String> = entries.iter().map(|entry| entry.text.clone()).collect();
        let mark = move || {
            texts
                .iter()
                .map(|text| {
                    Some(context_text::highlight(
                        text,
                        &query,
                        &analyzer,
                        SNIPPET_CHARS,
                    ))
                })
                .collect()
        };
        tokio::task::spawn_blocking(mark)
            .await
            .map_err(Error::internal)
    }
}

pub(crate) fn ranked_page(
    limit: Option<i64>,
    offset: Option<i64>,
    violations: &mut Violations,
) -> Page {
    validate::page(limit, offset, 5, 100, Limits::MAX_RANKED_OFFSET, violations)
}

pub(crate) fn cap_warning(cap: u32) -> String {
    format!("more than {cap} entries match; the newest {cap} of them were ranked")
}

fn parse_mode(given: Option<&str>, violations: &mut Violations) -> (&'static str, Mode) {
    match given.unwrap_or("match") {
        "match" => ("match", Mode::Match),
        "prefix" => ("prefix", Mode::Prefix),
        "phrase" => ("phrase", Mode::Phrase),
        "boolean" => ("boolean", Mode::Boolean),
        other => {
            let shown: String = other.chars().take(40).collect();
            violations.push(
                "mode",
                format!("`mode` is `{shown}`; it must be one of match, prefix, phrase, boolean"),
            );
            ("match", Mode::Match)
        }
    }
}
