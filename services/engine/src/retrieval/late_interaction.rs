//! Late interaction: reranking with the token vectors of the embedding model.
//!
//! Each token of the query is compared with the most similar token of the text or of the preceding turns (turns.rs).
//! The text's score is the weighted mean of these similarities. Stop words have the lowest weight. Words that occur in
//! few candidates have the highest. Blended with the retrievers' scores, this raises recall for questions about
//! conversations and leaves recall for abstracts unchanged (docs/benchmarks.md).
//!
//! Candidates whose token vectors are neither stored nor in memory are encoded, best first, until the budget
//! (RERANK_BUDGET_MS) is spent. If it does not suffice for the whole excerpts, only the best part of each is encoded.
//! Candidates for which even that is too much are not compared.
//!
//! Only the first page of a search encodes texts. A later page compares what is in memory, and so gets the order of the
//! first page. Otherwise each page would compare more candidates than the one before, and in another order. If nothing
//! is cached, every page encodes texts, because a later one would lack those that the first page encoded.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long encoding takes"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use context_providers::{ProviderError, Role, TokenCodes, TokenVectors};
use context_store::{ChunkKey, ChunkTokens, StoreError, VectorStore};
use context_text::{Analyzer, ContentWord};
use tokio::time::Instant;

use super::Retrieval;
use super::embedding::{ActiveModel, TextKey};
use super::rerank::{
    Candidate, EXCERPT_CHARS, EncodedQuery, Excerpt, Interaction, RerankError, RerankQuery,
};
use super::turns::{Turn, answered_questions, with_preceding};
use crate::access::Caller;

/// Weight of the query's stop words and punctuation.
const FUNCTION_WORD_WEIGHT: f64 = 0.1;
/// Minimum weight of any other word. A word that occurs in few candidates has a weight of about 1.
const MIN_WORD_WEIGHT: f64 = 0.3;
/// What is left of the similarity of an identifier's tokens to a text without it. An identifier is a word with a digit
/// that the tokenizer breaks into pieces, such as the hash of a commit. Not 0, because only a part of a long text is
/// compared.
const OTHER_IDENTIFIER: f32 = 0.5;
/// Number of tokens encoded at a time, except for a single longer text. After each piece, the number of tokens that fit
/// into the remaining budget is estimated again, and other searches can run.
const PIECE_TOKENS: usize = 256;
/// Texts of up to this many tokens together, and at least one text of any length, are encoded even if no time is left.
/// Otherwise the pace would never be measured again after the machine was busy.
const MIN_TOKENS: usize = 128;
/// Number of tokens of an excerpt that are encoded if there is no time for whole excerpts. Comparing many parts gives
/// better results than comparing few whole texts.
const PART_TOKENS: usize = 64;
/// Number of tokens that a model is assumed to encode in a second, before the first measurement.
const USUAL_PACE: f64 = 5_000.0;

impl Retrieval {
    /// Compares as many candidates with the query as the budget allows. `candidates` must be sorted, best first. `None`
    /// if no model is in use or its provider has no token vectors. Adds lines for `explain_query` to `plan`.
    pub(super) async fn late_interaction(
        &self,
        caller: &Caller,
        RerankQuery {
            text: query,
            encoded,
            is_first_page,
            ..
        }: RerankQuery<'_>,
        candidates: &[Candidate],
        plan: &mut Vec<String>,
    ) -> Result<Option<Interaction>, RerankError> {
        let Ok(active) = self.embeddings.model() else {
            return Ok(None);
        };
        let budget = Duration::from_millis(u64::from(self.reranking.budget_ms));
        let deadline = Instant::now() + budget;
        let (query_tokens, mut excerpts, mut codes) = tokio::try_join!(
            async { Ok(query_tokens(&active, query, encoded).await?) },
            async { Ok(self.excerpts(caller, candidates, EXCERPT_CHARS).await?) },
            stored_tokens(caller, &active, self.store.vectors(), candidates),
        )?;
        let Some(query_tokens) = query_tokens else {
            return Ok(None);
        };
        // Two reads: an entry may have been deleted between them.
        codes.retain(|id, _| excerpts.iter().any(|excerpt| excerpt.id == *id));
        let place: HashMap<i64, usize> = (0..)
            .zip(candidates)
            .map(|(place, candidate)| (candidate.id, place))
            .collect();
        excerpts.sort_unstable_by_key(|excerpt| place.get(&excerpt.id).copied());
        let words = QueryWords::of(query, &excerpts, &self.analyzer);
        let starts = token_starts(&active, query, &query_tokens);
        let weights = words.token_weights(&starts);
        let identifiers = words.identifiers(query, &starts);
        let (coverage, query_words) = (words.coverage(), words.weights.len());
        let absent_words = words.absent();
        let questions = if self.reranking.context_weight > 0.0 {
            answered_questions(&excerpts, self.reranking.context_gap)
        } else {
            HashMap::new()
        };
        let stored = codes.len();
        let unstored = excerpts
            .iter_mut()
            .filter(|excerpt| !codes.contains_key(&excerpt.id))
            .map(|excerpt| (excerpt.id, std::mem::take(&mut excerpt.text)))
            .collect();
        let (cached, mut missing) = cached_tokens(&active, unstored);
        codes.extend(cached);
        let needed: usize = missing.iter().map(|(_, text)| estimated_tokens(text)).sum();
        let is_too_much = needed > room(&active, budget);
        if is_too_much || !is_first_page {
            let (cached, parts) =
                cached_tokens(&active, words.best_parts(&missing, &self.analyzer));
            codes.extend(cached);
            if is_too_much {
                missing = parts;
            }
        }
        // Without any token vectors, the first page ran in another service or before a restart.
        let encodes = is_first_page || active.token_cache.is_none() || codes.is_empty();
        let mut encoded_count = 0;
        if encodes {
            let Some(encoded) = encode_until(deadline, &active, missing).await? else {
                return Ok(None);
            };
            encoded_count = encoded.codes.len();
            codes.extend(encoded.codes);
            // A later page finds the same texts of other entries in the cache, so this page must use them too.
            let (cached, left) = cached_tokens(&active, encoded.left);
            codes.extend(cached);
            codes.extend(cached_tokens(&active, words.best_parts(&left, &self.analyzer)).0);
        }
        let mut line = format!(
            "rerank: by late interaction with {}",
            active.embedder.model().name
        );
        if active.stores_tokens {
            line.push_str(&format!(
                "; the token vectors of {stored} entries were stored, of {} not",
                excerpts.len() - stored
            ));
        }
        plan.push(line);
        let in_memory = codes.len() - stored - encoded_count;
        let left_out = excerpts.len() - codes.len();
        let why = if encodes {
            format!("beyond the {} ms", budget.as_millis())
        } else {
            "not encoded, because this is not the first page".to_owned()
        };
        plan.push(format!(
            "rerank: {encoded_count} texts encoded, {in_memory} in memory, {left_out} {why}"
        ));
        let comparison = Comparison {
            query_tokens,
            weights,
            identifiers,
            found: words.found,
            excerpts,
            codes,
            context_weight: self.reranking.context_weight,
            context_gap: self.reranking.context_gap,
        };
        // Long texts and a long query need some hundred million multiplications, which would block an async worker.
        let scores = tokio::task::spawn_blocking(|| comparison.run())
            .await
            .map_err(|_| {
                ProviderError::Malformed(
                    "the texts could not be compared with the query".to_owned(),
                )
            })?;
        Ok(Some(Interaction {
            scores,
            coverage,
            questions,
            query_words,
            absent_words,
        }))
    }
}

/// The content words of a query, and which candidates contain them.
struct QueryWords {
    words: Vec<ContentWord>,
    /// For each candidate, the stems of the words in its excerpt. The excerpt of an entry that only full-text search
    /// found is the start of its text, which may differ from the chunk whose stored token vectors are used.
    found: HashMap<i64, BTreeSet<String>>,
    /// The weight of each stem: high if few candidates contain it. Sorted, because a sum of floats depends on the
    /// order, and that of a hash map differs from search to search.
    weights: BTreeMap<String, f64>,
}

impl QueryWords {
    fn of(query: &str, excerpts: &[Excerpt], analyzer: &Analyzer) -> Self {
        let words = context_text::content_words(query, analyzer);
        let stems: HashSet<&str> = words.iter().map(|word| word.stem.as_str()).collect();
        let found_in = |excerpt: &Excerpt| {
            let mut found: HashSet<&str> = HashSet::new();
            analyzer.tokens(&excerpt.text, &mut |token| {
                found.extend(stems.get(token.stem));
                found.len() < stems.len()
            });
            (excerpt.id, found.into_iter().map(str::to_owned).collect())
        };
        let found: HashMap<i64, BTreeSet<String>> = excerpts.iter().map(found_in).collect();
        let weight = |stem: &&str| {
            let having = found.values().filter(|found| found.contains(*stem)).count();
            let weight = rarity(having, excerpts.len()).max(MIN_WORD_WEIGHT);
            ((*stem).to_owned(), weight)
        };
        let weights = stems.iter().map(weight).collect();
        Self {
            words,
            found,
            weights,
        }
    }

    /// The weight of each token of the query, whose words begin at these bytes.
    fn token_weights(&self, starts: &[Option<usize>]) -> Vec<f64> {
        let weight = |start: &Option<usize>| {
            let Some(start) = start else { return 0.0 };
            let word = self.words.iter().find(|word| word.range.contains(start));
            word.and_then(|word| self.weights.get(&word.stem))
                .copied()
                .unwrap_or(FUNCTION_WORD_WEIGHT)
        };
        starts.iter().map(weight).collect()
    }

    /// The tokens of the query's identifiers: the place of each token, and the stem of its word.
    fn identifiers(&self, query: &str, starts: &[Option<usize>]) -> Vec<(usize, String)> {
        let mut identifiers = Vec::new();
        for word in &self.words {
            let text = query.get(word.range.clone()).unwrap_or_default();
            let is_in_it = |start: Option<usize>| start.is_some_and(|at| word.range.contains(&at));
            let places: Vec<usize> = (0..starts.len())
                .filter(|place| is_in_it(starts[*place]))
                .collect();
            if places.len() > 1 && text.contains(|c: char| c.is_ascii_digit()) {
                identifiers.extend(places.into_iter().map(|place| (place, word.stem.clone())));
            }
        }
        identifiers
    }

    /// The part of each text that is encoded if there is no time for all of it.
    fn best_parts(&self, texts: &[Text], analyzer: &Analyzer) -> Vec<Text> {
        let weights: HashMap<&str, f64> = self
            .weights
            .iter()
            .map(|(stem, weight)| (stem.as_str(), *weight))
            .collect();
        let part = |(id, text): &Text| {
            let part = context_text::best_part(text, &weights, analyzer, PART_TOKENS);
            (*id, part.to_owned())
        };
        texts.iter().map(part).collect()
    }

    /// The share of the words that no candidate contains.
    fn absent(&self) -> f64 {
        let is_absent = |stem: &&String| {
            !self
                .found
                .values()
                .any(|found| found.contains(stem.as_str()))
        };
        let absent = self.weights.keys().filter(is_absent).count();
        absent as f64 / self.weights.len().max(1) as f64
    }

    /// The share of the words' weight that each candidate contains.
    fn coverage(&self) -> HashMap<i64, f64> {
        let weight = |stem: &String| self.weights.get(stem).copied().unwrap_or(0.0);
        let all: f64 = self.weights.values().sum();
        let share = |(id, found): (&i64, &BTreeSet<String>)| {
            let covered: f64 = found.iter().map(weight).sum();
            (*id, if all > 0.0 { covered / all } else { 0.0 })
        };
        self.found.iter().map(share).collect()
    }
}

/// A text that is compared with the query, by its entry.
type Text = (i64, String);

/// Takes the texts whose token vectors are in memory. Returns these, and the other texts.
fn cached_tokens(
    active: &ActiveModel,
    texts: Vec<Text>,
) -> (HashMap<i64, Arc<TokenCodes>>, Vec<Text>) {
    let Some(cache) = &active.token_cache else {
        return (HashMap::new(), texts);
    };
    let mut cached = HashMap::new();
    let mut missing = Vec::new();
    for (id, text) in texts {
        match cache.get(cache.key(&text)) {
            Some(codes) => {
                cached.insert(id, codes);
            }
            None => missing.push((id, text)),
        }
    }
    (cached, missing)
}

/// The texts that were encoded, and those for which the time did not suffice.
struct EncodedTexts {
    /// The token vectors, by entry.
    codes: HashMap<i64, Arc<TokenCodes>>,
    left: Vec<Text>,
}

/// Encodes texts, best first, while there is time until the deadline, and caches their token vectors. `None` if the
/// provider has none.
async fn encode_until(
    deadline: Instant,
    active: &ActiveModel,
    texts: Vec<Text>,
) -> Result<Option<EncodedTexts>, ProviderError> {
    let cache = active.token_cache.as_ref();
    let keys: HashMap<i64, TextKey> = texts
        .iter()
        .filter_map(|(id, text)| Some((*id, cache?.key(text))))
        .collect();
    let mut encoded = HashMap::new();
    let mut rest = texts.into_iter().peekable();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Before the first measurement only `MIN_TOKENS` are encoded.
        let room = active.pace.tokens_in(left);
        let (mut ids, mut piece, mut tokens) = (Vec::new(), Vec::new(), 0);
        while let Some((id, text)) = rest.next_if(|(_, text)| {
            let with_it = tokens + estimated_tokens(text);
            let fits = room.is_some_and(|room| with_it <= room);
            let at_most = |max: usize| piece.is_empty() || with_it <= max;
            let is_needed = encoded.is_empty() && at_most(MIN_TOKENS);
            is_needed || fits && at_most(PIECE_TOKENS)
        }) {
            tokens += estimated_tokens(&text);
            ids.push(id);
            piece.push(text);
        }
        if piece.is_empty() {
            break;
        }
        let begun = Instant::now();
        let Some(vectors) = active.embedder.token_vectors(piece, Role::Document).await? else {
            return Ok(None);
        };
        active.pace.record(tokens, begun.elapsed());
        encoded.extend(ids.into_iter().zip(vectors));
    }
    let left = rest.collect();
    // New token vectors are compared in the same form as stored ones. Converting many would block an async worker.
    let dimensions = active.model.dimensions as usize;
    let convert = move || {
        let codes = |(id, tokens): (i64, TokenVectors)| {
            let codes = TokenCodes::encode(&tokens.vectors, dimensions);
            (id, Arc::new(codes))
        };
        encoded.into_iter().map(codes).collect::<HashMap<_, _>>()
    };
    let codes = tokio::task::spawn_blocking(convert).await.map_err(|_| {
        ProviderError::Malformed("the token vectors could not be converted".to_owned())
    })?;
    if let Some(cache) = cache {
        for (id, codes) in &codes {
            if let Some(key) = keys.get(id) {
                cache.insert(*key, Arc::clone(codes));
            }
        }
    }
    Ok(Some(EncodedTexts { codes, left }))
}

/// How many tokens can be encoded in this time.
fn room(active: &ActiveModel, time: Duration) -> usize {
    let usual = || (USUAL_PACE * time.as_secs_f64()) as usize;
    active.pace.tokens_in(time).unwrap_or_else(usual)
}

/// The number of tokens by which encoding is planned. Only their proportions matter, and the model's own tokenizer
/// would take a noticeable part of the budget.
fn estimated_tokens(text: &str) -> usize {
    context_text::estimated_tokens(text).len()
}

/// The query's tokens and the candidates that are compared with them.
struct Comparison {
    query_tokens: Arc<TokenVectors>,
    /// The weight of each token of the query.
    weights: Vec<f64>,
    /// The places of the query's tokens that are pieces of identifiers, each with the stem of its word.
    identifiers: Vec<(usize, String)>,
    /// For each candidate, the stems of the query's words that it has.
    found: HashMap<i64, BTreeSet<String>>,
    /// The candidates. Their texts are not used.
    excerpts: Vec<Excerpt>,
    /// The token vectors, by entry.
    codes: HashMap<i64, Arc<TokenCodes>>,
    context_weight: f64,
    context_gap: Duration,
}

impl Comparison {
    /// The score, 0 to 1, of each candidate with token vectors.
    fn run(self) -> HashMap<i64, f64> {
        let turn = |excerpt: Excerpt| {
            let codes = self.codes.get(&excerpt.id)?;
            let mut similarities = codes.best_similarities(&self.query_tokens);
            if let Some(found) = self.found.get(&excerpt.id) {
                compare_identifiers(&mut similarities, &self.identifiers, found);
            }
            Some(Turn {
                similarities,
                id: excerpt.id,
                thread_id: excerpt.thread_id,
                source: excerpt.source,
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

/// Compares identifiers as wholes: the pieces of one match fully if the text has it. Its pieces are also similar to those
/// of other identifiers, which says nothing.
fn compare_identifiers(
    similarities: &mut [f32],
    identifiers: &[(usize, String)],
    found: &BTreeSet<String>,
) {
    for (place, stem) in identifiers {
        if let Some(similarity) = similarities.get_mut(*place) {
            *similarity = if found.contains(stem) {
                1.0
            } else {
                OTHER_IDENTIFIER * *similarity
            };
        }
    }
}

/// The byte of the query at which each token begins. `None` for the tokens of a prefix that the model prepends.
fn token_starts(active: &ActiveModel, query: &str, tokens: &TokenVectors) -> Vec<Option<usize>> {
    let starts = active.embedder.token_starts(query);
    let prefix = tokens.ids.len().saturating_sub(starts.len());
    let mut all = vec![None; prefix];
    all.extend(starts.into_iter().map(Some));
    all.truncate(tokens.ids.len());
    all
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
/// model changed during the search, the best chunk is one of the former model. The token vectors may then be those of
/// another chunk of the entry.
async fn stored_tokens(
    caller: &Caller,
    active: &ActiveModel,
    vectors: &dyn VectorStore,
    candidates: &[Candidate],
) -> Result<HashMap<i64, Arc<TokenCodes>>, RerankError> {
    if !active.stores_tokens {
        return Ok(HashMap::new());
    }
    let key = |candidate: &Candidate| ChunkKey {
        id: candidate.id,
        position: candidate.best_chunk.map_or(0, |chunk| chunk.position),
    };
    let keys = candidates.iter().map(key).collect();
    let found = vectors.tokens(&caller.owner, &active.model, keys).await?;
    let bytes: usize = found.iter().map(|found| found.tokens.len()).sum();
    caller.memory.take(bytes as u64).map_err(StoreError::from)?;
    let codes = |ChunkTokens { key, tokens }| match TokenCodes::from_bytes(
        tokens,
        active.model.dimensions as usize,
    ) {
        Ok(codes) => Some((key.id, Arc::new(codes))),
        Err(error) => {
            tracing::warn!(
                entry.id = key.id,
                "{error}; the entry is encoded when a search reranks it"
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
            caches_tokens: false,
            token_cache: None,
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
        let mut ids: Vec<i64> = found.unwrap().unwrap().codes.into_keys().collect();
        ids.sort_unstable();
        (ids, begun.elapsed().as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn the_best_candidates_are_encoded_as_many_as_the_budget_allows() {
        let (embedder, active) = slow();
        // The first two texts show the pace.
        assert_eq!(
            encoded(&active, 600, &[180; 50]).await,
            (vec![0, 1, 2], 540)
        );
        assert_eq!(*crate::lock::locked(&embedder.pieces), [2, 1]);
        crate::lock::locked(&embedder.pieces).clear();
        assert_eq!(
            encoded(&active, 600, &[180; 50]).await,
            (vec![0, 1, 2], 540)
        );
        assert_eq!(
            *crate::lock::locked(&embedder.pieces),
            [3],
            "it knows the pace"
        );
        // A text that does not fit ends the encoding. A shorter text with a worse rank is not encoded instead.
        assert_eq!(encoded(&active, 600, &[180, 180, 270, 9]).await.0, [0, 1]);
    }

    #[test]
    fn an_identifier_is_compared_as_a_whole() {
        let query = "commit 0203166 of 2024";
        let analyzer = Analyzer::new(context_text::Language::English);
        let words = QueryWords::of(query, &[], &analyzer);
        // A prefix, "commit", three pieces of the hash, "of" and "2024".
        let starts = [
            None,
            Some(0),
            Some(7),
            Some(9),
            Some(12),
            Some(15),
            Some(18),
        ];
        let identifiers = words.identifiers(query, &starts);
        let places: Vec<usize> = identifiers.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [2, 3, 4]);
        let compared = |found: &[&str]| {
            let mut similarities = [0.8; 7];
            let found = found.iter().map(ToString::to_string).collect();
            compare_identifiers(&mut similarities, &identifiers, &found);
            similarities
        };
        assert_eq!(compared(&["0203166"]), [0.8, 0.8, 1.0, 1.0, 1.0, 0.8, 0.8]);
        assert_eq!(compared(&["commit"]), [0.8, 0.8, 0.4, 0.4, 0.4, 0.8, 0.8]);
    }

    #[test]
    fn the_same_candidates_always_have_the_same_coverage() {
        let words = [
            "anchor", "bridge", "candle", "dragon", "engine", "forest", "garden", "hammer",
        ];
        // Each candidate has one word more than the one before, so the words differ in weight.
        let excerpts: Vec<Excerpt> = (0..)
            .zip(1..=words.len())
            .map(|(id, count)| Excerpt {
                id,
                thread_id: String::new(),
                source: context_model::Source::User,
                created_at: context_model::Timestamp(0),
                text: words[..count].join(" "),
                question: 0.0,
            })
            .collect();
        let analyzer = Analyzer::new(context_text::Language::English);
        let coverage = || QueryWords::of(&words.join(" "), &excerpts, &analyzer).coverage();
        let first = coverage();
        assert_eq!(first[&7], 1.0);
        assert!((0..50).all(|_| coverage() == first));
    }

    #[tokio::test(start_paused = true)]
    async fn some_tokens_are_encoded_without_any_budget_and_long_lists_in_pieces() {
        let (embedder, active) = slow();
        assert_eq!(encoded(&active, 0, &[180; 5]).await.0, [0, 1]);
        assert_eq!(encoded(&active, 0, &[180; 5]).await.0, [0, 1]);
        assert_eq!(
            encoded(&active, 0, &[48; 50]).await.0.len(),
            8,
            "short ones"
        );
        assert_eq!(encoded(&active, 0, &[900; 5]).await.0, [0], "a long one");
        crate::lock::locked(&embedder.pieces).clear();
        assert_eq!(encoded(&active, 1_000_000, &[360; 5]).await.0.len(), 5);
        assert_eq!(*crate::lock::locked(&embedder.pieces), [2, 2, 1]);
    }
}
