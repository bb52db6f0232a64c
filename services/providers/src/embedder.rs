use async_trait::async_trait;
use context_text::ChunkSizes;

use crate::{ProviderError, TokenCodes, TokenVectors};

/// A model, as it is stored beside what it made. Vectors of different models are never compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Who runs it: `local`, `ollama`, ….
    pub provider: &'static str,
    /// Its name, as the provider knows it.
    pub name: String,
    /// What tells apart states of the same name; may be empty.
    pub revision: String,
    /// The length of its vectors.
    pub dimensions: usize,
}

impl Model {
    /// Name and revision: what must be equal for vectors to be comparable.
    #[must_use]
    pub fn identity(&self) -> String {
        if self.revision.is_empty() {
            self.name.clone()
        } else {
            format!("{}@{}", self.name, self.revision)
        }
    }
}

/// What a text is to a model: some put different words before the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Something to look for.
    Query,
    /// Something to be found.
    Document,
}

/// What a model makes of a text in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct TextVectors {
    /// The text's vector, of length 1.
    pub vector: Vec<f32>,
    /// Those of its tokens, where the provider can give them.
    pub tokens: Option<TokenCodes>,
}

/// What a model makes of a query in one pass.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryVectors {
    /// The query's vector, of length 1.
    pub vector: Vec<f32>,
    /// Those of its tokens, where the provider can give them. Not as codes: there is one query, and all texts are compared
    /// with it.
    pub tokens: Option<TokenVectors>,
}

/// Makes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// The model.
    fn model(&self) -> &Model;

    /// How long the texts are that it reads best.
    fn chunk_sizes(&self) -> ChunkSizes;

    /// Where in the text each token begins, in bytes, ascending. May take a while for a long text.
    fn token_starts(&self, text: &str) -> Vec<usize>;

    /// A vector of length 1 for each text, in order.
    ///
    /// # Errors
    /// [`ProviderError`]; no vector is given then.
    async fn embed(&self, texts: Vec<String>, role: Role) -> Result<Vec<Vec<f32>>, ProviderError>;

    /// As [`embed`](Self::embed), and the vectors of each text's tokens from the same pass where the provider can give
    /// them. They come as codes, because the floats of many texts would fill the memory.
    ///
    /// # Errors
    /// [`ProviderError`]; no vector is given then.
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

    /// What [`embed`](Self::embed) gives for a query, and what [`token_vectors`](Self::token_vectors) gives for it where that
    /// comes from the same pass.
    ///
    /// # Errors
    /// [`ProviderError`]; no vector is given then.
    async fn embed_query(&self, query: String) -> Result<QueryVectors, ProviderError> {
        let vector = match <[Vec<f32>; 1]>::try_from(self.embed(vec![query], Role::Query).await?) {
            Ok([vector]) => vector,
            Err(vectors) => {
                return Err(ProviderError::Malformed(format!(
                    "it has {} vectors for one text",
                    vectors.len()
                )));
            }
        };
        Ok(QueryVectors {
            vector,
            tokens: None,
        })
    }

    /// Whether it gives the vectors of tokens.
    fn has_token_vectors(&self) -> bool {
        false
    }

    /// The vectors of each text's tokens, where the provider can give them.
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
