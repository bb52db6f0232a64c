//! Texts as the network reads them.

use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::ModelError;
use crate::config::{self, Config};

/// A text's tokens, special ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Places in the vocabulary.
    pub ids: Vec<u32>,
    /// 0 for the first text of a pair, 1 for the second.
    pub types: Vec<u32>,
}

/// The tokenizer of a model.
pub struct Tokens {
    /// Cuts a text after the tokens the model reads.
    cutting: Tokenizer,
    whole: Tokenizer,
    max: usize,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// Reads `tokenizer.json` from the model's directory.
    ///
    /// # Errors
    /// A file that is missing or malformed.
    pub fn load(directory: &Path) -> Result<Self, ModelError> {
        let max = config::max_tokens(directory, &Config::load(directory)?)?;
        let path = directory.join("tokenizer.json");
        let file = std::fs::read(&path).map_err(|source| ModelError::File {
            path: path.clone(),
            source,
        })?;
        let malformed = |error: tokenizers::Error| ModelError::Malformed {
            path: path.clone(),
            what: error.to_string(),
        };
        let mut whole = Tokenizer::from_bytes(&file).map_err(malformed)?;
        // What the file says of padding and truncation is about somebody's batches.
        whole.with_padding(None);
        whole.with_truncation(None).map_err(malformed)?;
        let mut cutting = whole.clone();
        cutting
            .with_truncation(Some(TruncationParams {
                max_length: max,
                ..TruncationParams::default()
            }))
            .map_err(malformed)?;
        Ok(Self {
            cutting,
            whole,
            max,
        })
    }

    /// Tokens the model reads of a text at most, the special ones included.
    #[must_use]
    pub const fn max(&self) -> usize {
        self.max
    }

    /// A text, cut after what the model reads.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`].
    pub fn encode(&self, text: &str) -> Result<Encoded, ModelError> {
        self.cut(text)
    }

    /// A question and a passage for [`Model::score`](crate::Model::score); the longer one is cut when both are too long.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`].
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoded, ModelError> {
        self.cut((first, second))
    }

    fn cut<'t>(
        &self,
        input: impl Into<tokenizers::EncodeInput<'t>> + Send,
    ) -> Result<Encoded, ModelError> {
        let encoding = self
            .cutting
            .encode_fast(input, true)
            .map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        Ok(Encoded {
            ids: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
        })
    }

    /// Where in the text each of its tokens begins, in bytes, in order; special tokens left out.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`].
    pub fn starts(&self, text: &str) -> Result<Vec<usize>, ModelError> {
        let encoding = self
            .whole
            .encode(text, false)
            .map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        Ok(encoding
            .get_offsets()
            .iter()
            .map(|(start, _)| *start)
            .collect())
    }

    /// The token ids of a text as [`Model::embed_tokens`](crate::Model::embed_tokens) orders its vectors: special ones left out.
    #[must_use]
    pub fn content<'e>(&self, encoded: &'e Encoded) -> &'e [u32] {
        encoded
            .ids
            .get(1..encoded.ids.len().saturating_sub(1))
            .unwrap_or_default()
    }
}
