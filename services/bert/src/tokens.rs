//! Conversion of texts to tokens.

use std::path::Path;

use tokenizers::{Tokenizer, TruncationParams};

use crate::ModelError;
use crate::config::{self, Config};

/// The unknown tokens of WordPiece and Unigram vocabularies.
const UNKNOWN: [&str; 2] = ["[UNK]", "<unk>"];
/// How WordPiece marks the pieces of a word after the first.
const CONTINUATION: &str = "##";

/// How well a vocabulary suits a text. Words with digits do not count, because every vocabulary splits them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VocabularyFit {
    /// The share of the text's letters, 0 to 1, for which the vocabulary has no word or syllable: letters in an unknown
    /// token, and single letters that are pieces of a split word. In a text without letters, digits and symbols count
    /// instead, such as emoji. Punctuation that the vocabulary has never counts there, because it says nothing.
    pub unread_share: f64,
    /// Mean number of pieces of a word, at least 1. Always 1 for vocabularies that do not mark the pieces after the
    /// first of a word.
    pub pieces_per_word: f64,
}

/// The tokens of a text, special ones included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Token ids: indexes into the vocabulary.
    pub ids: Vec<u32>,
    /// 0 for the first text of a pair, 1 for the second.
    pub types: Vec<u32>,
}

/// The tokenizer of a model.
pub struct Tokens {
    /// Truncates a text to the tokens that the model reads.
    truncating: Tokenizer,
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
    /// A file is missing or malformed.
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
        // The padding and truncation settings of the file are not for our batches.
        whole.with_padding(None);
        whole.with_truncation(None).map_err(malformed)?;
        let mut truncating = whole.clone();
        truncating
            .with_truncation(Some(TruncationParams {
                max_length: max,
                ..TruncationParams::default()
            }))
            .map_err(malformed)?;
        Ok(Self {
            truncating,
            whole,
            max,
        })
    }

    /// Maximum number of tokens of a text that the model reads, special ones included.
    #[must_use]
    pub const fn max(&self) -> usize {
        self.max
    }

    /// The tokens of a text, truncated to what the model reads.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`].
    pub fn encode(&self, text: &str) -> Result<Encoded, ModelError> {
        self.encode_truncated(text)
    }

    /// The tokens of a question and a passage, for [`Model::score`](crate::Model::score). If the pair is too long, the
    /// longer text is truncated. If both are longer than half of what the model reads, both are truncated to half.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`].
    pub fn encode_pair(&self, first: &str, second: &str) -> Result<Encoded, ModelError> {
        self.encode_truncated((first, second))
    }

    fn encode_truncated<'t>(
        &self,
        input: impl Into<tokenizers::EncodeInput<'t>> + Send,
    ) -> Result<Encoded, ModelError> {
        let encoding = self
            .truncating
            .encode_fast(input, true)
            .map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        Ok(Encoded {
            ids: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
        })
    }

    /// Byte offset at which each token of the text starts, in order. Special tokens are left out.
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

    /// How well the vocabulary suits a text.
    ///
    /// # Errors
    /// [`ModelError::Tokenizer`].
    pub fn fit(&self, text: &str) -> Result<VocabularyFit, ModelError> {
        let encoding = self
            .whole
            .encode(text, false)
            .map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        let (tokens, offsets, words) = (
            encoding.get_tokens(),
            encoding.get_offsets(),
            encoding.get_word_ids(),
        );
        let (mut letters, mut unread) = (0_usize, 0_usize);
        let (mut words_read, mut pieces_read) = (0_usize, 0_usize);
        let mut start = 0;
        while start < tokens.len() {
            let same_word = |at: &usize| words[*at].is_some() && words[*at] == words[start];
            let end = (start + 1..tokens.len())
                .find(|at| !same_word(at))
                .unwrap_or(tokens.len());
            let pieces = start..end;
            start = end;
            let part = |at: usize| text.get(offsets[at].0..offsets[at].1).unwrap_or_default();
            if pieces
                .clone()
                .any(|at| part(at).contains(|c: char| c.is_numeric()))
            {
                continue;
            }
            let continued = pieces
                .clone()
                .any(|at| tokens[at].starts_with(CONTINUATION));
            for at in pieces {
                let of_piece = part(at).chars().filter(|c| c.is_alphabetic()).count();
                letters += of_piece;
                if of_piece > 0 {
                    pieces_read += 1;
                    words_read += usize::from(!tokens[at].starts_with(CONTINUATION));
                }
                if UNKNOWN.contains(&tokens[at].as_str()) || continued && of_piece <= 1 {
                    unread += of_piece;
                }
            }
        }
        if letters == 0 {
            for (token, (from, to)) in tokens.iter().zip(offsets) {
                let shown = text.get(*from..*to).unwrap_or_default();
                let is_unknown = UNKNOWN.contains(&token.as_str());
                let counts =
                    |c: &char| !c.is_whitespace() && (is_unknown || !c.is_ascii_punctuation());
                let of_token = shown.chars().filter(counts).count();
                letters += of_token;
                if is_unknown {
                    unread += of_token;
                }
            }
        }
        Ok(VocabularyFit {
            unread_share: unread as f64 / letters.max(1) as f64,
            pieces_per_word: pieces_read.max(1) as f64 / words_read.max(1) as f64,
        })
    }

    /// The token ids of a text in the order of [`Model::embed_tokens`](crate::Model::embed_tokens), without special
    /// tokens.
    #[must_use]
    pub fn content<'e>(&self, encoded: &'e Encoded) -> &'e [u32] {
        encoded
            .ids
            .get(1..encoded.ids.len().saturating_sub(1))
            .unwrap_or_default()
    }
}
