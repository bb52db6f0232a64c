//! Ordering the best candidates anew by looking at their texts.
//!
//! Without a reranker the embedding model's own token vectors do it (late interaction): each word of the query looks for
//! the nearest token of the text, and words that say something count more, the more the fewer candidates have them.
//! Blended with the scores that are there, it lifts the recall of questions about conversations and leaves that of
//! abstracts alone (docs/retrieval.md).

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use context_providers::{ProviderError, Role, TokenVectors, best_similarities};
use context_store::RowSelection;
use context_text::ContentWord;

use crate::fusion::scale;
use crate::meaning::Ready;
use crate::semantic::milliseconds;
use crate::{Caller, Engine, Switch};

/// Candidates that are looked at.
const CANDIDATES: u32 = 50;
/// What the scores before weigh in the blend; late interaction weighs the rest.
const BEFORE_WEIGHT: f64 = 0.5;
/// What stop words and punctuation of the query weigh.
const FUNCTION_WORD_WEIGHT: f64 = 0.1;
/// What other words weigh at least, however many candidates have them. One that few have weighs about 1.
const LEAST_WORD_WEIGHT: f64 = 0.3;
/// Characters read of an entry that was not found by meaning, so that its best part is not known.
const START_CHARS: u32 = 1_000;

/// An entry to be judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    pub id: i64,
    /// What it is chosen by and what is blended: higher is better.
    pub score: f64,
    /// Its best part, in characters.
    pub part: Option<(u32, u32)>,
}

/// The order after reranking.
#[derive(Debug)]
pub(crate) struct Reranking {
    /// Every candidate with its score, 0 to 1, if it was judged.
    pub order: Vec<(i64, Option<f64>)>,
    /// Why nothing was judged although it should have been.
    pub warning: Option<String>,
}

impl Engine {
    /// Candidates that reranking looks at; 0 when it is off.
    pub(crate) fn reranked(&self) -> u32 {
        let by_tokens = || self.meaning().is_ok_and(|(ready, _)| ready.embedder.has_token_vectors());
        let can = self.reranker().is_some() || by_tokens();
        if self.config.reranking == Switch::False || !can { 0 } else { CANDIDATES }
    }

    /// Orders the first candidates anew; without a reranker, or when it takes too long, the order stays.
    pub(crate) async fn rerank(&self, caller: &Caller, query: &str, candidates: Vec<Candidate>, notes: &mut Vec<String>) -> Reranking {
        let as_it_is = |warning| Reranking { order: candidates.iter().map(|candidate| (candidate.id, None)).collect(), warning };
        let head = candidates.len().min(self.reranked() as usize);
        if head < 2 {
            return as_it_is(None);
        }
        let chosen = best(&candidates, head);
        let started = Instant::now();
        let budget = Duration::from_millis(u64::from(self.config.rerank_timeout_ms));
        let scores = match tokio::time::timeout(budget, self.judged(caller, query, &chosen, notes)).await {
            Ok(Ok(Some(scores))) => scores,
            Ok(Ok(None)) => return as_it_is(None),
            Ok(Err(error)) => return as_it_is(Some(format!("results are not reranked: {error}"))),
            Err(_) => return as_it_is(Some(format!("results are not reranked: it took more than {} ms", budget.as_millis()))),
        };
        notes.push(format!("rerank: {head} candidates in {:.1} ms", milliseconds(started)));
        let mut order: Vec<(i64, Option<f64>)> = chosen
            .iter()
            .map(|candidate| (candidate.id, Some(scores.get(&candidate.id).map_or(0.0, |score| score.clamp(0.0, 1.0)))))
            .collect();
        order.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap_or(std::cmp::Ordering::Equal).then(b.0.cmp(&a.0)));
        let judged: HashSet<i64> = chosen.iter().map(|candidate| candidate.id).collect();
        order.extend(candidates.iter().filter(|candidate| !judged.contains(&candidate.id)).map(|candidate| (candidate.id, None)));
        Reranking { order, warning: None }
    }

    /// The candidates' scores, 0 to 1; `None` when nobody can judge them.
    async fn judged(
        &self,
        caller: &Caller,
        query: &str,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<HashMap<i64, f64>>, ProviderError> {
        let (ids, texts) = self.texts(caller, candidates).await?;
        if let Some(reranker) = self.reranker() {
            notes.push(format!("rerank: by {} of {}", reranker.model(), reranker.provider()));
            let scores = reranker.rerank(query, texts).await?;
            if scores.len() != ids.len() || scores.iter().any(|score| !score.is_finite()) {
                return Err(ProviderError::Malformed("its scores do not fit the texts".to_owned()));
            }
            return Ok(Some(ids.into_iter().zip(scores).collect()));
        }
        let Ok((ready, _)) = self.meaning() else { return Ok(None) };
        let Some(scores) = self.late_interaction(&ready, query, texts).await? else { return Ok(None) };
        notes.push(format!("rerank: by late interaction with {}", ready.embedder.model().name));
        let judged: HashMap<i64, f64> = ids.into_iter().zip(scores).collect();
        let before = scale(candidates.iter().map(|candidate| candidate.score));
        let after = scale(judged.values().copied());
        let blend = |candidate: &Candidate| {
            let judged = judged.get(&candidate.id).map_or(0.0, |score| after(*score));
            (candidate.id, BEFORE_WEIGHT * before(candidate.score) + (1.0 - BEFORE_WEIGHT) * judged)
        };
        Ok(Some(candidates.iter().map(blend).collect()))
    }

    /// The best part of each candidate's text; what was deleted meanwhile has none.
    async fn texts(&self, caller: &Caller, candidates: &[Candidate]) -> Result<(Vec<i64>, Vec<String>), ProviderError> {
        let last = candidates.iter().map(|candidate| candidate.part.map_or(START_CHARS, |(_, end)| end)).max().unwrap_or(0);
        let selection = RowSelection { images: false, text_chars: Some(last), explain: false, max_bytes: self.max_reply_bytes() };
        let ids: Vec<i64> = candidates.iter().map(|candidate| candidate.id).collect();
        let found = self.store.get_contexts(&caller.owner, ids, selection, Self::read(None)).await;
        let found = found.map_err(|error| ProviderError::unavailable(error.to_string()))?;
        let part = |id: i64| candidates.iter().find(|candidate| candidate.id == id).and_then(|candidate| candidate.part);
        Ok(found
            .entries
            .into_iter()
            .map(|entry| (entry.id, part_of(&entry.text, part(entry.id).unwrap_or((0, START_CHARS))).to_owned()))
            .unzip())
    }

    /// How well each text answers the query, word by word: 0 to 1. `None` when the provider gives no token vectors.
    async fn late_interaction(&self, ready: &Ready, query: &str, texts: Vec<String>) -> Result<Option<Vec<f64>>, ProviderError> {
        let Some(mut of_query) = ready.embedder.token_vectors(vec![query.to_owned()], Role::Query).await? else { return Ok(None) };
        let Some(of_query) = of_query.pop() else { return Ok(None) };
        let weights = self.weights(ready, query, &of_query, &texts);
        let Some(vectors) = ready.embedder.token_vectors(texts, Role::Document).await? else { return Ok(None) };
        let dimensions = ready.model.dimensions as usize;
        let total: f64 = weights.iter().sum();
        let score = |vectors: &TokenVectors| {
            let similarities = best_similarities(&of_query, vectors, dimensions);
            let sum: f64 = similarities.iter().zip(&weights).map(|(similarity, weight)| f64::from(*similarity) * weight).sum();
            if total > 0.0 { (sum / total).clamp(0.0, 1.0) } else { 0.0 }
        };
        Ok(Some(vectors.iter().map(score).collect()))
    }

    /// What each token of the query weighs, among these texts.
    fn weights(&self, ready: &Ready, query: &str, tokens: &TokenVectors, texts: &[String]) -> Vec<f64> {
        let words: Vec<ContentWord> = context_text::content_words(query, &self.analyzer);
        let stems: HashSet<&str> = words.iter().map(|word| word.stem.as_str()).collect();
        let mut with_it: HashMap<&str, usize> = HashMap::new();
        for text in texts {
            let mut seen: HashSet<&str> = HashSet::new();
            self.analyzer.tokens(text, &mut |token| {
                seen.extend(stems.get(token.stem));
                seen.len() < stems.len()
            });
            for stem in seen {
                *with_it.entry(stem).or_default() += 1;
            }
        }
        let weight = |start: &usize| match words.iter().find(|word| word.place.contains(start)) {
            Some(word) => rarity(with_it.get(word.stem.as_str()).copied().unwrap_or(0), texts.len()).max(LEAST_WORD_WEIGHT),
            None => FUNCTION_WORD_WEIGHT,
        };
        let starts = ready.embedder.token_starts(query);
        // What stands before the query, a prefix of the model's, has tokens of its own.
        let prefix = tokens.ids.len().saturating_sub(starts.len());
        let mut weights = vec![0.0; prefix];
        weights.extend(starts.iter().map(weight));
        weights.truncate(tokens.ids.len());
        weights
    }
}

/// The best candidates, best first, then the greater id.
fn best(candidates: &[Candidate], count: usize) -> Vec<Candidate> {
    let mut best = candidates.to_vec();
    best.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id)));
    best.truncate(count);
    best
}

/// How much a word says that `with_it` of `all` texts have: as BM25 has it, about 1 for one that few have, 0 for one that
/// all have.
fn rarity(with_it: usize, all: usize) -> f64 {
    let (with_it, all) = (with_it as f64, all as f64);
    ((all - with_it + 0.5) / (with_it + 0.5)).ln_1p() / all.ln_1p()
}

/// These characters of a text.
fn part_of(text: &str, (start, end): (u32, u32)) -> &str {
    let byte = |character: u32| text.char_indices().nth(character as usize).map_or(text.len(), |(byte, _)| byte);
    let (start, end) = (byte(start), byte(end));
    &text[start.min(end)..end]
}
