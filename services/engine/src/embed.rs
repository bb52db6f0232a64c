//! The vectors of texts that are stored: cut into chunks, embedded in one call.

use std::sync::Arc;
use std::time::Duration;

use context_model::Result;
use context_providers::{ProviderError, Role, TextVectors, TokenCodes};
use context_store::{Embedded, EmbeddedChunk, Embedding};

use crate::meaning::{self, Ready};
use crate::{Engine, OnFailure};

/// How long a write waits for its vectors; after that they are made in the background.
const WRITE_PATIENCE: Duration = Duration::from_secs(20);
/// Chunks that a write waits for at most: some seconds of a small model.
const WRITE_CHUNKS: usize = 400;

/// Chunks of a text whose tokens' vectors are stored at most. They are some 45 times as large as the text: of a book they
/// are not worth their place, and reranking encodes the one chunk that it looks at.
const TOKENS_CHUNKS: usize = 64;

/// What is said of an entry whose vectors come later.
const PENDING: &str = "embeddings are pending and follow in the background";

/// The vectors of a write's items.
#[derive(Debug, Default)]
pub(crate) struct Embeddings {
    /// One for each item.
    pub items: Vec<Embedding>,
    /// Whether some could have been made and were not.
    pub pending: bool,
}

/// A part of a text: its bytes and its characters.
struct Part {
    text: String,
    start: u32,
    end: u32,
}

impl Engine {
    /// Embeds the texts of a write. Without a model there is nothing to do.
    ///
    /// # Errors
    /// The provider's, with `EMBEDDING_ON_FAILURE=fail`.
    pub(crate) async fn embed(&self, texts: Vec<Option<String>>) -> Result<Embeddings> {
        if texts.iter().all(Option::is_none) {
            return Ok(Embeddings::default());
        }
        let ready = match self.meaning() {
            Ok((ready, _)) => ready,
            Err(reason)
                if self.awaits_meaning() && self.config.on_embedding_failure == OnFailure::Fail =>
            {
                return Err(meaning::provider_error(ProviderError::unavailable(reason)));
            }
            Err(_) => {
                return Ok(Embeddings {
                    items: Vec::new(),
                    pending: self.awaits_meaning(),
                });
            }
        };
        let count = texts.len();
        let outcome = tokio::time::timeout(WRITE_PATIENCE, embed(&ready, texts, WRITE_CHUNKS))
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("it took too long")));
        match outcome {
            Ok(items) => Ok(Embeddings {
                items,
                pending: false,
            }),
            Err(error) if self.config.on_embedding_failure == OnFailure::Fail => {
                Err(meaning::provider_error(error))
            }
            Err(error) => {
                tracing::warn!(error = %error, "Entries are stored without vectors; they follow in the background");
                Ok(Embeddings {
                    items: vec![Embedding::Later; count],
                    pending: true,
                })
            }
        }
    }

    /// The message of a write that was made; when vectors come later it says so, and whoever makes them is woken.
    pub(crate) fn stored_message(&self, message: String, pending: bool) -> String {
        if !pending {
            return message;
        }
        self.meaning.wake.notify_one();
        format!("{message}; {PENDING}")
    }
}

/// The vectors of texts, in order; a missing text has none.
///
/// # Errors
/// The provider's; more than `max_chunks`.
pub(crate) async fn embed(
    ready: &Arc<Ready>,
    texts: Vec<Option<String>>,
    max_chunks: usize,
) -> Result<Vec<Embedding>, ProviderError> {
    let cutting = Arc::clone(ready);
    // Tokenizing a megabyte takes a while.
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
    let stores_tokens = |parts: &[Part]| ready.stores_tokens && parts.len() <= TOKENS_CHUNKS;
    let (with_tokens, without): (Vec<&[Part]>, Vec<&[Part]>) = parts
        .iter()
        .flatten()
        .map(Vec::as_slice)
        .partition(|parts| stores_tokens(parts));
    let mut with_tokens = vectors(ready, &with_tokens, true).await?.into_iter();
    let mut without = vectors(ready, &without, false).await?.into_iter();
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
                model: ready.model.clone(),
                chunks: parts.iter().zip(vectors).map(chunk).collect(),
            })
        }
    };
    Ok(parts.into_iter().map(of_text).collect())
}

/// The vectors of these texts' chunks, and of their tokens if wanted, one after the other.
async fn vectors(
    ready: &Ready,
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
        let vectors = ready.embedder.embed(inputs, Role::Document).await?;
        let vectors = meaning::checked(vectors, wanted, ready.model.dimensions)?;
        return Ok(vectors
            .into_iter()
            .map(|vector| TextVectors {
                vector,
                tokens: None,
            })
            .collect());
    }
    let found = ready
        .embedder
        .embed_with_tokens(inputs, Role::Document)
        .await?;
    let (vectors, tokens): (Vec<_>, Vec<_>) = found
        .into_iter()
        .map(|TextVectors { vector, tokens }| (vector, tokens))
        .unzip();
    let vectors = meaning::checked(vectors, wanted, ready.model.dimensions)?;
    Ok(vectors
        .into_iter()
        .zip(tokens)
        .map(|(vector, tokens)| TextVectors { vector, tokens })
        .collect())
}

/// The chunks of a text.
fn cut(ready: &Ready, text: &str) -> Vec<Part> {
    let starts = ready.embedder.token_starts(text);
    let ranges = context_text::chunks(text, &starts, ready.embedder.chunk_sizes());
    let (mut byte, mut character) = (0, 0u32);
    let mut parts = Vec::with_capacity(ranges.len());
    for range in ranges {
        // Chunks overlap, so the count goes on from the start of the last one.
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
