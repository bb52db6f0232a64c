//! The common steps of searches whose results are reranked: rank ids with the retrievers, rerank the best candidates,
//! and read the entries of the page.

#![expect(clippy::disallowed_methods, reason = "measures how long ranking takes")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use context_model::{Filter, Limits, Reason, Result, Scores, SearchHit, Violations};
use context_providers::Reading;
use context_store::{DocumentKind, Page, RankSearch, Ranking, Read, SemanticHit, StoredEntry};
use context_text::Parsed;

use super::Retrieval;
use super::evidence::Evidence;
use super::fusion::{DEEP, FIRST_PART};
use super::hits::milliseconds;
use super::relevance::{CLEARLY_RELEVANT, Crowd, MAX_CONSIDERED};
use super::rerank::{CANDIDATES, Candidate, EncodedQuery, RerankQuery, Reranked};
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Maximum number of results on a page.
const MAX_LIMIT: i64 = 100;

/// The possible depths of a ranking. The first has room for a usual page and for the candidates of reranking. At the
/// next two, the parts of a fused ranking end. The last one has room for the last page and one more entry.
const DEPTHS: [u32; 4] = [
    64,
    FIRST_PART as u32,
    DEEP as u32,
    (Limits::MAX_RANKED_OFFSET + MAX_LIMIT + 1) as u32,
];

/// Maximum number of attempts for one page. The search ranks again if entries of the page changed after the ranking.
/// Each attempt also reranks, with the whole time limit of reranking.
const MAX_ATTEMPTS: u32 = 3;

/// A search with a validated request and an embedded query.
pub(super) struct RankedSearch<'r> {
    pub query: &'r str,
    /// The query's token vectors for reranking, if the semantic retriever created them.
    pub encoded: Option<EncodedQuery>,
    /// The query of each retriever, and the depth of the ranking. Its kind is ignored.
    pub rank: RankSearch,
    /// The kinds of documents that are ranked. Not empty.
    pub kinds: Vec<DocumentKind>,
    pub filter: Filter,
    pub page: Page,
    /// Entries with a lower relevance are dropped. So are all after the first [`MAX_CONSIDERED`], whose relevance is
    /// not computed.
    pub min_relevance: Option<f64>,
    /// Whether results show their relevance and, of a long text, the part that matches, and a warning says when the
    /// relevance is low.
    pub shows_relevance: bool,
    /// How well the embedding model reads the query. If it cannot, the relevance ignores its vectors, and late
    /// interaction does not run.
    pub reading: Reading,
    pub min_revision: Option<i64>,
    pub include_images: Option<bool>,
    /// The words that are marked in a passage of each result. `None` for results without such a passage.
    pub highlight: Option<Parsed>,
}

/// An entry in the ranking of a search.
pub(super) trait RankedHit: Copy {
    /// Maximum number of entries that late interaction reranks in a search with such hits.
    const MAX_RERANKED: u32 = CANDIDATES;

    /// The entry as a candidate for reranking.
    fn candidate(self) -> Candidate;

    /// The semantic retriever's hit, if it found the entry.
    fn semantic(&mut self) -> Option<&mut SemanticHit>;

    /// The scores in the entry's result. `rerank_score` is `None` when reranking is off, and `Some(None)` for an entry
    /// that was not reranked.
    fn scores(self, rerank_score: Option<Option<f64>>) -> Scores;
}

/// The results of one page.
pub(super) struct RankedPage {
    /// The results, best first.
    pub results: Vec<SearchHit>,
    /// Whether more entries follow the page.
    pub has_more: bool,
    /// The rankings of the retrievers.
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
            let results = if changed == 1 {
                "1 result was changed during the search and left out".to_owned()
            } else {
                format!("{changed} results were changed during the search and left out")
            };
            page.warnings.push(format!("{results}; search again"));
        }
        Ok(page)
    }

    /// Ranks and reranks, computes the relevances and reads the entries of the page, each once. Returns the page, and
    /// how many of its entries changed after the ranking. Those are left out.
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
        let reranked = if search.reading.is_possible || self.has_reranker() {
            // Reranking reads the nearest chunk of each candidate, which only exact hits have.
            let chosen = self.chosen_for_reranking(&candidates, H::MAX_RERANKED);
            if self
                .replace_estimates(caller, search, &mut hits, &chosen)
                .await?
            {
                candidates = hits.iter().map(|hit| hit.candidate()).collect();
            }
            let query = RerankQuery {
                text: search.query,
                encoded: search.encoded.clone(),
                fragmentation: search.reading.fragmentation,
                max_candidates: H::MAX_RERANKED,
                is_first_page: search.page.offset == 0,
            };
            self.rerank(caller, query, &candidates, &mut plan).await
        } else {
            Reranked::unchanged(&candidates)
        };
        let (mut order, rerank_warning) = (reranked.order, reranked.warning);
        let considered = considered(search, &order, &reranked.interaction.coverage);
        // The relevances and the snippets also read the nearest chunks, and the results show the distances.
        if self
            .replace_estimates(caller, search, &mut hits, &considered)
            .await?
        {
            candidates = hits.iter().map(|hit| hit.candidate()).collect();
        }
        let rated: Vec<Candidate> = candidates
            .iter()
            .filter(|candidate| considered.contains(&candidate.id))
            .copied()
            .collect();
        let ids_of = |page: &[(i64, Option<f64>)]| page.iter().map(|(id, _)| *id).collect();
        // Unless a relevance decides what the page shows, the page is read first: the relevances need its texts.
        let read = match search.min_relevance {
            None => {
                let ids = ids_of(in_page(&order, search.page));
                let read = self.page(caller, search, ids, &candidates, ranking.revision);
                Some(read.await?)
            }
            Some(_) => None,
        };
        let texts = read.as_ref().and_then(ReadPage::texts);
        // Similarities to a query that the model cannot read say nothing.
        let crowd = search.reading.is_possible.then_some(&search.rank);
        let crowd = crowd.and_then(|rank| Crowd::of(rank, &ranking));
        let relevances = self
            .relevances(
                caller,
                search.query,
                crowd.as_ref(),
                &reranked.interaction,
                &rated,
                texts,
            )
            .await?;
        let highest = relevances
            .values()
            .map(|relevance| relevance.value)
            .fold(0.0, f64::max);
        if !reranked.interaction.scores.is_empty() {
            // The scores of a blend compare the candidates of one search, so the best candidate has a high score even
            // if it is irrelevant. Multiplied by the highest relevance, this score becomes low.
            for (_, score) in &mut order {
                *score = score.map(|score| score * highest);
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
        let ReadPage {
            entries,
            mut evidence,
        } = match read {
            Some(read) => read,
            None => {
                self.page(caller, search, ids_of(shown), &candidates, ranking.revision)
                    .await?
            }
        };
        let entries = Arc::new(entries);
        if let Some(evidence) = &mut evidence {
            self.compare_sentences(search, &entries, evidence, &mut plan)
                .await;
        }
        // This is the only reference again, so nothing is copied.
        let entries = Arc::unwrap_or_clone(entries);
        let changed = shown.len() - entries.len();

        let mut warnings: Vec<String> = rerank_warning.into_iter().collect();
        warnings.extend(relevance_warning(search, &order, highest, hits.len()));
        warnings.extend(ranking.capped_at.map(cap_warning));
        let rerank_scores: HashMap<i64, Option<f64>> = shown.iter().copied().collect();
        let reranks = self.reranks();
        let scores: HashMap<i64, Scores> = candidates
            .iter()
            .zip(&hits)
            .filter_map(|(candidate, hit)| {
                let rerank_score = *rerank_scores.get(&candidate.id)?;
                // A score of a model that has just left is shown too.
                let is_present = reranks || rerank_score.is_some();
                Some((candidate.id, hit.scores(is_present.then_some(rerank_score))))
            })
            .collect();
        let highlight = search.highlight.clone();
        let highlighted = highlight.map(|query| query.that_ran(ranking.used_fallback));
        let (mut results, damaged) = self.results(entries, scores, highlighted, evidence).await?;
        if search.shows_relevance {
            for hit in &mut results {
                hit.relevance = relevances.get(&hit.id).map(|relevance| relevance.value);
            }
        }
        warnings.extend(damaged);
        let end = search.page.offset + u64::from(search.page.limit);
        let page = RankedPage {
            results,
            has_more: order.len() as u64 > end,
            ranking,
            warnings,
            plan,
            search_ms,
        };
        Ok((page, changed))
    }

    /// Replaces the estimated distances of these entries by exact ones. Returns whether any distance was an estimate.
    /// An entry that has lost its vectors meanwhile keeps its estimate. It changed after the ranking, so the read of
    /// the page omits it.
    async fn replace_estimates<H: RankedHit>(
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
        let exact_hits = self
            .store
            .vectors()
            .exact_distances(
                &caller.owner,
                semantic.clone(),
                estimated.keys().copied().collect(),
                read::at(search.min_revision),
            )
            .await
            .map_err(store_error)?;
        for exact in exact_hits {
            if let Some(hit) = estimated.get_mut(&exact.id) {
                **hit = exact;
            }
        }
        Ok(true)
    }

    /// Runs the retrievers.
    async fn rank(&self, caller: &Caller, search: &RankedSearch<'_>) -> Result<Ranking> {
        let read = read::at(search.min_revision);
        if search.rank.fts.is_none() && search.rank.semantic.is_none() {
            // Only full-text search is requested or available, and the query contains only punctuation or emoji.
            let revision = self.revision(caller, read).await?;
            return Ok(Ranking {
                revision,
                ..Ranking::default()
            });
        }
        let mut ranking: Option<Ranking> = None;
        for kind in &search.kinds {
            let rank = RankSearch {
                kind: *kind,
                ..search.rank.clone()
            };
            let of_kind = self
                .store
                .vectors()
                .rank(&caller.owner, rank, search.filter.clone(), read)
                .await
                .map_err(store_error)?;
            ranking = Some(match ranking {
                None => of_kind,
                Some(others) => merged(others, of_kind, search.rank.depth as usize),
            });
        }
        Ok(ranking.unwrap_or_default())
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

    /// The query's words and the nearest chunk of each of these entries, by which the evidence in the texts is found.
    fn evidence(
        &self,
        search: &RankedSearch<'_>,
        candidates: &[Candidate],
        ids: &[i64],
    ) -> Evidence {
        let chunk = |candidate: &Candidate| {
            let is_shown = search.reading.is_possible && ids.contains(&candidate.id);
            Some((candidate.id, candidate.best_chunk.filter(|_| is_shown)?))
        };
        Evidence {
            words: context_text::content_words(search.query, &self.analyzer),
            chunks: candidates.iter().filter_map(chunk).collect(),
            similarities: HashMap::new(),
        }
    }

    /// Reads the entries with these ids, in this order. If results show evidence, it reads as much of the texts as this
    /// needs, unless so much text would exceed the size of a reply. The read omits entries that changed after
    /// `revision`. They may no longer match the filter, and they differ from the state at the reply's revision.
    async fn page(
        &self,
        caller: &Caller,
        search: &RankedSearch<'_>,
        ids: Vec<i64>,
        candidates: &[Candidate],
        revision: i64,
    ) -> Result<ReadPage> {
        if ids.is_empty() {
            return Ok(ReadPage::default());
        }
        let evidence = search
            .shows_relevance
            .then(|| self.evidence(search, candidates, &ids));
        let get = async |text_chars| {
            let selection = self.selection(caller, search.include_images, false, text_chars);
            let read = Read {
                as_of: Some(revision),
                ..read::at(Some(revision))
            };
            let found = self.read_ids(caller, ids.clone(), selection, read).await;
            found.map_err(store_error)
        };
        let shown = self.text_chars_to_read(search.highlight.is_some());
        let wanted = match (shown, &evidence) {
            (Some(shown), Some(evidence)) => Some(shown.max(evidence.text_chars())),
            _ => shown,
        };
        let (mut entries, evidence) = match get(wanted).await {
            Err(error) if error.reason == Reason::ResultTooLarge && wanted != shown => {
                (get(shown).await?, None)
            }
            entries => (entries?, evidence),
        };
        entries.sort_by_key(|entry| ids.iter().position(|id| *id == entry.id));
        Ok(ReadPage { entries, evidence })
    }
}

/// The entries of a page as they were read.
#[derive(Default)]
struct ReadPage {
    entries: Vec<StoredEntry>,
    /// What their evidence is found by. `None` if results show no evidence, or if too little of the texts was read.
    evidence: Option<Evidence>,
}

impl ReadPage {
    /// The entries, if enough of their texts was read for the relevance.
    fn texts(&self) -> Option<&[StoredEntry]> {
        self.evidence.as_ref().map(|_| self.entries.as_slice())
    }
}

/// Merges two rankings, best first. The revision is that of the earlier read, so entries that changed between the reads
/// count as changed.
fn merged(one: Ranking, other: Ranking, depth: usize) -> Ranking {
    let mut fts = [one.fts, other.fts].concat();
    fts.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    fts.truncate(depth);
    let mut semantic = [one.semantic, other.semantic].concat();
    semantic.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(b.id.cmp(&a.id)));
    semantic.truncate(depth);
    Ranking {
        fts,
        semantic,
        used_fallback: one.used_fallback || other.used_fallback,
        capped_at: one.capped_at.max(other.capped_at),
        revision: one.revision.min(other.revision),
        plan: [one.plan, other.plan].concat(),
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

/// The smallest of [`DEPTHS`] that holds the page, one entry more and `at_least` entries, so that adjacent pages
/// usually come from the same ranking.
pub(super) fn depth(page: Page, at_least: u32) -> u32 {
    let needed = needed(page, at_least);
    DEPTHS
        .into_iter()
        .find(|depth| u64::from(*depth) >= needed)
        .unwrap_or(DEPTHS[DEPTHS.len() - 1])
}

/// The number of entries up to the end of the page and one more, but at least `at_least`.
pub(super) fn needed(page: Page, at_least: u32) -> u64 {
    let up_to_next = page.offset.saturating_add(u64::from(page.and_one().limit));
    up_to_next.max(u64::from(at_least))
}

/// The warning when more entries matched than were ranked.
pub(super) fn cap_warning(cap: u32) -> String {
    format!("more than {cap} entries match; the newest {cap} of them were ranked")
}

/// The warning when no entry is clearly relevant, or none is as relevant as requested. `highest` is the highest
/// relevance and `found` the number of entries, both before entries were dropped.
fn relevance_warning(
    search: &RankedSearch<'_>,
    order: &[(i64, Option<f64>)],
    highest: f64,
    found: usize,
) -> Option<String> {
    match search.min_relevance {
        Some(min) if order.is_empty() && found > 0 => Some(format!(
            "no entry has a relevance of at least {min}; the highest is {highest:.2}"
        )),
        None if search.shows_relevance
            && !order.is_empty()
            && search.page.offset == 0
            && highest < CLEARLY_RELEVANT =>
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

/// The entries whose relevance matters: those that the page may show with it, and those that late interaction read,
/// because their scores depend on the highest relevance among them.
fn considered(
    search: &RankedSearch<'_>,
    order: &[(i64, Option<f64>)],
    coverage: &HashMap<i64, f64>,
) -> HashSet<i64> {
    let shown = match search.min_relevance {
        Some(_) => &order[..order.len().min(MAX_CONSIDERED as usize)],
        None if search.shows_relevance => in_page(order, search.page),
        None => &[],
    };
    let shown = shown.iter().map(|(id, _)| *id);
    shown.chain(coverage.keys().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranking_holds_the_page_one_entry_more_and_what_is_considered() {
        let page = |offset, limit| Page { limit, offset };
        assert_eq!(depth(page(0, 5), 50), 64);
        assert_eq!(depth(page(0, 63), 50), 64);
        assert_eq!(depth(page(0, 64), 50), 200, "one entry more");
        assert_eq!(depth(page(0, 5), MAX_CONSIDERED), 200);
        assert_eq!(depth(page(10_000, 100), MAX_CONSIDERED), DEPTHS[3]);
    }
}
