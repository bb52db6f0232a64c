//! Compares the sentences of long texts with the query, to find the evidence in them.
//!
//! Chunks are too long for snippets: a snippet has room for a third of a chunk. So the sentences of a page's long texts
//! are embedded when a search finds them, those of the nearest chunks first, until the budget (RERANK_BUDGET_MS) is
//! spent. Their vectors are cached for the next search, beside the token vectors of reranking. If some sentences of a
//! text were not embedded, the evidence in it is found by the query's words.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long encoding takes"
)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use context_providers::{ProviderError, Role, TokenCodes, TokenVectors};
use context_store::{ChunkRange, StoredEntry};
use tokio::time::Instant;

use super::Retrieval;
use super::documents::end_of_shown;
use super::embedding::ActiveModel;
use super::evidence::{Evidence, SNIPPET_CHARS, character_range};
use super::ranked::RankedSearch;

/// Number of tokens encoded at a time. After each piece, the number of tokens that fit into the remaining budget is
/// estimated again, and other searches can run.
const PIECE_TOKENS: usize = 256;
/// Maximum number of sentences that are compared in one search, however much time there is: those of a text of 40
/// pages.
const MAX_SENTENCES: usize = 2_000;

impl Retrieval {
    /// Adds the similarities of sentences of these entries to the evidence, if a model inside the service has embedded
    /// the query. A remote provider would get a request in every search. Without similarities evidence is found by
    /// words, so an error of the model is only logged.
    pub(super) async fn compare_sentences(
        &self,
        search: &RankedSearch<'_>,
        entries: &Arc<Vec<StoredEntry>>,
        evidence: &mut Evidence,
        plan: &mut Vec<String>,
    ) {
        let Some(semantic) = &search.rank.semantic else {
            return;
        };
        let Ok(active) = self.embeddings.model() else {
            return;
        };
        let is_local = active.embedder.address().is_none();
        if !is_local || !search.reading.is_possible || active.model != semantic.model {
            return;
        }
        let Ok(sentences) = self.sentences_of(entries, evidence).await else {
            return;
        };
        if sentences.is_empty() {
            return;
        }
        let count = sentences.len();
        let budget = Duration::from_millis(u64::from(self.reranking.budget_ms));
        let compared = compare(
            &active,
            &semantic.vector,
            sentences,
            Instant::now() + budget,
        );
        match compared.await {
            Ok(similarities) => {
                if search.rank.explain {
                    plan.push(format!(
                        "snippets: {} of {count} sentences compared",
                        similarities.len()
                    ));
                }
                evidence.similarities = similarities;
            }
            Err(error) => tracing::warn!("Sentences were not compared with a query: {error}"),
        }
    }

    /// The sentences of the entries whose results do not show them whole. Texts may be long, so this runs outside the
    /// async workers. The texts are shared, because copies of them would not be in the request's memory budget.
    async fn sentences_of(
        &self,
        entries: &Arc<Vec<StoredEntry>>,
        evidence: &Evidence,
    ) -> Result<Vec<String>, tokio::task::JoinError> {
        let shown_chars = self.search.truncation_length;
        let (entries, chunks) = (Arc::clone(entries), evidence.chunks.clone());
        let find = move || {
            let cut = entries
                .iter()
                .filter(|entry| end_of_shown(entry, shown_chars).is_some());
            sentences(cut.map(|entry| (entry.text.as_str(), chunks.get(&entry.id).copied())))
        };
        tokio::task::spawn_blocking(find).await
    }
}

/// The distinct sentences of texts: first those in the nearest chunks, then the others, both in the order of the texts.
/// `texts` holds each text with its chunk that is nearest to the query.
fn sentences<'t>(texts: impl Iterator<Item = (&'t str, Option<ChunkRange>)>) -> Vec<String> {
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for (text, chunk) in texts {
        if near.len() + far.len() >= MAX_SENTENCES {
            break;
        }
        let chunk = chunk.map(|chunk| character_range(text, (chunk.start, chunk.end)));
        for sentence in context_text::evidence_sentences(text, SNIPPET_CHARS) {
            let is_near = chunk
                .as_ref()
                .is_some_and(|chunk| sentence.start < chunk.end && chunk.start < sentence.end);
            let group = if is_near { &mut near } else { &mut far };
            group.push(&text[sentence]);
        }
    }
    let mut seen = HashSet::new();
    near.into_iter()
        .chain(far)
        .filter(|sentence| seen.insert(*sentence))
        .take(MAX_SENTENCES)
        .map(str::to_owned)
        .collect()
}

/// The similarity of each sentence to the query: of those in memory, and of those that are encoded before the deadline.
async fn compare(
    active: &ActiveModel,
    query: &[f32],
    sentences: Vec<String>,
    deadline: Instant,
) -> Result<HashMap<String, f64>, ProviderError> {
    let query = TokenVectors {
        ids: vec![0],
        vectors: query.to_vec(),
    };
    let similarity = |codes: &TokenCodes| {
        let best = codes.best_similarities(&query);
        f64::from(best.first().copied().unwrap_or_default())
    };
    let mut similarities = HashMap::new();
    let mut missing = Vec::new();
    for sentence in sentences {
        let cache = active.token_cache.as_ref();
        match cache.and_then(|cache| cache.get(cache.sentence_key(&sentence))) {
            Some(codes) => {
                similarities.insert(sentence, similarity(&codes));
            }
            None => missing.push(sentence),
        }
    }
    let mut rest = missing.into_iter().peekable();
    let mut is_first = true;
    while rest.peek().is_some() {
        let left = deadline.saturating_duration_since(Instant::now());
        // Before the first measurement one piece is encoded. One sentence is encoded even if no time is left, because
        // the pace would otherwise never be measured again after the machine was busy.
        let room = active.pace.tokens_in(left).unwrap_or(PIECE_TOKENS);
        let (mut piece, mut tokens) = (Vec::new(), 0);
        while let Some(sentence) = rest.next_if(|sentence| {
            tokens += context_text::estimated_tokens(sentence).len();
            let fits = tokens <= room && (piece.is_empty() || tokens <= PIECE_TOKENS);
            fits || (is_first && piece.is_empty())
        }) {
            piece.push(sentence);
        }
        is_first = false;
        if piece.is_empty() {
            break;
        }
        let begun = Instant::now();
        let vectors = active.embedder.embed(piece.clone(), Role::Document).await?;
        let encoded: usize = piece
            .iter()
            .map(|sentence| context_text::estimated_tokens(sentence).len())
            .sum();
        active.pace.record(encoded, begun.elapsed());
        for (sentence, vector) in piece.into_iter().zip(vectors) {
            let codes = Arc::new(TokenCodes::encode(&vector, query.vectors.len()));
            if let Some(cache) = &active.token_cache {
                cache.insert(cache.sentence_key(&sentence), Arc::clone(&codes));
            }
            similarities.insert(sentence, similarity(&codes));
        }
    }
    Ok(similarities)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentences_of_the_nearest_chunks_come_first_and_each_comes_once() {
        let chunk = |start, end| {
            Some(ChunkRange {
                position: 0,
                start,
                end,
            })
        };
        let texts = [
            ("One is here. Two is here.", chunk(13, 25)),
            ("Three is here. One is here.", None),
        ];
        assert_eq!(
            sentences(texts.into_iter()),
            ["Two is here.", "One is here.", "Three is here."]
        );
        let long: String = (0..3_000).map(|n| format!("Line {n}.\n")).collect();
        let end = long.len() as u32;
        let found = sentences(std::iter::once((long.as_str(), chunk(end - 10, end))));
        assert_eq!(
            (found.len(), found[0].as_str()),
            (MAX_SENTENCES, "Line 2999.")
        );
    }
}
