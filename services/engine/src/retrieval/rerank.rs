//! Reranking: sorts the best candidates again by comparing their texts with the query. It uses a reranker if one is
//! configured, or else late interaction.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long reranking takes"
)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_model::Timestamp;
use context_model::warnings::NOT_RERANKED;
use context_providers::{ProviderError, TokenVectors};
use context_store::{ChunkRange, StoreError, StoredEntry};

use super::Retrieval;
use super::embedding::ActiveModel;
use super::evidence::character_range;
use super::fusion::scale;
use super::hits::milliseconds;
use crate::access::Caller;
use crate::config::Switch;
use crate::read;

/// Maximum number of candidates to rerank. All others follow in their original order.
const CANDIDATES: u32 = 50;
/// Weight of the retrievers' scores in the blend with late interaction. The weight of late interaction is 1 minus this.
const RETRIEVAL_WEIGHT: f64 = 0.4;
/// Number of characters read of an entry whose best chunk is unknown because the semantic retriever did not find it.
const START_CHARS: u32 = 1_000;

/// An entry that may be reranked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub id: i64,
    /// The retrievers' score. Higher is better. It decides which candidates are reranked, and is blended with the score
    /// of late interaction.
    pub score: f64,
    /// The entry's chunk that is nearest to the query, if the semantic retriever found the entry.
    pub best_chunk: Option<ChunkRange>,
}

/// The vectors of a query's tokens, and the model that made them.
pub(super) type EncodedQuery = (Arc<ActiveModel>, Arc<TokenVectors>);

/// The query that candidates are compared with.
pub(super) struct RerankQuery<'q> {
    /// The query.
    pub text: &'q str,
    /// The vectors of the query's tokens, if they were created together with the query's vector.
    pub encoded: Option<EncodedQuery>,
}

/// The part of a candidate's text that is compared with the query, with the candidate's thread and creation time.
#[derive(Debug)]
pub(super) struct Excerpt {
    pub id: i64,
    pub thread_id: String,
    pub created_at: Timestamp,
    pub text: String,
}

/// The result of reranking.
#[derive(Debug)]
pub(super) struct Reranked {
    /// All candidates in their new order, each with its score from 0 to 1 if it was reranked.
    pub order: Vec<(i64, Option<f64>)>,
    /// The scores of late interaction, 0 to 1. Empty if there are none.
    pub interaction: HashMap<i64, f64>,
    /// Why nothing was reranked although reranking is on.
    pub warning: Option<String>,
}

impl Reranked {
    /// The candidates in their order.
    pub fn unchanged(candidates: &[Candidate]) -> Self {
        Self {
            order: candidates
                .iter()
                .map(|candidate| (candidate.id, None))
                .collect(),
            interaction: HashMap::new(),
            warning: None,
        }
    }
}

/// The scores of candidates.
struct Scored {
    /// The score that decides the order.
    scores: HashMap<i64, f64>,
    /// The score of late interaction that is part of it, if there is one.
    interaction: HashMap<i64, f64>,
}

impl Retrieval {
    /// Whether a reranker is configured.
    pub(super) fn has_reranker(&self) -> bool {
        self.reranker.get().is_some()
    }

    /// Number of candidates to rerank. 0 when reranking is off.
    pub(super) fn rerank_candidates(&self) -> u32 {
        let by_tokens = || {
            self.embeddings
                .model()
                .is_ok_and(|active| active.embedder.has_token_vectors())
        };
        let can = self.has_reranker() || by_tokens();
        if self.reranking.enabled == Switch::False || !can {
            0
        } else {
            CANDIDATES
        }
    }

    /// Number of these candidates that are reranked.
    fn reranked_candidates(&self, candidates: &[Candidate]) -> usize {
        candidates.len().min(self.rerank_candidates() as usize)
    }

    /// The entries that [`rerank`](Self::rerank) reranks.
    pub(super) fn chosen_for_reranking(&self, candidates: &[Candidate]) -> HashSet<i64> {
        best(candidates, self.reranked_candidates(candidates))
            .into_iter()
            .map(|candidate| candidate.id)
            .collect()
    }

    /// Reranks the best candidates. If reranking is off, fails or times out, the order stays the same. The time limit
    /// includes the read of the texts. Blocking work that has begun continues after it.
    pub(super) async fn rerank(
        &self,
        caller: &Caller,
        query: RerankQuery<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Reranked {
        let unchanged = |warning| Reranked {
            warning,
            ..Reranked::unchanged(candidates)
        };
        let head = self.reranked_candidates(candidates);
        if head == 0 {
            return unchanged(None);
        }
        let chosen = best(candidates, head);
        let started = Instant::now();
        let timeout = Duration::from_millis(u64::from(self.reranking.timeout_ms));
        let scoring = self.rerank_scores(caller, query, &chosen, notes);
        let Scored {
            scores,
            interaction,
        } = match tokio::time::timeout(timeout, scoring).await {
            Ok(Ok(Some(scored))) => scored,
            Ok(Ok(None)) => return unchanged(None),
            Ok(Err(error)) => {
                return unchanged(Some(format!("{NOT_RERANKED}: {error}")));
            }
            Err(_) => {
                return unchanged(Some(format!(
                    "{NOT_RERANKED}: it took more than {} ms",
                    timeout.as_millis()
                )));
            }
        };
        notes.push(format!(
            "rerank: {} of {} candidates in {:.1} ms",
            scores.len(),
            candidates.len(),
            milliseconds(started)
        ));
        let mut reranked: Vec<(i64, f64)> = scores
            .iter()
            .map(|(id, score)| (*id, score.clamp(0.0, 1.0)))
            .collect();
        reranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        // The budget did not suffice for them, or they were deleted meanwhile.
        let others = candidates
            .iter()
            .filter(|candidate| !scores.contains_key(&candidate.id))
            .map(|candidate| (candidate.id, None));
        let order = reranked
            .into_iter()
            .map(|(id, score)| (id, Some(score)))
            .chain(others)
            .collect();
        Reranked {
            order,
            interaction,
            warning: None,
        }
    }

    /// The scores of the candidates that could be compared with the query, 0 to 1. These are the reranker's scores if
    /// there is a reranker, or else the scores of late interaction blended with the retrievers' scores. `None` when
    /// neither is available.
    async fn rerank_scores(
        &self,
        caller: &Caller,
        query: RerankQuery<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<Scored>, ProviderError> {
        if let Some(reranker) = self.reranker.get() {
            let excerpts = self.excerpts(caller, candidates).await?;
            let (ids, texts): (Vec<i64>, Vec<String>) = excerpts
                .into_iter()
                .map(|excerpt| (excerpt.id, excerpt.text))
                .unzip();
            notes.push(format!(
                "rerank: by {} of {}",
                reranker.model(),
                reranker.provider()
            ));
            let scores = reranker.rerank(query.text, texts).await?;
            if scores.len() != ids.len() || scores.iter().any(|score| !score.is_finite()) {
                return Err(ProviderError::Malformed(
                    "the number of scores is wrong, or a score is not finite".to_owned(),
                ));
            }
            return Ok(Some(Scored {
                scores: ids.into_iter().zip(scores).collect(),
                interaction: HashMap::new(),
            }));
        }
        let Some(interaction) = self
            .late_interaction(caller, query, candidates, notes)
            .await?
        else {
            return Ok(None);
        };
        let compared = || {
            let with_interaction = |candidate: &&Candidate| interaction.contains_key(&candidate.id);
            candidates.iter().filter(with_interaction)
        };
        let scores = {
            let scaled_score = scale(compared().map(|candidate| candidate.score));
            let scaled_interaction = scale(interaction.values().copied());
            let blend = |candidate: &Candidate| {
                let interaction = interaction
                    .get(&candidate.id)
                    .map_or(0.0, |score| scaled_interaction(*score));
                let score = RETRIEVAL_WEIGHT * scaled_score(candidate.score)
                    + (1.0 - RETRIEVAL_WEIGHT) * interaction;
                (candidate.id, score)
            };
            compared().map(blend).collect()
        };
        Ok(Some(Scored {
            scores,
            interaction,
        }))
    }

    /// Reads the best chunk of each candidate, or the start of its text. Entries that were deleted meanwhile are
    /// omitted. Reads the newest state: if an entry changed after the ranking, the read of the page notices it.
    pub(super) async fn excerpts(
        &self,
        caller: &Caller,
        candidates: &[Candidate],
    ) -> Result<Vec<Excerpt>, ProviderError> {
        let range = |candidate: &Candidate| {
            candidate
                .best_chunk
                .map_or((0, START_CHARS), |chunk| (chunk.start, chunk.end))
        };
        let ranges: HashMap<i64, (u32, u32)> = candidates
            .iter()
            .map(|candidate| (candidate.id, range(candidate)))
            .collect();
        let last = ranges.values().map(|(_, end)| *end).max().unwrap_or(0);
        let selection = self.selection(caller, None, false, Some(last));
        let ids: Vec<i64> = candidates.iter().map(|candidate| candidate.id).collect();
        let found = self
            .store
            .get_contexts(&caller.owner, ids, selection, read::at(None))
            .await
            .map_err(unreadable)?;
        let excerpt = |entry: StoredEntry| {
            let range = *ranges.get(&entry.id)?;
            Some(Excerpt {
                id: entry.id,
                text: characters(&entry.text, range).to_owned(),
                thread_id: entry.thread_id,
                created_at: entry.created_at,
            })
        };
        Ok(found.entries.into_iter().filter_map(excerpt).collect())
    }
}

/// Converts the error of a read that reranking needs.
pub(super) fn unreadable(error: StoreError) -> ProviderError {
    ProviderError::unavailable(error.to_string())
}

/// The `count` best candidates, best first. Among equal scores the greater id comes first.
fn best(candidates: &[Candidate], count: usize) -> Vec<Candidate> {
    let mut best = candidates.to_vec();
    best.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    best.truncate(count);
    best
}

/// The characters of a text from `start` to `end`.
pub(super) fn characters(text: &str, range: (u32, u32)) -> &str {
    &text[character_range(text, range)]
}
