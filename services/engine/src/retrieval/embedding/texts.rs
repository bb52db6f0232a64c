//! Embeds texts to store. Splits them into chunks and embeds all chunks in one call.

use std::sync::Arc;

use context_providers::{ProviderError, Role, TextVectors, TokenCodes};
use context_store::{Embedded, EmbeddedChunk, Embedding};

use super::active_model::{ActiveModel, checked};

/// Maximum number of chunks of a text that is stored with token vectors. Token vectors take about 45 times as much
/// space as the text. For a longer text, reranking encodes the one chunk that it reads.
const MAX_CHUNKS_WITH_TOKENS: usize = 64;

/// A chunk of a text, with its position in characters.
struct Chunk {
    text: String,
    start: u32,
    end: u32,
}

/// Texts that are split into chunks. `None` stands for an item without a new text.
pub(super) struct SplitTexts(Vec<Option<Vec<Chunk>>>);

/// Embeds texts, in order. `None` stands for an item without a new text.
///
/// # Errors
/// The provider's errors.
pub(crate) async fn embed(
    active: &Arc<ActiveModel>,
    texts: Vec<Option<String>>,
) -> Result<Vec<Embedding>, ProviderError> {
    split(active, texts).await?.embed(active).await
}

/// Splits texts into chunks of the model's size.
///
/// # Errors
/// `Malformed` if the model's tokenizer panics.
pub(super) async fn split(
    active: &Arc<ActiveModel>,
    texts: Vec<Option<String>>,
) -> Result<SplitTexts, ProviderError> {
    let active = Arc::clone(active);
    // Tokenizing a megabyte would block an async worker.
    tokio::task::spawn_blocking(move || {
        let split = |text: Option<String>| text.map(|text| chunks(&active, &text));
        SplitTexts(texts.into_iter().map(split).collect())
    })
    .await
    .map_err(|_| ProviderError::Malformed("the texts could not be split into chunks".to_owned()))
}

impl SplitTexts {
    /// Number of chunks of all texts.
    pub fn chunk_count(&self) -> usize {
        self.0.iter().flatten().map(Vec::len).sum()
    }

    /// Embeds all chunks. Takes two calls of the provider at most: one with token vectors and one without.
    ///
    /// # Errors
    /// The provider's errors.
    pub async fn embed(self, active: &ActiveModel) -> Result<Vec<Embedding>, ProviderError> {
        let with_tokens =
            |chunks: &[Chunk]| active.stores_tokens && chunks.len() <= MAX_CHUNKS_WITH_TOKENS;
        let (long, short): (Vec<&[Chunk]>, Vec<&[Chunk]>) = self
            .0
            .iter()
            .flatten()
            .map(Vec::as_slice)
            .partition(|chunks| !with_tokens(chunks));
        let mut vectors_with_tokens = vectors(active, &short, true).await?.into_iter();
        let mut vectors_without = vectors(active, &long, false).await?.into_iter();
        let embedding = |chunks: Option<Vec<Chunk>>| match chunks {
            // The store ignores the embedding of an item without a new text.
            None => Embedding::Later,
            Some(chunks) => {
                let vectors = if with_tokens(&chunks) {
                    &mut vectors_with_tokens
                } else {
                    &mut vectors_without
                };
                // The chunks come first: `zip` must not take a vector that belongs to the next text.
                let chunks = chunks.into_iter().zip(vectors);
                Embedding::Now(Embedded {
                    model: active.model.clone(),
                    chunks: chunks.map(embedded_chunk).collect(),
                })
            }
        };
        Ok(self.0.into_iter().map(embedding).collect())
    }
}

fn embedded_chunk((chunk, vectors): (Chunk, TextVectors)) -> EmbeddedChunk {
    EmbeddedChunk {
        start: chunk.start,
        end: chunk.end,
        vector: vectors.vector,
        tokens: vectors.tokens.map(TokenCodes::into_bytes),
    }
}

/// The vectors of all chunks of the texts, in order, with token vectors if requested.
async fn vectors(
    active: &ActiveModel,
    texts: &[&[Chunk]],
    with_tokens: bool,
) -> Result<Vec<TextVectors>, ProviderError> {
    let inputs: Vec<String> = texts
        .iter()
        .copied()
        .flatten()
        .map(|chunk| chunk.text.clone())
        .collect();
    let wanted = inputs.len();
    if wanted == 0 {
        return Ok(Vec::new());
    }
    if !with_tokens {
        let vectors = active.embedder.embed(inputs, Role::Document).await?;
        let vectors = checked(vectors, wanted, active.model.dimensions)?;
        return Ok(vectors
            .into_iter()
            .map(|vector| TextVectors {
                vector,
                tokens: None,
            })
            .collect());
    }
    let found = active
        .embedder
        .embed_with_tokens(inputs, Role::Document)
        .await?;
    let (vectors, tokens): (Vec<_>, Vec<_>) = found
        .into_iter()
        .map(|TextVectors { vector, tokens }| (vector, tokens))
        .unzip();
    let vectors = checked(vectors, wanted, active.model.dimensions)?;
    Ok(vectors
        .into_iter()
        .zip(tokens)
        .map(|(vector, tokens)| TextVectors { vector, tokens })
        .collect())
}

/// The chunks of a text.
fn chunks(active: &ActiveModel, text: &str) -> Vec<Chunk> {
    let starts = active.embedder.token_starts(text);
    let ranges = context_text::chunks(text, &starts, active.embedder.chunk_sizes());
    let (mut byte, mut character) = (0, 0u32);
    let mut chunks = Vec::with_capacity(ranges.len());
    for range in ranges {
        // Chunks overlap, so counting continues from the start of the previous chunk.
        character += count(&text[byte..range.start]);
        byte = range.start;
        let chunk = &text[range];
        chunks.push(Chunk {
            text: chunk.to_owned(),
            start: character,
            end: character + count(chunk),
        });
    }
    chunks
}

/// The number of characters.
fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}
