//! Late interaction: reranking with the token vectors of the embedding model.
//!
//! Each token of the query is compared with the most similar token of the text or of the preceding turns (turns.rs).
//! The text's score is the weighted mean of these similarities. Stop words have the lowest weight. Words that occur in
//! few candidates have the highest. Blended with the retrievers' scores, this raises recall for questions about
//! conversations and leaves recall for abstracts unchanged (docs/benchmarks.md).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use context_providers::{ProviderError, Role, TokenCodes, TokenVectors};
use context_store::{ChunkPlace, ChunkTokens, VectorStore};
use context_text::ContentWord;

use super::Retrieval;
use super::embedding::ActiveModel;
use super::rerank::{Candidate, EncodedQuery, Excerpt, RerankQuery, unreadable};
use super::turns::{Turn, with_preceding};
use crate::access::Caller;

/// Weight of the query's stop words and punctuation.
const FUNCTION_WORD_WEIGHT: f64 = 0.1;
/// Minimum weight of any other word. A word that occurs in few candidates has a weight of about 1.
const MIN_WORD_WEIGHT: f64 = 0.3;

impl Retrieval {
    /// The candidates' scores, 0 to 1. `None` if no model is in use or its provider has no token vectors.
    pub(super) async fn late_interaction(
        &self,
        caller: &Caller,
        RerankQuery {
            text: query,
            encoded,
        }: RerankQuery<'_>,
        candidates: &[Candidate],
        notes: &mut Vec<String>,
    ) -> Result<Option<HashMap<i64, f64>>, ProviderError> {
        let Ok(active) = self.embeddings.model() else {
            return Ok(None);
        };
        let (query_tokens, mut excerpts, stored) = tokio::try_join!(
            query_tokens(&active, query, encoded),
            self.excerpts(caller, candidates),
            stored_tokens(caller, &active, self.store.vectors(), candidates),
        )?;
        let Some(query_tokens) = query_tokens else {
            return Ok(None);
        };
        // The weights need the texts, so they are computed before the texts are moved out.
        let weights = self.weights(&active, query, &query_tokens, &excerpts);
        let (unstored, texts): (Vec<i64>, Vec<String>) = excerpts
            .iter_mut()
            .filter(|excerpt| !stored.contains_key(&excerpt.id))
            .map(|excerpt| (excerpt.id, std::mem::take(&mut excerpt.text)))
            .unzip();
        notes.push(note(&active, stored.len(), unstored.len()));
        let Some(encoded) = active.embedder.token_vectors(texts, Role::Document).await? else {
            return Ok(None);
        };
        let comparison = Comparison {
            query_tokens,
            weights,
            excerpts,
            stored,
            unstored: unstored.into_iter().zip(encoded).collect(),
            dimensions: active.model.dimensions as usize,
            context_weight: self.reranking.context_weight,
            context_gap: self.reranking.context_gap,
        };
        // Long texts and a long query need some hundred million multiplications.
        let scores = tokio::task::spawn_blocking(|| comparison.scores()).await;
        scores.map(Some).map_err(|_| {
            ProviderError::Malformed("the texts could not be compared with the query".to_owned())
        })
    }

    /// The weight of each token of the query, given the texts of the candidates. Of an entry that only full-text search
    /// found, this is the start of the text, although its stored token vectors are those of its first chunk.
    fn weights(
        &self,
        active: &ActiveModel,
        query: &str,
        tokens: &TokenVectors,
        excerpts: &[Excerpt],
    ) -> Vec<f64> {
        let words: Vec<ContentWord> = context_text::content_words(query, &self.analyzer);
        let stems: HashSet<&str> = words.iter().map(|word| word.stem.as_str()).collect();
        let mut texts_with: HashMap<&str, usize> = HashMap::new();
        for excerpt in excerpts {
            let mut seen: HashSet<&str> = HashSet::new();
            self.analyzer.tokens(&excerpt.text, &mut |token| {
                seen.extend(stems.get(token.stem));
                seen.len() < stems.len()
            });
            for stem in seen {
                *texts_with.entry(stem).or_default() += 1;
            }
        }
        let weight = |start: &usize| match words.iter().find(|word| word.range.contains(start)) {
            Some(word) => rarity(
                texts_with.get(word.stem.as_str()).copied().unwrap_or(0),
                excerpts.len(),
            )
            .max(MIN_WORD_WEIGHT),
            None => FUNCTION_WORD_WEIGHT,
        };
        let starts = active.embedder.token_starts(query);
        // The model may prepend a prefix to the query. The weight of its tokens is 0.
        let prefix = tokens.ids.len().saturating_sub(starts.len());
        let mut weights = vec![0.0; prefix];
        weights.extend(starts.iter().map(weight));
        weights.truncate(tokens.ids.len());
        weights
    }
}

/// The line of the plan.
fn note(active: &ActiveModel, stored: usize, unstored: usize) -> String {
    let model = &active.embedder.model().name;
    let mut note = format!("rerank: by late interaction with {model}");
    if active.stores_tokens {
        note.push_str(&format!(
            "; the token vectors of {stored} entries were stored, of {unstored} not"
        ));
    }
    note
}

/// The query's tokens and the candidates that are compared with them.
struct Comparison {
    query_tokens: Arc<TokenVectors>,
    /// The weight of each token of the query.
    weights: Vec<f64>,
    /// The candidates. Their texts are not used.
    excerpts: Vec<Excerpt>,
    /// The stored token vectors, by entry.
    stored: HashMap<i64, TokenCodes>,
    /// The new token vectors of the other entries.
    unstored: Vec<(i64, TokenVectors)>,
    dimensions: usize,
    context_weight: f64,
    context_gap: Duration,
}

impl Comparison {
    /// The score of each candidate, 0 to 1.
    fn scores(self) -> HashMap<i64, f64> {
        // New token vectors are also converted to codes, so that they are compared in the same way as stored ones.
        let unstored = self
            .unstored
            .into_iter()
            .map(|(id, tokens)| (id, TokenCodes::encode(&tokens.vectors, self.dimensions)));
        let codes: HashMap<i64, TokenCodes> = self.stored.into_iter().chain(unstored).collect();
        let turn = |excerpt: Excerpt| {
            Some(Turn {
                similarities: codes
                    .get(&excerpt.id)?
                    .best_similarities(&self.query_tokens),
                id: excerpt.id,
                thread_id: excerpt.thread_id,
                created_at: excerpt.created_at,
            })
        };
        let turns: Vec<Turn> = self.excerpts.into_iter().filter_map(turn).collect();
        with_preceding(&turns, self.context_weight, self.context_gap)
            .into_iter()
            .map(|(id, similarities)| (id, score(&similarities, &self.weights)))
            .collect()
    }
}

/// The vectors of the query's tokens. They are created here if only the full-text retriever ran, if the provider
/// returned the query's vector without them, or if the model has changed since.
async fn query_tokens(
    active: &Arc<ActiveModel>,
    query: &str,
    encoded: Option<EncodedQuery>,
) -> Result<Option<Arc<TokenVectors>>, ProviderError> {
    match encoded {
        Some((by, tokens)) if Arc::ptr_eq(&by, active) => Ok(Some(tokens)),
        _ => Ok(active
            .embedder
            .token_vectors(vec![query.to_owned()], Role::Query)
            .await?
            .and_then(|mut all| all.pop())
            .map(Arc::new)),
    }
}

/// The stored token vectors of each candidate's best chunk, or of its first chunk if the best one is unknown. If the
/// model changed during the search, the positions are those of the former model's chunks.
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
        position: candidate.best_chunk.map_or(0, |chunk| chunk.position),
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

/// The score of a text, 0 to 1: the weighted mean of the similarities of the query's tokens.
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

/// The BM25 inverse document frequency of a word that occurs in `having` of `all` texts. It is scaled: about 1 for a
/// word that occurs in few texts, close to 0 for a word that occurs in all.
fn rarity(having: usize, all: usize) -> f64 {
    let (having, all) = (having as f64, all as f64);
    ((all - having + 0.5) / (having + 0.5)).ln_1p() / all.ln_1p()
}
