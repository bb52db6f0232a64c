//! Reranking the best candidates by their texts: with a reranker, else by late interaction.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_model::Timestamp;
use context_providers::{ProviderError, TokenVectors};
use context_store::{RankedByMeaning, RowSelection, StoreError, StoredEntry};

use super::Retrieval;
use super::embedding::ActiveModel;
use super::fusion::scale;
use super::ranked::milliseconds;
use crate::access::Caller;
use crate::config::Switch;
use crate::read;

/// Candidates that are judged.
const CANDIDATES: u32 = 50;
/// What the scores before weigh in the blend; late interaction weighs the rest.
const BEFORE_WEIGHT: f64 = 0.5;
/// Characters read of an entry that was not found by semantic search, so that its best part is not known.
const START_CHARS: u32 = 1_000;

/// An entry to be judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub id: i64,
    /// What it is chosen by and what is blended: higher is better.
    pub score: f64,
    /// Its best part, when semantic search found it.
    pub part: Option<RankedByMeaning>,
}

/// The vectors of a query's tokens, and the model that made them.
pub(super) type EncodedQuery = (Arc<ActiveModel>, TokenVectors);

/// What the candidates should answer.
pub(super) struct Question<'q> {
    /// The query.
    pub text: &'q str,
    /// Its tokens' vectors, when a search made them beside the query's own.
    pub encoded: Option<EncodedQuery>,
}

/// The part of a candidate's text that is judged, and where the candidate stands.
#[derive(Debug)]
pub(super) struct BestPart {
    pub id: i64,
    pub thread_id: String,
    pub created_at: Timestamp,
    pub text: String,
}

/// The order after reranking.
#[derive(Debug)]
pub(super) struct Reranking {
    /// Every candidate with its score, 0 to 1, if it was judged.
    pub order: Vec<(i64, Option<f64>)>,
    /// Why nothing was judged although it should have been.
    pub warning: Option<String>,
}

impl Retrieval {
    /// Candidates that reranking judges; 0 when it is off.
    pub(super) fn reranked(&self) -> u32 {
        let by_tokens = || {
            self.embeddings
                .model()
                .is_ok_and(|active| active.embedder.has_token_vectors())
        };
        let can = self.reranker.get().is_some() || by_tokens();
        if self.reranking.enabled == Switch::False || !can {
            0
        } else {
            CANDIDATES
        }
    }

    /// Reranks the first candidates; without a reranker, or when it takes too long, the order stays.
    pub(super) async fn rerank(
        &self,
        caller: &Caller,
        question: Question<'_>,
        candidates: Vec<Candidate>,
        notes: &mut Vec<String>,
    ) -> Reranking {
        let as_it_is = |warning| Reranking {
            order: candidates
                .iter()
                .map(|candidate| (candidate.id, None))
                .collect(),
            warning,
        };
        let head = candidates.len().min(self.reranked() as usize);
        if head < 2 {
            return as_it_is(None);
        }
        let chosen = best(&candidates, head);
        let started = Instant::now();
        let budget = Duration::from_millis(u64::from(self.reranking.timeout_ms));
        let scores =
            match tokio::time::timeout(budget, self.judged(caller, question, &chosen, notes)).await
            {
                Ok(Ok(Some(scores))) => scores,
                Ok(Ok(None)) => return as_it_is(None),
                Ok(Err(error)) => {
                    return as_it_is(Some(format!("results are not reranked: {error}")));
                }
                Err(_) => {
                    return as_it_is(Some(format!(
                        "results are not reranked: it took more than {} ms",
                        budget.as_millis()
                    )));
                }
            };
        notes.push(format!(
            "rerank: {head} candidates in {:.1} ms",
            milliseconds(started)
        ));
        let mut order: Vec<(i64, Option<f64>)> = chosen
            .iter()
            .map(|candidate| {
                (
                    candidate.id,
                    Some(
                        scores
                            .get(&candidate.id)
                            .map_or(0.0, |score| score.clamp(0.0, 1.0)),
                    ),
                )
            })
            .collect();
        order.sort_by(|a, b| {
            b.1.partial_cmp(&a.1)
                .unwrap_or(std::cmp::Ordering::Equal)
                .then(b.0.cmp(&a.0))
        });
        let judged: HashSet<i64> = chosen.iter().map(|candidate| candidate.id).collect();
        order.extend(
            candidates
                .iter()
                .filter(|candidate| !judged.contains(&candidate.id))
                .map(|candidate| (candidate.id, None)),
        );
        Reranking {
            order,
            warning: None,
        }
    }

    /// The candidates' scores, 0 to 1; `None` when there is no reranker.
    async fn judged(
        &self,
        caller: &Caller,
        question: Question<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<HashMap<i64, f64>>, ProviderError> {
        if let Some(reranker) = self.reranker.get() {
            let parts = self.parts(caller, candidates).await?;
            let (ids, texts): (Vec<i64>, Vec<String>) =
                parts.into_iter().map(|part| (part.id, part.text)).unzip();
            notes.push(format!(
                "rerank: by {} of {}",
                reranker.model(),
                reranker.provider()
            ));
            let scores = reranker.rerank(question.text, texts).await?;
            if scores.len() != ids.len() || scores.iter().any(|score| !score.is_finite()) {
                return Err(ProviderError::Malformed(
                    "its scores do not fit the texts".to_owned(),
                ));
            }
            return Ok(Some(ids.into_iter().zip(scores).collect()));
        }
        let Some(judged) = self
            .late_interaction(caller, question, candidates, notes)
            .await?
        else {
            return Ok(None);
        };
        let before = scale(candidates.iter().map(|candidate| candidate.score));
        let after = scale(judged.values().copied());
        let blend = |candidate: &Candidate| {
            let judged = judged.get(&candidate.id).map_or(0.0, |score| after(*score));
            (
                candidate.id,
                BEFORE_WEIGHT * before(candidate.score) + (1.0 - BEFORE_WEIGHT) * judged,
            )
        };
        Ok(Some(candidates.iter().map(blend).collect()))
    }

    /// The best part of each candidate's text; what was deleted meanwhile has none.
    pub(super) async fn parts(
        &self,
        caller: &Caller,
        candidates: &[Candidate],
    ) -> Result<Vec<BestPart>, ProviderError> {
        let last = candidates
            .iter()
            .map(|candidate| candidate.part.map_or(START_CHARS, |part| part.end))
            .max()
            .unwrap_or(0);
        let selection = RowSelection {
            images: false,
            text_chars: Some(last),
            explain: false,
            max_bytes: self.max_reply_bytes,
            memory: caller.memory.clone(),
        };
        let ids: Vec<i64> = candidates.iter().map(|candidate| candidate.id).collect();
        let found = self
            .store
            .get_contexts(&caller.owner, ids, selection, read::at(None))
            .await;
        let found = found.map_err(unreadable)?;
        let part = |id: i64| {
            let part = candidates
                .iter()
                .find(|candidate| candidate.id == id)
                .and_then(|candidate| candidate.part);
            part.map_or((0, START_CHARS), |part| (part.start, part.end))
        };
        let best = |entry: StoredEntry| BestPart {
            id: entry.id,
            text: part_of(&entry.text, part(entry.id)).to_owned(),
            thread_id: entry.thread_id,
            created_at: entry.created_at,
        };
        Ok(found.entries.into_iter().map(best).collect())
    }
}

/// The error of a read that reranking needs.
pub(super) fn unreadable(error: StoreError) -> ProviderError {
    ProviderError::unavailable(error.to_string())
}

/// The best candidates, best first, then the greater id.
fn best(candidates: &[Candidate], count: usize) -> Vec<Candidate> {
    let mut best = candidates.to_vec();
    best.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    best.truncate(count);
    best
}

/// These characters of a text.
fn part_of(text: &str, (start, end): (u32, u32)) -> &str {
    let byte = |character: u32| {
        text.char_indices()
            .nth(character as usize)
            .map_or(text.len(), |(byte, _)| byte)
    };
    let (start, end) = (byte(start), byte(end));
    &text[start.min(end)..end]
}
