//! Embeds texts to store. Splits them into chunks and embeds all chunks in one call.

use std::sync::Arc;

use context_providers::{ProviderError, Role, TextVectors, TokenCodes};
use context_store::{Embedded, EmbeddedChunk, Embedding};

use super::active_model::{ActiveModel, checked};

/// Maximum number of chunks of a text that is stored with token vectors. Token vectors take about 45 times as much
/// space as the text. For a longer text, reranking encodes the one chunk that it reads.
const TOKENS_CHUNKS: usize = 64;

/// A chunk of a text, with its position in characters.
struct Part {
    text: String,
    start: u32,
    end: u32,
}

/// Embeds texts, in order. `None` stands for an item without a new text.
///
/// # Errors
/// The provider's errors; `Unavailable` when the texts have more than `max_chunks` chunks.
pub(crate) async fn embed(
    active: &Arc<ActiveModel>,
    texts: Vec<Option<String>>,
    max_chunks: usize,
) -> Result<Vec<Embedding>, ProviderError> {
    let cutting = Arc::clone(active);
    // Tokenizing a megabyte would block an async worker.
    let parts = tokio::task::spawn_blocking(move || {
        texts
            .into_iter()
            .map(|text| text.map(|text| cut(&cutting, &text)))
            .collect::<Vec<_>>()
    })
    .await
    .map_err(|_| ProviderError::Malformed("the texts could not be cut into chunks".to_owned()))?;
    if parts.iter().flatten().map(Vec::len).sum::<usize>() > max_chunks {
        return Err(ProviderError::unavailable("the text is long"));
    }
    let stores_tokens = |parts: &[Part]| active.stores_tokens && parts.len() <= TOKENS_CHUNKS;
    let (with_tokens, without): (Vec<&[Part]>, Vec<&[Part]>) = parts
        .iter()
        .flatten()
        .map(Vec::as_slice)
        .partition(|parts| stores_tokens(parts));
    let mut with_tokens = vectors(active, &with_tokens, true).await?.into_iter();
    let mut without = vectors(active, &without, false).await?.into_iter();
    let of_text = |parts: Option<Vec<Part>>| match parts {
        None => Embedding::Later,
        Some(parts) => {
            let vectors = if stores_tokens(&parts) {
                &mut with_tokens
            } else {
                &mut without
            };
            let chunk = |(part, found): (&Part, TextVectors)| EmbeddedChunk {
                start: part.start,
                end: part.end,
                vector: found.vector,
                tokens: found.tokens.map(TokenCodes::into_bytes),
            };
            Embedding::Now(Embedded {
                model: active.model.clone(),
                chunks: parts.iter().zip(vectors).map(chunk).collect(),
            })
        }
    };
    Ok(parts.into_iter().map(of_text).collect())
}

/// The vectors of all chunks of the texts, in order, with token vectors if requested.
async fn vectors(
    active: &ActiveModel,
    texts: &[&[Part]],
    with_tokens: bool,
) -> Result<Vec<TextVectors>, ProviderError> {
    let inputs: Vec<String> = texts
        .iter()
        .copied()
        .flatten()
        .map(|part| part.text.clone())
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
fn cut(active: &ActiveModel, text: &str) -> Vec<Part> {
    let starts = active.embedder.token_starts(text);
    let ranges = context_text::chunks(text, &starts, active.embedder.chunk_sizes());
    let (mut byte, mut character) = (0, 0u32);
    let mut parts = Vec::with_capacity(ranges.len());
    for range in ranges {
        // Chunks overlap, so counting continues from the start of the previous chunk.
        character += count(&text[byte..range.start]);
        byte = range.start;
        let part = &text[range];
        parts.push(Part {
            text: part.to_owned(),
            start: character,
            end: character + count(part),
        });
    }
    parts
}

fn count(text: &str) -> u32 {
    u32::try_from(text.chars().count()).unwrap_or(u32::MAX)
}
