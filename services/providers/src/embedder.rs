use async_trait::async_trait;
use context_text::ChunkSizes;

use crate::{ProviderError, TokenCodes, TokenVectors};

/// An embedding model, as it is stored with its vectors. Vectors of different models are never compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The provider that runs it: `local`, `ollama`, ….
    pub provider: &'static str,
    /// The model's name, as used by the provider.
    pub name: String,
    /// Distinguishes versions of the same name. May be empty.
    pub revision: String,
    /// Number of dimensions of its vectors.
    pub dimensions: usize,
}

impl Model {
    /// Name and revision. Vectors are comparable only if these are equal.
    #[must_use]
    pub fn identity(&self) -> String {
        if self.revision.is_empty() {
            self.name.clone()
        } else {
            format!("{}@{}", self.name, self.revision)
        }
    }
}

/// The role of a text. Some models use different prefixes for queries and documents. A local model embeds queries
/// first, then documents, then late documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A text to search for.
    Query,
    /// A text to be found. A write waits for it.
    Document,
    /// A text to be found that is embedded in the background.
    LateDocument,
}

/// The vectors of a text from one pass of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct TextVectors {
    /// The text's vector, as from [`Embedder::embed`].
    pub vector: Vec<f32>,
    /// The token vectors, if the provider supports them.
    pub tokens: Option<TokenCodes>,
}

/// The vectors of a query from one pass of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryVectors {
    /// The query's vector, as from [`Embedder::embed`].
    pub vector: Vec<f32>,
    /// The token vectors, if the provider supports them. They are not encoded, because there is one query and all texts
    /// are compared with it.
    pub tokens: Option<TokenVectors>,
}

/// How well a model's vocabulary suits a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// Whether the model can represent the text at all.
    pub is_possible: bool,
    /// How far the tokenizer splits the words into pieces: from 0, as in the model's own language, to 1, as in another
    /// language.
    pub fragmentation: f64,
}

impl Reading {
    /// A text in the model's own language.
    pub const WELL: Self = Self {
        is_possible: true,
        fragmentation: 0.0,
    };
}

/// Computes embeddings of texts.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// The model.
    fn model(&self) -> &Model;

    /// The address of the provider, without credentials. `None` for a model inside the service.
    fn address(&self) -> Option<&str> {
        None
    }

    /// The chunk sizes that suit the model.
    fn chunk_sizes(&self) -> ChunkSizes;

    /// Byte offset at which each token of the text starts, ascending. Slow for long texts.
    fn token_starts(&self, text: &str) -> Vec<usize>;

    /// How well the model's vocabulary suits a query. [`Reading::WELL`] for every query if the tokenizer is not
    /// available locally.
    fn reading(&self, query: &str) -> Reading {
        let _ = query;
        Reading::WELL
    }

    /// A vector for each text, in order. A local model's vectors have length 1. Those of a provider over HTTP can have
    /// any length.
    ///
    /// # Errors
    /// [`ProviderError`]. No vectors are returned then.
    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError>;

    /// Like [`embed`](Self::embed), with the token vectors of each text from the same pass if the provider supports
    /// them. Token vectors are returned as codes, because the floats of many texts would fill the memory.
    ///
    /// # Errors
    /// [`ProviderError`]. No vectors are returned then.
    async fn embed_with_tokens(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Vec<TextVectors>, ProviderError> {
        let vectors = self.embed(texts, role).await?;
        Ok(vectors
            .into_iter()
            .map(|vector| TextVectors {
                vector,
                tokens: None,
            })
            .collect())
    }

    /// The vector of a query, as from [`embed`](Self::embed), and its token vectors, as from
    /// [`token_vectors`](Self::token_vectors), if the provider computes both in one pass.
    ///
    /// # Errors
    /// [`ProviderError`]. No vectors are returned then.
    async fn embed_query(&self, query: String) -> Result<QueryVectors, ProviderError> {
        let vector = match <[Vec<f32>; 1]>::try_from(self.embed(vec![query], Role::Query).await?) {
            Ok([vector]) => vector,
            Err(vectors) => {
                return Err(ProviderError::Malformed(format!(
                    "it contains {} vectors for one text",
                    vectors.len()
                )));
            }
        };
        Ok(QueryVectors {
            vector,
            tokens: None,
        })
    }

    /// Whether the provider supports token vectors.
    fn has_token_vectors(&self) -> bool {
        false
    }

    /// The token vectors of each text. `None` if the provider does not support them.
    ///
    /// # Errors
    /// [`ProviderError`].
    async fn token_vectors(
        &self,
        texts: Vec<String>,
        role: Role,
    ) -> Result<Option<Vec<TokenVectors>>, ProviderError> {
        let _ = (texts, role);
        Ok(None)
    }
}
