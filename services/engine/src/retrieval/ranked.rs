//! The common steps of searches whose results are reranked: rank ids with the retrievers, rerank the best candidates,
//! and read the entries of the page.

#![expect(clippy::disallowed_methods, reason = "measures how long ranking takes")]

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use context_model::{Filter, Limits, Result, Scores, SearchHit, Violations};
use context_store::{Page, RankSearch, Ranking, Read, SemanticHit, StoredEntry};

use super::Retrieval;
use super::fusion::{DEEP, FIRST_PART};
use super::hits::milliseconds;
use super::relevance::{CLEARLY_RELEVANT, CONSIDERED, Relevance};
use super::rerank::{Candidate, EncodedQuery, Interaction, RerankQuery, Reranked};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Maximum number of results on a page.
const MAX_LIMIT: i64 = 100;

/// The possible depths of a ranking. The first has room for a page and for the candidates of reranking, the next two
/// are those at which the parts of a fused ranking end, and the last one has room for the last page.
const DEPTHS: [u32; 4] = [
    64,
    FIRST_PART as u32,
    DEEP as u32,
    (Limits::MAX_RANKED_OFFSET + MAX_LIMIT) as u32,
];

/// Maximum number of attempts for one page. The search ranks again if entries of the page changed after the ranking.
/// Each attempt also reranks, with the whole time limit of reranking.
const MAX_ATTEMPTS: u32 = 3;

/// A search with a validated request and an embedded query.
pub(super) struct RankedSearch<'r> {
    pub query: &'r str,
    /// The query's token vectors for reranking, if the semantic retriever created them.
    pub encoded: Option<EncodedQuery>,
    /// The query of each retriever, and the depth of the ranking.
    pub rank: RankSearch,
    pub filter: Filter,
    pub page: Page,
    /// Entries with a lower relevance are dropped.
    pub min_relevance: Option<f64>,
    /// Whether results show their relevance, and a warning says when it is low.
    pub shows_relevance: bool,
    /// Whether the embedding model can read the query. If not, its vectors say nothing.
    pub readable: bool,
    pub min_revision: Option<i64>,
    pub include_images: Option<bool>,
    /// Whether each result has a snippet with the words of the full-text query marked.
    pub highlight: bool,
}

/// An entry in the ranking of a search.
pub(super) trait RankedHit: Copy {
    /// The entry as a candidate for reranking.
    fn candidate(self) -> Candidate;

    /// What the semantic retriever found.
    fn semantic(&mut self) -> Option<&mut SemanticHit>;

    /// The scores in the entry's result.
    fn scores(self, rerank_score: Option<f64>) -> Scores;
}

/// The results of one page.
pub(super) struct RankedPage {
    /// The results, best first.
    pub results: Vec<SearchHit>,
    /// What the retrievers found.
    pub ranking: Ranking,
    /// The limitations of the results, one sentence each.
    pub warnings: Vec<String>,
    /// The query plan for `explain_query`, in lines.
    pub plan: Vec<String>,
    /// Duration of the store's ranking, in milliseconds.
    pub search_ms: f64,
}

impl Retrieval {
    /// Runs a ranked search and returns one page. `combine` turns the retrievers' rankings into one, best first.
    ///
    /// # Errors
    /// The store's errors. `FEATURE_UNAVAILABLE` if the database has no vectors of the query's model.
    pub(super) async fn ranked_page<H: RankedHit>(
        &self,
        caller: &Caller,
        search: &RankedSearch<'_>,
        combine: impl Fn(&Ranking) -> Vec<H>,
    ) -> Result<RankedPage> {
        for _ in 1..MAX_ATTEMPTS {
            let (page, changed) = self.attempt(caller, search, &combine).await?;
            if changed == 0 {
                return Ok(page);
            }
        }
        let (mut page, changed) = self.attempt(caller, search, &combine).await?;
        if changed > 0 {
            page.warnings.push(format!(
                "{changed} results changed during the search and were left out; search again"
            ));
        }
        Ok(page)
    }

    /// Ranks once. Returns the page, and how many of its entries changed after the ranking. Those are left out.
    async fn attempt<H: RankedHit>(
        &self,
        caller: &Caller,
        search: &RankedSearch<'_>,
        combine: impl Fn(&Ranking) -> Vec<H>,
    ) -> Result<(RankedPage, usize)> {
        let started = Instant::now();
        let mut ranking = self.rank(caller, search).await?;
        let search_ms = milliseconds(started);
        let mut plan = std::mem::take(&mut ranking.plan);

        let mut hits = combine(&ranking);
        let mut candidates: Vec<Candidate> = hits.iter().map(|hit| hit.candidate()).collect();
        let reranked = if search.readable || self.has_reranker() {
            // Reranking reads the nearest chunks, which only exact hits name.
            let chosen = self.chosen_for_reranking(&candidates);
            if self.measure(caller, search, &mut hits, &chosen).await? {
                candidates = hits.iter().map(|hit| hit.candidate()).collect();
            }
            let query = RerankQuery {
                text: search.query,
                encoded: search.encoded.clone(),
            };
            self.rerank(caller, query, &candidates, &mut plan).await
        } else {
            Reranked::unchanged(&candidates)
        };
        let (mut order, rerank_warning) = (reranked.order, reranked.warning);
        let considered = considered(search, &order, &reranked.interaction.scores);
        if self.measure(caller, search, &mut hits, &considered).await? {
            candidates = hits.iter().map(|hit| hit.candidate()).collect();
        }
        let weighed: Vec<Candidate> = candidates
            .iter()
            .filter(|candidate| considered.contains(&candidate.id))
            .copied()
            .collect();
        let relevances = self
            .relevances_of(caller, search, &ranking, &reranked.interaction, &weighed)
            .await?;
        let best = relevances
            .values()
            .map(|relevance| relevance.value)
            .fold(0.0, f64::max);
        if !reranked.interaction.scores.is_empty() {
            // The blend with late interaction says which candidate is best, even of a bad lot.
            for (_, score) in &mut order {
                *score = score.map(|score| score * best);
            }
        }
        if let Some(min) = search.min_relevance {
            order.retain(|(id, _)| {
                relevances
                    .get(id)
                    .is_some_and(|relevance| relevance.value >= min)
            });
        }

        let shown = in_page(&order, search.page);
        if search.rank.explain && search.shows_relevance {
            let of_shown = shown
                .iter()
                .filter_map(|(id, _)| Some((id, relevances.get(id)?)));
            plan.extend(of_shown.map(|(id, relevance)| format!("relevance of {id}: {relevance}")));
        }
        let ids: Vec<i64> = shown.iter().map(|(id, _)| *id).collect();
        let entries = self
            .entries_in_order(caller, ids, search, ranking.revision)
            .await?;
        let changed = shown.len() - entries.len();

        let mut warnings: Vec<String> = rerank_warning.into_iter().collect();
        warnings.extend(relevance_warning(search, &order, best, hits.len()));
        warnings.extend(ranking.capped_at.map(cap_warning));
        let rerank_scores: HashMap<i64, Option<f64>> = shown.iter().copied().collect();
        let scores: HashMap<i64, Scores> = candidates
            .iter()
            .zip(&hits)
            .filter_map(|(candidate, hit)| {
                let rerank_score = rerank_scores.get(&candidate.id)?;
                Some((candidate.id, hit.scores(*rerank_score)))
            })
            .collect();
        let highlighted = match &search.rank.fts {
            Some(fts) if search.highlight => {
                Some(fts.query.clone().that_ran(ranking.used_fallback))
            }
            _ => None,
        };
        let (mut results, damaged) = self.results(entries, scores, highlighted).await?;
        if search.shows_relevance {
            for hit in &mut results {
                hit.relevance = relevances.get(&hit.id).map(|relevance| relevance.value);
            }
        }
        warnings.extend(damaged);
        let page = RankedPage {
            results,
            ranking,
            warnings,
            plan,
            search_ms,
        };
        Ok((page, changed))
    }

    /// Replaces the estimated distances of these entries by exact ones. Returns whether there were any. An entry that
    /// has lost its vectors meanwhile keeps its estimate. It changed after the ranking, so the read of the page omits
    /// it.
    async fn measure<H: RankedHit>(
        &self,
        caller: &Caller,
        search: &RankedSearch<'_>,
        hits: &mut [H],
        entries: &HashSet<i64>,
    ) -> Result<bool> {
        let Some(semantic) = &search.rank.semantic else {
            return Ok(false);
        };
        let mut estimated: HashMap<i64, &mut SemanticHit> = hits
            .iter_mut()
            .filter_map(RankedHit::semantic)
            .filter(|hit| hit.chunk.is_none() && entries.contains(&hit.id))
            .map(|hit| (hit.id, hit))
            .collect();
        if estimated.is_empty() {
            return Ok(false);
        }
        let measured = self
            .store
            .vectors()
            .measure(
                &caller.owner,
                semantic.clone(),
                estimated.keys().copied().collect(),
                read::at(search.min_revision),
            )
            .await
            .map_err(store_error)?;
        for exact in measured {
            if let Some(hit) = estimated.get_mut(&exact.id) {
                **hit = exact;
            }
        }
        Ok(true)
    }

    /// The relevance of these candidates.
    async fn relevances_of(
        &self,
        caller: &Caller,
        search: &RankedSearch<'_>,
        ranking: &Ranking,
        interaction: &Interaction,
        candidates: &[Candidate],
    ) -> Result<HashMap<i64, Relevance>> {
        let mut rank = search.rank.clone();
        if !search.readable {
            rank.semantic = None;
        }
        self.relevances(
            caller,
            search.query,
            &rank,
            ranking,
            interaction,
            candidates,
        )
        .await
    }

    /// Runs the retrievers.
    async fn rank(&self, caller: &Caller, search: &RankedSearch<'_>) -> Result<Ranking> {
        let read = read::at(search.min_revision);
        if search.rank.fts.is_none() && search.rank.semantic.is_none() {
            // Only full-text search is available, and the query contains only punctuation or emoji.
            let revision = self.revision(caller, read).await?;
            return Ok(Ranking {
                revision,
                ..Ranking::default()
            });
        }
        self.store
            .vectors()
            .rank(
                &caller.owner,
                search.rank.clone(),
                search.filter.clone(),
                read,
            )
            .await
            .map_err(store_error)
    }

    /// The owner's revision, for a search that reads nothing else. The store has no cheaper read of it.
    pub(super) async fn revision(&self, caller: &Caller, read: Read) -> Result<i64> {
        let statistics = self
            .store
            .statistics(&caller.owner, None, read)
            .await
            .map_err(store_error)?;
        Ok(statistics.revision)
    }

    /// Reads the entries with these ids, in this order. The read omits entries that changed after `revision`. They may
    /// no longer match the filter, and they differ from the state at the reply's revision.
    async fn entries_in_order(
        &self,
        caller: &Caller,
        ids: Vec<i64>,
        search: &RankedSearch<'_>,
        revision: i64,
    ) -> Result<Vec<StoredEntry>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let text_chars = self.text_chars_to_read(search.highlight);
        let selection = self.selection(caller, search.include_images, false, text_chars);
        let read = Read {
            as_of: Some(revision),
            ..read::at(Some(revision))
        };
        let mut found = self
            .store
            .get_contexts(&caller.owner, ids.clone(), selection, read)
            .await
            .map_err(store_error)?
            .entries;
        found.sort_by_key(|entry| ids.iter().position(|id| *id == entry.id));
        Ok(found)
    }
}

/// The requested page of a ranked search.
pub(super) fn requested_page(
    limit: Option<i64>,
    offset: Option<i64>,
    violations: &mut Violations,
) -> Page {
    validate::page(
        limit,
        offset,
        5,
        MAX_LIMIT,
        Limits::MAX_RANKED_OFFSET,
        violations,
    )
}

/// The smallest of [`DEPTHS`] that holds the page and `at_least` entries, so that adjacent pages usually come from the
/// same ranking.
pub(super) fn depth(page: Page, at_least: u32) -> u32 {
    let wanted = page
        .offset
        .saturating_add(u64::from(page.limit))
        .max(u64::from(at_least));
    DEPTHS
        .into_iter()
        .find(|depth| u64::from(*depth) >= wanted)
        .unwrap_or(DEPTHS[DEPTHS.len() - 1])
}

/// The warning when more entries matched than were ranked.
pub(super) fn cap_warning(cap: u32) -> String {
    format!("more than {cap} entries match; the newest {cap} of them were ranked")
}

/// The warning when no entry is clearly relevant, or none is as relevant as requested. `best` is the highest relevance
/// of the entries in `order`, and `found` the number of entries before some were dropped.
fn relevance_warning(
    search: &RankedSearch<'_>,
    order: &[(i64, Option<f64>)],
    best: f64,
    found: usize,
) -> Option<String> {
    match search.min_relevance {
        Some(min) if order.is_empty() && found > 0 => Some(format!(
            "no entry has a relevance of at least {min}; the highest is {best:.2}"
        )),
        None if search.shows_relevance
            && !order.is_empty()
            && search.page.offset == 0
            && best < CLEARLY_RELEVANT =>
        {
            Some("no entry is clearly relevant to the query; these are the nearest".to_owned())
        }
        _ => None,
    }
}

/// The line of the plan with the durations.
pub(super) fn times(model_ms: f64, search_ms: f64) -> String {
    format!("times: query vector {model_ms:.1} ms, search {search_ms:.1} ms")
}

/// A page of a ranking.
fn in_page<T>(ranking: &[T], page: Page) -> &[T] {
    let start = usize::try_from(page.offset)
        .unwrap_or(usize::MAX)
        .min(ranking.len());
    let end = start.saturating_add(page.limit as usize).min(ranking.len());
    &ranking[start..end]
}

/// The entries whose relevance matters: those that the page may show and those that were reranked.
fn considered(
    search: &RankedSearch<'_>,
    order: &[(i64, Option<f64>)],
    interaction: &HashMap<i64, f64>,
) -> HashSet<i64> {
    let shown = match search.min_relevance {
        Some(_) => &order[..order.len().min(CONSIDERED)],
        None => in_page(order, search.page),
    };
    let shown = shown.iter().map(|(id, _)| *id);
    shown.chain(interaction.keys().copied()).collect()
}
