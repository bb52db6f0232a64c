//! Late interaction: reranking with the embedding model's own token vectors.
//!
//! Each word of the query looks for the nearest token of the text, or of what was said just before
//! it (see turns.rs). Words that say something count more, the more the fewer candidates have them.
//! Blended with the scores that are there, it lifts the recall of questions about conversations and
//! leaves that of abstracts alone (docs/benchmarks.md).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use context_providers::{ProviderError, Role, TokenCodes, TokenVectors};
use context_store::{ChunkPlace, ChunkTokens, VectorStore};
use context_text::ContentWord;

use super::Retrieval;
use super::embedding::ActiveModel;
use super::rerank::{BestPart, Candidate, EncodedQuery, Question, unreadable};
use super::turns::{Turn, with_those_before};
use crate::access::Caller;

/// What stop words and punctuation of the query weigh.
const FUNCTION_WORD_WEIGHT: f64 = 0.1;
/// What other words weigh at least, however many candidates have them. One that few have weighs about 1.
const LEAST_WORD_WEIGHT: f64 = 0.3;

impl Retrieval {
    /// How well each candidate answers the query, word by word: 0 to 1. `None` when the provider gives no token vectors.
    pub(super) async fn late_interaction(
        &self,
        caller: &Caller,
        Question {
            text: query,
            encoded,
        }: Question<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<HashMap<i64, f64>>, ProviderError> {
        let Ok(active) = self.embeddings.model() else {
            return Ok(None);
        };
        let (of_query, mut parts, stored) = tokio::try_join!(
            query_tokens(&active, query, encoded),
            self.parts(caller, candidates),
            stored_tokens(caller, &active, self.store.vectors(), candidates),
        )?;
        let Some(of_query) = of_query else {
            return Ok(None);
        };
        let weights = self.weights(&active, query, &of_query, &parts);
        let not_stored = parts
            .iter_mut()
            .filter(|part| !stored.contains_key(&part.id));
        let (unstored, texts): (Vec<i64>, Vec<String>) = not_stored
            .map(|part| (part.id, std::mem::take(&mut part.text)))
            .unzip();
        let mut note = format!(
            "rerank: by late interaction with {}",
            active.embedder.model().name
        );
        if active.stores_tokens {
            note.push_str(&format!(
                "; the token vectors of {} entries were stored, of {} not",
                stored.len(),
                unstored.len()
            ));
        }
        notes.push(note);
        let Some(encoded) = active.embedder.token_vectors(texts, Role::Document).await? else {
            return Ok(None);
        };
        let dimensions = active.model.dimensions as usize;
        let (context_weight, context_gap) =
            (self.reranking.context_weight, self.reranking.context_gap);
        let judge = move || {
            // As codes too, so that stored and encoded ones are judged alike.
            let unstored = unstored
                .into_iter()
                .zip(encoded)
                .map(|(id, tokens)| (id, TokenCodes::encode(&tokens.vectors, dimensions)));
            let codes: HashMap<i64, TokenCodes> = stored.into_iter().chain(unstored).collect();
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
        active: &ActiveModel,
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
        let starts = active.embedder.token_starts(query);
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
    active: &Arc<ActiveModel>,
    query: &str,
    encoded: Option<EncodedQuery>,
) -> Result<Option<TokenVectors>, ProviderError> {
    match encoded {
        Some((by, tokens)) if Arc::ptr_eq(&by, active) => Ok(Some(tokens)),
        _ => Ok(active
            .embedder
            .token_vectors(vec![query.to_owned()], Role::Query)
            .await?
            .and_then(|mut all| all.pop())),
    }
}

/// What is stored of the tokens of each candidate's best part, of its first one when the best is not known.
async fn stored_tokens(
    caller: &Caller,
    active: &ActiveModel,
    vectors: &dyn VectorStore,
    candidates: &[Candidate],
) -> Result<HashMap<i64, TokenCodes>, ProviderError> {
    if !active.stores_tokens {
        return Ok(HashMap::new());
    }
    let place = |candidate: &Candidate| ChunkPlace {
        id: candidate.id,
        position: candidate.part.map_or(0, |part| part.position),
    };
    let places = candidates.iter().map(place).collect();
    let found = vectors
        .tokens(&caller.owner, &active.model, places)
        .await
        .map_err(unreadable)?;
    let codes = |ChunkTokens { place, tokens }| match TokenCodes::from_bytes(
        tokens,
        active.model.dimensions as usize,
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

/// How much a word says that `with_it` of `all` texts have: as BM25 has it, about 1 for one that few have, 0 for one that
/// all have.
fn rarity(with_it: usize, all: usize) -> f64 {
    let (with_it, all) = (with_it as f64, all as f64);
    ((all - with_it + 0.5) / (with_it + 0.5)).ln_1p() / all.ln_1p()
}
