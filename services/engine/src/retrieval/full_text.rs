//! Full-text search.

use std::collections::HashMap;
use std::time::Instant;

use context_model::{
    Error, FtsScores, FtsSearchContextReply, FtsSearchContextRequest, Operation, Reason, Result,
    Scores, Violations,
};
use context_store::{FtsPage, FtsSearch, StoredEntry};
use context_text::{Mode, Query};

use super::Retrieval;
use super::hits::sound;
use super::ranked::{cap_warning, ranked_page};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Characters of a highlighted snippet, at most.
const SNIPPET_CHARS: usize = 300;

impl Retrieval {
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
        if !self.search.fts_on() {
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
                .statistics(&caller.owner, None, read::at(min_revision))
                .await
                .map_err(store_error)?;
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
            ranking_cap: self.search.fts_ranking_cap,
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
                read::at(min_revision),
            )
            .await
            .map_err(store_error)?;
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
        let (entries, damaged) = sound(entries.into_iter().map(|scored| scored.entry).collect());
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
