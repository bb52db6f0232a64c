//! Ordering the best candidates anew by looking at their texts.
//!
//! Without a reranker the embedding model's own token vectors do it (late interaction): each word of the query looks for
//! the nearest token of the text, or of what was said just before it (see turns.rs), and words that say something count
//! more, the more the fewer candidates have them.
//! Blended with the scores that are there, it lifts the recall of questions about conversations and leaves that of
//! abstracts alone (docs/retrieval.md).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use context_model::Timestamp;
use context_providers::{ProviderError, Role, TokenCodes, TokenVectors};
use context_store::{
    ChunkPlace, ChunkTokens, RankedByMeaning, RowSelection, StoreError, StoredEntry, VectorStore,
};
use context_text::ContentWord;

use crate::fusion::scale;
use crate::meaning::Ready;
use crate::semantic::milliseconds;
use crate::turns::{Turn, with_those_before};
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
    /// Its best part, when it was found by meaning.
    pub part: Option<RankedByMeaning>,
}

/// The vectors of a query's tokens, and the model that made them.
pub(crate) type EncodedQuery = (Arc<Ready>, TokenVectors);

/// What the candidates should answer.
pub(crate) struct Question<'q> {
    /// The query.
    pub text: &'q str,
    /// Its tokens' vectors, when a search made them beside the query's own.
    pub encoded: Option<EncodedQuery>,
}

/// The part of a candidate's text that is looked at, and where the candidate stands.
#[derive(Debug)]
struct BestPart {
    id: i64,
    thread_id: String,
    created_at: Timestamp,
    text: String,
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
        let by_tokens = || {
            self.meaning()
                .is_ok_and(|(ready, _)| ready.embedder.has_token_vectors())
        };
        let can = self.reranker().is_some() || by_tokens();
        if self.config.reranking == Switch::False || !can {
            0
        } else {
            CANDIDATES
        }
    }

    /// Orders the first candidates anew; without a reranker, or when it takes too long, the order stays.
    pub(crate) async fn rerank(
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
        let budget = Duration::from_millis(u64::from(self.config.rerank_timeout_ms));
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

    /// The candidates' scores, 0 to 1; `None` when nobody can judge them.
    async fn judged(
        &self,
        caller: &Caller,
        question: Question<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<HashMap<i64, f64>>, ProviderError> {
        if let Some(reranker) = self.reranker() {
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
    async fn parts(
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
            max_bytes: self.max_reply_bytes(),
            memory: caller.memory.clone(),
        };
        let ids: Vec<i64> = candidates.iter().map(|candidate| candidate.id).collect();
        let found = self
            .store
            .get_contexts(&caller.owner, ids, selection, Self::read(None))
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

    /// How well each candidate answers the query, word by word: 0 to 1. `None` when the provider gives no token vectors.
    async fn late_interaction(
        &self,
        caller: &Caller,
        Question {
            text: query,
            encoded,
        }: Question<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<HashMap<i64, f64>>, ProviderError> {
        let Ok((ready, vectors)) = self.meaning() else {
            return Ok(None);
        };
        let (of_query, mut parts, stored) = tokio::try_join!(
            query_tokens(&ready, query, encoded),
            self.parts(caller, candidates),
            stored_tokens(caller, &ready, vectors, candidates),
        )?;
        let Some(of_query) = of_query else {
            return Ok(None);
        };
        let weights = self.weights(&ready, query, &of_query, &parts);
        let not_stored = parts
            .iter_mut()
            .filter(|part| !stored.contains_key(&part.id));
        let (anew, texts): (Vec<i64>, Vec<String>) = not_stored
            .map(|part| (part.id, std::mem::take(&mut part.text)))
            .unzip();
        let mut note = format!(
            "rerank: by late interaction with {}",
            ready.embedder.model().name
        );
        if ready.stores_tokens {
            note.push_str(&format!(
                "; the token vectors of {} entries were stored, of {} not",
                stored.len(),
                anew.len()
            ));
        }
        notes.push(note);
        let Some(encoded) = ready.embedder.token_vectors(texts, Role::Document).await? else {
            return Ok(None);
        };
        let dimensions = ready.model.dimensions as usize;
        let (context_weight, context_gap) =
            (self.config.rerank_context_weight, self.config.context_gap);
        let judge = move || {
            // As codes too, so that stored and encoded ones are judged alike.
            let anew = anew
                .into_iter()
                .zip(encoded)
                .map(|(id, tokens)| (id, TokenCodes::encode(&tokens.vectors, dimensions)));
            let codes: HashMap<i64, TokenCodes> = stored.into_iter().chain(anew).collect();
            let turn = |BestPart {
                            id,
                            thread_id,
                            created_at,
                            text: _,
                        }| {
                let similarities = codes.get(&id)?.best_similarities(&of_query);
                Some(Turn {
                    id,
                    thread_id,
                    created_at,
                    similarities,
                })
            };
            let turns: Vec<Turn> = parts.into_iter().filter_map(turn).collect();
            let similarities = with_those_before(&turns, context_weight, context_gap);
            similarities
                .into_iter()
                .map(|(id, similarities)| (id, score(&similarities, &weights)))
                .collect()
        };
        // Long texts and a long query are some hundred million products.
        let scores = tokio::task::spawn_blocking(judge).await;
        scores.map(Some).map_err(|_| {
            ProviderError::Malformed("the texts could not be compared with the query".to_owned())
        })
    }

    /// What each token of the query weighs, among these texts.
    fn weights(
        &self,
        ready: &Ready,
        query: &str,
        tokens: &TokenVectors,
        parts: &[BestPart],
    ) -> Vec<f64> {
        let words: Vec<ContentWord> = context_text::content_words(query, &self.analyzer);
        let stems: HashSet<&str> = words.iter().map(|word| word.stem.as_str()).collect();
        let mut with_it: HashMap<&str, usize> = HashMap::new();
        for part in parts {
            let mut seen: HashSet<&str> = HashSet::new();
            self.analyzer.tokens(&part.text, &mut |token| {
                seen.extend(stems.get(token.stem));
                seen.len() < stems.len()
            });
            for stem in seen {
                *with_it.entry(stem).or_default() += 1;
            }
        }
        let weight = |start: &usize| match words.iter().find(|word| word.place.contains(start)) {
            Some(word) => rarity(
                with_it.get(word.stem.as_str()).copied().unwrap_or(0),
                parts.len(),
            )
            .max(LEAST_WORD_WEIGHT),
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

/// The vectors of the query's tokens. They are made here when only words were searched, when its vector came without them,
/// or when another model came into use since, whose vectors cannot be compared with those.
async fn query_tokens(
    ready: &Arc<Ready>,
    query: &str,
    encoded: Option<EncodedQuery>,
) -> Result<Option<TokenVectors>, ProviderError> {
    match encoded {
        Some((by, tokens)) if Arc::ptr_eq(&by, ready) => Ok(Some(tokens)),
        _ => Ok(ready
            .embedder
            .token_vectors(vec![query.to_owned()], Role::Query)
            .await?
            .and_then(|mut all| all.pop())),
    }
}

/// What is stored of the tokens of each candidate's best part, of its first one when the best is not known.
async fn stored_tokens(
    caller: &Caller,
    ready: &Ready,
    vectors: &dyn VectorStore,
    candidates: &[Candidate],
) -> Result<HashMap<i64, TokenCodes>, ProviderError> {
    if !ready.stores_tokens {
        return Ok(HashMap::new());
    }
    let place = |candidate: &Candidate| ChunkPlace {
        id: candidate.id,
        position: candidate.part.map_or(0, |part| part.position),
    };
    let places = candidates.iter().map(place).collect();
    let found = vectors
        .tokens(&caller.owner, &ready.model, places)
        .await
        .map_err(unreadable)?;
    let codes = |ChunkTokens { place, tokens }| match TokenCodes::from_bytes(
        tokens,
        ready.model.dimensions as usize,
    ) {
        Ok(codes) => Some((place.id, codes)),
        Err(error) => {
            tracing::warn!(
                entry.id = place.id,
                "{error}; the entry is encoded again for each search"
            );
            None
        }
    };
    Ok(found.into_iter().filter_map(codes).collect())
}

fn unreadable(error: StoreError) -> ProviderError {
    ProviderError::unavailable(error.to_string())
}

/// How well a text answers the query that comes this near to each of its tokens, 0 to 1.
fn score(similarities: &[f32], weights: &[f64]) -> f64 {
    let total: f64 = weights.iter().sum();
    let sum: f64 = similarities
        .iter()
        .zip(weights)
        .map(|(similarity, weight)| f64::from(*similarity) * weight)
        .sum();
    if total > 0.0 {
        (sum / total).clamp(0.0, 1.0)
    } else {
        0.0
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
    let byte = |character: u32| {
        text.char_indices()
            .nth(character as usize)
            .map_or(text.len(), |(byte, _)| byte)
    };
    let (start, end) = (byte(start), byte(end));
    &text[start.min(end)..end]
}
