//! Full-text search.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a search takes"
)]

use std::collections::HashMap;
use std::time::Instant;

use context_model::{
    Error, FtsScores, FtsSearchContextReply, FtsSearchContextRequest, Operation, Reason, Result,
    Scores, SearchHit, Violations,
};
use context_store::{FtsPage, FtsSearch, ScoredEntry, StoredEntry};
use context_text::{Mode, Parsed, Query};

use super::Retrieval;
use super::hits::undamaged;
use super::ranked::{cap_warning, requested_page};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Maximum number of characters in a highlighted snippet.
const SNIPPET_CHARS: usize = 300;

impl Retrieval {
    /// Returns the entries whose text matches the query, best first.
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
            // The query contains only punctuation or emoji.
            reply.revision = self.revision(caller, read::at(min_revision)).await?;
            reply.stats = explain.then(|| self.stats(started, filters, 0, Vec::new(), None));
            return Ok(reply);
        };
        let snippet_query = highlight.then(|| parsed.clone());
        // Snippets need whole texts.
        let text_chars = if highlight {
            None
        } else {
            self.text_chars_to_read()
        };
        let selection = self.selection(caller, request.include_images, explain, text_chars);
        let search = FtsSearch {
            query: parsed,
            ranking_cap: self.search.fts_ranking_cap,
            context_weight: 0.0,
        };
        let FtsPage {
            entries,
            used_fallback,
            capped_at,
            revision,
            plan,
        } = self
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
        let snippet_query = snippet_query.map(|parsed| {
            if used_fallback {
                parsed.loosest().clone()
            } else {
                parsed.query
            }
        });
        let (results, damaged) = self.full_text_results(entries, snippet_query).await?;
        reply.results = results;
        reply.count = reply.results.len() as i64;
        reply.stats =
            explain.then(|| self.stats(started, filters, reply.results.len(), plan, capped_at));
        reply.warnings.extend(capped_at.map(cap_warning));
        reply.warnings.extend(damaged);
        reply.revision = revision;
        Ok(reply)
    }

    /// Parses the query for the store. `None` when it has no words.
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

    /// The results of a page, and a warning for each damaged entry. `snippet_query` is the query to highlight.
    async fn full_text_results(
        &self,
        scored: Vec<ScoredEntry>,
        snippet_query: Option<Query>,
    ) -> Result<(Vec<SearchHit>, Vec<String>)> {
        let scores: HashMap<i64, f64> = scored
            .iter()
            .map(|scored| (scored.entry.id, scored.score))
            .collect();
        let (entries, damaged) = undamaged(scored.into_iter().map(|scored| scored.entry).collect());
        let snippets = match snippet_query {
            Some(query) => self.snippets(&entries, query).await?,
            None => vec![None; entries.len()],
        };
        let hit = |(entry, snippet): (StoredEntry, Option<String>)| {
            let scores = Scores::Fts(FtsScores {
                fts_score: scores.get(&entry.id).copied().unwrap_or_default(),
                fts_rank: None,
                rerank_score: None,
            });
            self.hit(entry, Some(scores), snippet)
        };
        let hits = entries.into_iter().zip(snippets).map(hit).collect();
        Ok((hits, damaged))
    }

    /// Creates a snippet of each text with the query's words marked. Texts may be long, so this runs outside the async
    /// workers.
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
