//! Embeds texts to store. Splits them into chunks and embeds the chunks of all texts together.

use std::sync::Arc;

use context_providers::{ProviderError, Role, TextVectors};
use context_store::{Embedded, EmbeddedChunk, Embedding};

use super::active_model::{ActiveModel, checked};

/// Maximum number of chunks of a text whose token vectors are stored, or cached when the text is embedded. Token
/// vectors take about 45 times as much space as the text. For a longer text, reranking encodes the one chunk that it
/// reads.
const MAX_CHUNKS_WITH_TOKENS: usize = 64;

/// A chunk of a text, with its position in characters.
struct Chunk {
    text: String,
    start: u32,
    end: u32,
}

/// Texts that are split into chunks. `None` stands for an item without a new text.
pub(super) struct SplitTexts(Vec<Option<Vec<Chunk>>>);

/// Embeds texts for the background worker, in order. Searches and writes take precedence. `None` stands for an item
/// without a new text.
///
/// # Errors
/// The provider's errors.
pub(crate) async fn embed(
    active: &Arc<ActiveModel>,
    texts: Vec<Option<String>>,
) -> Result<Vec<Embedding>, ProviderError> {
    let texts = split(active, texts).await?;
    texts.embed(active, Role::LateDocument).await
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

    /// Cuts the items into pieces of at most `chunks` chunks, or of one longer text, each with the index of its first
    /// item. Texts of more than `longest` chunks are left out, and so are items without a new text.
    pub fn into_pieces(self, chunks: usize, longest: usize) -> Vec<(usize, Self)> {
        let mut pieces: Vec<(usize, Self)> = Vec::new();
        let mut room = 0;
        for (index, text) in self.0.into_iter().enumerate() {
            let count = text.as_ref().map_or(0, Vec::len);
            if count == 0 || count > longest {
                // The next piece begins after this item, because the items of a piece are adjacent.
                room = 0;
                continue;
            }
            match pieces.last_mut() {
                Some((_, piece)) if count <= room => piece.0.push(text),
                _ => {
                    room = chunks;
                    pieces.push((index, Self(vec![text])));
                }
            }
            room = room.saturating_sub(count);
        }
        pieces
    }

    /// Embeds all chunks. Takes two calls of the provider at most: one with token vectors and one without.
    ///
    /// # Errors
    /// The provider's errors.
    pub async fn embed(
        self,
        active: &ActiveModel,
        role: Role,
    ) -> Result<Vec<Embedding>, ProviderError> {
        let gets_tokens = |chunks: &[Chunk]| {
            (active.stores_tokens || active.caches_tokens) && chunks.len() <= MAX_CHUNKS_WITH_TOKENS
        };
        let (with_tokens, without_tokens): (Vec<&[Chunk]>, Vec<&[Chunk]>) = self
            .0
            .iter()
            .flatten()
            .map(Vec::as_slice)
            .partition(|chunks| gets_tokens(chunks));
        let mut vectors_with_tokens = vectors(active, &with_tokens, true, role).await?.into_iter();
        let mut vectors_without = vectors(active, &without_tokens, false, role)
            .await?
            .into_iter();
        let embedding = |chunks: Option<Vec<Chunk>>| match chunks {
            // The store ignores the embedding of an item without a new text.
            None => Embedding::Later,
            Some(chunks) => {
                let vectors = if gets_tokens(&chunks) {
                    &mut vectors_with_tokens
                } else {
                    &mut vectors_without
                };
                // The chunks come first: `zip` must not take a vector that belongs to the next text.
                let chunks = chunks.into_iter().zip(vectors);
                Embedding::Now(Embedded {
                    model: active.model.clone(),
                    chunks: chunks
                        .map(|(chunk, vectors)| embedded_chunk(active, chunk, vectors))
                        .collect(),
                })
            }
        };
        Ok(self.0.into_iter().map(embedding).collect())
    }
}

/// The chunk as it is stored. Token vectors that are not stored go into the cache.
fn embedded_chunk(active: &ActiveModel, chunk: Chunk, vectors: TextVectors) -> EmbeddedChunk {
    let tokens = match (vectors.tokens, &active.token_cache) {
        (Some(tokens), _) if active.stores_tokens => Some(tokens.into_bytes()),
        (Some(tokens), Some(cache)) => {
            cache.insert(cache.key(&chunk.text), Arc::new(tokens));
            None
        }
        (_, _) => None,
    };
    EmbeddedChunk {
        start: chunk.start,
        end: chunk.end,
        vector: vectors.vector,
        tokens,
    }
}

/// The vectors of all chunks of the texts, in order, with token vectors if requested.
async fn vectors(
    active: &ActiveModel,
    texts: &[&[Chunk]],
    with_tokens: bool,
    role: Role,
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
        let vectors = active.embedder.embed(inputs, role).await?;
        let vectors = checked(vectors, wanted, active.model.dimensions)?;
        return Ok(vectors
            .into_iter()
            .map(|vector| TextVectors {
                vector,
                tokens: None,
            })
            .collect());
    }
    let found = active.embedder.embed_with_tokens(inputs, role).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_adjacent_items_and_leave_out_what_is_too_long_or_has_no_text() {
        let text = |chunks: usize| {
            let chunk = |_| Chunk {
                text: String::new(),
                start: 0,
                end: 0,
            };
            (chunks > 0).then(|| (0..chunks).map(chunk).collect())
        };
        let pieces = |counts: &[usize]| -> Vec<(usize, Vec<usize>)> {
            SplitTexts(counts.iter().map(|count| text(*count)).collect())
                .into_pieces(4, 8)
                .into_iter()
                .map(|(first, piece)| (first, piece.0.iter().flatten().map(Vec::len).collect()))
                .collect()
        };
        assert_eq!(
            pieces(&[1, 3, 1, 6, 1]),
            [(0, vec![1, 3]), (2, vec![1]), (3, vec![6]), (4, vec![1])]
        );
        assert_eq!(
            pieces(&[1, 0, 1, 9, 2]),
            [(0, vec![1]), (2, vec![1]), (4, vec![2])]
        );
        assert_eq!(pieces(&[0, 9]), []);
    }
}
