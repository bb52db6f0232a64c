//! Late interaction: reranking with the token vectors of the embedding model.
//!
//! Each token of the query is compared with the most similar token of the text or of the preceding turns (turns.rs).
//! The text's score is the weighted mean of these similarities. Stop words have the lowest weight. Words that occur in
//! few candidates have the highest. Blended with the retrievers' scores, this raises recall for questions about
//! conversations and leaves recall for abstracts unchanged (docs/benchmarks.md).
//!
//! Candidates without stored token vectors are encoded, best first, until the budget (RERANK_BUDGET_MS) is spent. The
//! others are not compared.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long encoding takes"
)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use context_providers::{ProviderError, Role, TokenCodes, TokenVectors};
use context_store::{ChunkKey, ChunkTokens, VectorStore};
use context_text::ContentWord;
use tokio::time::Instant;

use super::Retrieval;
use super::embedding::ActiveModel;
use super::rerank::{Candidate, EncodedQuery, Excerpt, RerankQuery, unreadable};
use super::turns::{Turn, with_preceding};
use crate::access::Caller;

/// Weight of the query's stop words and punctuation.
const FUNCTION_WORD_WEIGHT: f64 = 0.1;
/// Minimum weight of any other word. A word that occurs in few candidates has a weight of about 1.
const MIN_WORD_WEIGHT: f64 = 0.3;
/// Number of tokens encoded at a time, except for a single longer text. After each time the remaining budget is known
/// more precisely, and other searches take turns.
const PIECE_TOKENS: usize = 256;
/// Number of candidates that are encoded whatever the budget is: fewer cannot be reordered, and the pace must be
/// measured again after the machine was busy.
const MIN_ENCODED: usize = 2;

impl Retrieval {
    /// The scores, 0 to 1, of the candidates that the budget suffices for. `None` if no model is in use or its provider
    /// has no token vectors. The candidates come best first.
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
        let budget = Duration::from_millis(u64::from(self.reranking.budget_ms));
        let deadline = Instant::now() + budget;
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
        let place: HashMap<i64, usize> = (0..)
            .zip(candidates)
            .map(|(place, candidate)| (candidate.id, place))
            .collect();
        excerpts.sort_unstable_by_key(|excerpt| place.get(&excerpt.id).copied());
        let unstored = excerpts
            .iter_mut()
            .filter(|excerpt| !stored.contains_key(&excerpt.id))
            .map(|excerpt| (excerpt.id, std::mem::take(&mut excerpt.text)))
            .collect();
        let Some(encoded) = encode_until(deadline, &active, unstored).await? else {
            return Ok(None);
        };
        // A candidate that was not compared must not follow a worse one that was only because that one is stored.
        let all = excerpts.len();
        let compared = excerpts
            .iter()
            .take_while(|excerpt| {
                stored.contains_key(&excerpt.id) || encoded.contains_key(&excerpt.id)
            })
            .count();
        excerpts.truncate(compared);
        notes.push(note(&active, &excerpts, &stored));
        if compared < all {
            notes.push(format!(
                "rerank: the other {} were not encoded within {} ms",
                all - compared,
                budget.as_millis()
            ));
        }
        let comparison = Comparison {
            query_tokens,
            weights,
            excerpts,
            stored,
            encoded,
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

/// Encodes texts, best first, while there is time until the deadline. Returns the token vectors by entry. `None` if the
/// provider has none.
async fn encode_until(
    deadline: Instant,
    active: &ActiveModel,
    texts: Vec<(i64, String)>,
) -> Result<Option<HashMap<i64, TokenVectors>>, ProviderError> {
    let mut encoded = HashMap::new();
    let mut rest = texts.into_iter().peekable();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let room = active.pace.tokens_in(left);
        let (mut ids, mut piece, mut tokens) = (Vec::new(), Vec::new(), 0);
        while let Some((id, text)) = rest.next_if(|(_, text)| {
            let with_it = tokens + estimated_tokens(text);
            let fits = room.is_some_and(|room| with_it <= room);
            let is_small = piece.is_empty() || with_it <= PIECE_TOKENS;
            is_small && (fits || encoded.len() + piece.len() < MIN_ENCODED)
        }) {
            tokens += estimated_tokens(&text);
            ids.push(id);
            piece.push(text);
        }
        if piece.is_empty() {
            return Ok(Some(encoded));
        }
        let begun = Instant::now();
        let Some(vectors) = active.embedder.token_vectors(piece, Role::Document).await? else {
            return Ok(None);
        };
        active.pace.record(tokens, begun.elapsed());
        encoded.extend(ids.into_iter().zip(vectors));
    }
}

/// The number of tokens by which encoding is planned. Only their proportions matter, and the model's own tokenizer
/// would take a noticeable part of the budget.
fn estimated_tokens(text: &str) -> usize {
    context_text::estimated_tokens(text).len()
}

/// The line of the plan.
fn note(active: &ActiveModel, compared: &[Excerpt], stored: &HashMap<i64, TokenCodes>) -> String {
    let model = &active.embedder.model().name;
    let mut note = format!("rerank: by late interaction with {model}");
    if active.stores_tokens {
        let all = compared.len();
        let stored = compared
            .iter()
            .filter(|excerpt| stored.contains_key(&excerpt.id))
            .count();
        let unstored = all - stored;
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
    encoded: HashMap<i64, TokenVectors>,
    dimensions: usize,
    context_weight: f64,
    context_gap: Duration,
}

impl Comparison {
    /// The score of each candidate, 0 to 1.
    fn scores(self) -> HashMap<i64, f64> {
        // New token vectors are also converted to codes, so that they are compared in the same way as stored ones.
        let encoded = self
            .encoded
            .into_iter()
            .map(|(id, tokens)| (id, TokenCodes::encode(&tokens.vectors, self.dimensions)));
        let codes: HashMap<i64, TokenCodes> = self.stored.into_iter().chain(encoded).collect();
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
    let key = |candidate: &Candidate| ChunkKey {
        id: candidate.id,
        position: candidate.best_chunk.map_or(0, |chunk| chunk.position),
    };
    let keys = candidates.iter().map(key).collect();
    let found = vectors
        .tokens(&caller.owner, &active.model, keys)
        .await
        .map_err(unreadable)?;
    let codes = |ChunkTokens { key, tokens }| match TokenCodes::from_bytes(
        tokens,
        active.model.dimensions as usize,
    ) {
        Ok(codes) => Some((key.id, codes)),
        Err(error) => {
            tracing::warn!(
                entry.id = key.id,
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

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use context_providers::{Embedder, Model};
    use context_store::EmbeddingModel;
    use context_text::ChunkSizes;

    use super::super::embedding::Pace;
    use super::*;

    /// Takes a millisecond for each letter, and notes how many texts it gets at a time.
    struct Slow {
        model: Model,
        pieces: std::sync::Mutex<Vec<usize>>,
    }

    #[async_trait]
    impl Embedder for Slow {
        fn model(&self) -> &Model {
            &self.model
        }

        fn chunk_sizes(&self) -> ChunkSizes {
            unreachable!("nothing is cut")
        }

        fn token_starts(&self, _: &str) -> Vec<usize> {
            unreachable!("tokens are estimated")
        }

        async fn embed(&self, _: Vec<String>, _: Role) -> Result<Vec<Vec<f32>>, ProviderError> {
            unreachable!("only token vectors are needed")
        }

        async fn token_vectors(
            &self,
            texts: Vec<String>,
            _: Role,
        ) -> Result<Option<Vec<TokenVectors>>, ProviderError> {
            let letters: usize = texts.iter().map(String::len).sum();
            tokio::time::sleep(Duration::from_millis(letters as u64)).await;
            crate::lock::locked(&self.pieces).push(texts.len());
            let tokens = |_| TokenVectors {
                ids: Vec::new(),
                vectors: Vec::new(),
            };
            Ok(Some(texts.iter().map(tokens).collect()))
        }
    }

    fn slow() -> (Arc<Slow>, ActiveModel) {
        let embedder = Arc::new(Slow {
            model: Model {
                provider: "test",
                name: "slow".to_owned(),
                revision: String::new(),
                dimensions: 2,
            },
            pieces: std::sync::Mutex::default(),
        });
        let active = ActiveModel {
            embedder: embedder.clone(),
            model: EmbeddingModel {
                identity: "slow".to_owned(),
                dimensions: 2,
            },
            stores_tokens: false,
            pace: Pace::default(),
        };
        (embedder, active)
    }

    /// Encodes texts of these numbers of letters. Returns which were encoded and how long it took, in milliseconds.
    async fn encoded(active: &ActiveModel, budget_ms: u64, letters: &[usize]) -> (Vec<i64>, u128) {
        let texts = letters.iter().map(|count| "x".repeat(*count));
        let begun = Instant::now();
        let deadline = begun + Duration::from_millis(budget_ms);
        let found = encode_until(deadline, active, (0..).zip(texts).collect()).await;
        let mut ids: Vec<i64> = found.unwrap().unwrap().into_keys().collect();
        ids.sort_unstable();
        (ids, begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn the_best_candidates_are_encoded_as_many_as_the_budget_allows() {
        let (embedder, active) = slow();
        // The first two texts show the pace.
        assert_eq!(encoded(&active, 100, &[30; 50]).await, (vec![0, 1, 2], 90));
        assert_eq!(*crate::lock::locked(&embedder.pieces), [2, 1]);
        crate::lock::locked(&embedder.pieces).clear();
        let (found, took) = encoded(&active, 100, &[30; 50]).await;
        assert_eq!((found, took), (vec![0, 1, 2], 90));
        assert_eq!(
            *crate::lock::locked(&embedder.pieces),
            [3],
            "it knows the pace"
        );
        // A long text ends it: a worse one that is shorter does not come before it.
        assert_eq!(encoded(&active, 100, &[30, 30, 90, 3]).await.0, [0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn two_candidates_are_encoded_without_any_budget_and_long_lists_in_pieces() {
        let (embedder, active) = slow();
        assert_eq!(encoded(&active, 0, &[60; 5]).await.0, [0, 1]);
        assert_eq!(encoded(&active, 0, &[60; 5]).await.0, [0, 1]);
        crate::lock::locked(&embedder.pieces).clear();
        assert_eq!(encoded(&active, 1_000_000, &[300; 5]).await.0.len(), 5);
        assert_eq!(*crate::lock::locked(&embedder.pieces), [2, 2, 1]);
    }
}
