//! The network.

use std::path::Path;

use crate::config::{self, Config, Pooling};
use crate::layer::{Layer, Norm, Scratch};
use crate::linear::Linear;
use crate::math::to_unit_length;
use crate::tensors::Tensors;
use crate::{Encoded, ModelError};

/// Minimum number of rows for which a layer uses a second thread.
const PARALLEL_FROM_TOKENS: usize = 48;
/// Maximum number of rows that go through a layer together. Larger groups read the weights less often, but the results
/// between the products should stay in the cache.
const MAX_GROUP_ROWS: usize = 112;

/// A BERT, with the head of a cross-encoder when the file has one.
pub struct Model {
    config: Config,
    pooling: Pooling,
    words: Vec<f32>,
    positions: Vec<f32>,
    types: Vec<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    head: Option<Head>,
}

/// The vector of a text and the vectors of its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TextAndTokens {
    /// As returned by [`Model::embed`].
    pub text: Vec<f32>,
    /// As returned by [`Model::embed_tokens`].
    pub tokens: Vec<f32>,
}

/// Computes a score from the state of the first token.
struct Head {
    pooler: Linear,
    classifier: Linear,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model")
            .field("config", &self.config)
            .field("pooling", &self.pooling)
            .finish_non_exhaustive()
    }
}

impl Model {
    /// Loads the network from a directory.
    ///
    /// # Errors
    /// A file is missing or malformed, or the network is of another kind.
    pub fn load(directory: &Path) -> Result<Self, ModelError> {
        let config = Config::load(directory)?;
        let pooling = config::pooling(directory)?;
        let mut tensors = Tensors::open(&directory.join("model.safetensors"))?;
        let hidden = config.hidden_size;
        let words = tensors.take(
            "embeddings.word_embeddings.weight",
            &[config.vocab_size, hidden],
        )?;
        let positions = tensors.take(
            "embeddings.position_embeddings.weight",
            &[config.max_position_embeddings, hidden],
        )?;
        let types = tensors.take(
            "embeddings.token_type_embeddings.weight",
            &[config.type_vocab_size, hidden],
        )?;
        let norm = Norm::load(&mut tensors, "embeddings.LayerNorm", &config)?;
        let layers = (0..config.num_hidden_layers)
            .map(|n| Layer::load(&mut tensors, n, &config))
            .collect::<Result<_, _>>()?;
        let head = if tensors.has("classifier.weight") {
            Some(Head {
                pooler: Linear::load(&mut tensors, "pooler.dense", hidden, hidden)?,
                classifier: Linear::load(&mut tensors, "classifier", hidden, 1)?,
            })
        } else {
            config::check_modules(directory)?;
            None
        };
        Ok(Self {
            config,
            pooling,
            words,
            positions,
            types,
            norm,
            layers,
            head,
        })
    }

    /// Length of the vectors.
    #[must_use]
    pub const fn dimensions(&self) -> usize {
        self.config.hidden_size
    }

    /// Whether the model can score pairs of texts.
    #[must_use]
    pub const fn is_cross_encoder(&self) -> bool {
        self.head.is_some()
    }

    /// One vector of length 1 for each text.
    ///
    /// # Errors
    /// [`ModelError::Tokens`].
    pub fn embed(&self, texts: &[Encoded]) -> Result<Vec<Vec<f32>>, ModelError> {
        self.embed_between(texts, &|| ())
    }

    /// As [`embed`](Self::embed), but calls `between_layers` before each layer, so that the caller can compute
    /// something more urgent on this thread without waiting for the whole batch.
    ///
    /// # Errors
    /// [`ModelError::Tokens`].
    pub fn embed_between(
        &self,
        texts: &[Encoded],
        between_layers: &dyn Fn(),
    ) -> Result<Vec<Vec<f32>>, ModelError> {
        let states = self.states(texts, between_layers)?;
        Ok(self
            .sequences(&states, texts)
            .map(|rows| self.pooled(rows))
            .collect())
    }

    /// The token vectors of each text: vectors of length 1, concatenated. The first and the last token, which are
    /// special, are left out.
    ///
    /// # Errors
    /// [`ModelError::Tokens`].
    pub fn embed_tokens(&self, texts: &[Encoded]) -> Result<Vec<Vec<f32>>, ModelError> {
        let states = self.states(texts, &|| ())?;
        Ok(self
            .sequences(&states, texts)
            .map(|rows| self.tokens(rows))
            .collect())
    }

    /// The results of [`embed`](Self::embed) and [`embed_tokens`](Self::embed_tokens) for each text, from one pass.
    ///
    /// # Errors
    /// [`ModelError::Tokens`].
    pub fn embed_with_tokens(&self, texts: &[Encoded]) -> Result<Vec<TextAndTokens>, ModelError> {
        self.embed_with_tokens_between(texts, &|| ())
    }

    /// As [`embed_with_tokens`](Self::embed_with_tokens). Calls `between_layers` as
    /// [`embed_between`](Self::embed_between) does.
    ///
    /// # Errors
    /// [`ModelError::Tokens`].
    pub fn embed_with_tokens_between(
        &self,
        texts: &[Encoded],
        between_layers: &dyn Fn(),
    ) -> Result<Vec<TextAndTokens>, ModelError> {
        let states = self.states(texts, between_layers)?;
        let both = |rows| TextAndTokens {
            text: self.pooled(rows),
            tokens: self.tokens(rows),
        };
        Ok(self.sequences(&states, texts).map(both).collect())
    }

    /// The score (logit) of each pair. Requires a cross-encoder.
    ///
    /// # Errors
    /// [`ModelError::Tokens`], or [`ModelError::Unsupported`] without the head.
    pub fn score(&self, pairs: &[Encoded]) -> Result<Vec<f32>, ModelError> {
        let Some(head) = &self.head else {
            return Err(ModelError::Unsupported(
                "it has no classifier, so it cannot score pairs".to_owned(),
            ));
        };
        let hidden = self.config.hidden_size;
        let states = self.states(pairs, &|| ())?;
        let first: Vec<f32> = self
            .sequences(&states, pairs)
            .flat_map(|rows| rows[..hidden].to_vec())
            .collect();
        let mut pooled = vec![0.0; first.len()];
        head.pooler.apply(&first, &mut pooled);
        pooled.iter_mut().for_each(|value| *value = value.tanh());
        let mut scores = vec![0.0; pairs.len()];
        head.classifier.apply(&pooled, &mut scores);
        Ok(scores)
    }

    /// The token vectors of a text, from the last layer's state of its tokens.
    fn tokens(&self, rows: &[f32]) -> Vec<f32> {
        let hidden = self.config.hidden_size;
        let mut tokens = rows
            .get(hidden..rows.len().saturating_sub(hidden))
            .unwrap_or_default()
            .to_vec();
        tokens.chunks_exact_mut(hidden).for_each(to_unit_length);
        tokens
    }

    /// The vector of a text, from the last layer's state of its tokens.
    fn pooled(&self, rows: &[f32]) -> Vec<f32> {
        let hidden = self.config.hidden_size;
        let mut vector = match self.pooling {
            Pooling::First => rows[..hidden].to_vec(),
            Pooling::Mean => {
                let mut sum = vec![0.0; hidden];
                for row in rows.chunks_exact(hidden) {
                    sum.iter_mut()
                        .zip(row)
                        .for_each(|(sum, value)| *sum += value);
                }
                sum
            }
        };
        to_unit_length(&mut vector);
        vector
    }

    /// The rows of each sequence, in order.
    fn sequences<'s>(
        &self,
        states: &'s [f32],
        texts: &'s [Encoded],
    ) -> impl Iterator<Item = &'s [f32]> {
        let hidden = self.config.hidden_size;
        let mut rest = states;
        texts.iter().map(move |text| {
            let (own, later) = rest.split_at(text.ids.len() * hidden);
            rest = later;
            own
        })
    }

    /// The last layer's state of every token: one row per token, text by text.
    fn states(&self, texts: &[Encoded], between_layers: &dyn Fn()) -> Result<Vec<f32>, ModelError> {
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
        let tokens: usize = lengths.iter().sum();
        let hidden = self.config.hidden_size;
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let (mut x, mut rest) = (vec![0.0; tokens * hidden], vec![0.0; tokens * hidden]);
        let mut rows = x
            .chunks_exact_mut(hidden)
            .zip(rest.chunks_exact_mut(hidden));
        for text in texts {
            if text.ids.is_empty()
                || text.ids.len() > self.config.max_position_embeddings
                || text.ids.len() != text.types.len()
            {
                return Err(ModelError::Tokens);
            }
            for (position, (id, kind)) in text.ids.iter().zip(&text.types).enumerate() {
                let Some((word_row, rest_row)) = rows.next() else {
                    return Err(ModelError::Tokens);
                };
                let word = self.row(&self.words, *id as usize)?;
                let kind = self.row(&self.types, *kind as usize)?;
                let position = self.row(&self.positions, position)?;
                word_row.copy_from_slice(word);
                for ((to, kind), position) in rest_row.iter_mut().zip(kind).zip(position) {
                    *to = kind + position;
                }
            }
        }
        self.norm.apply(&mut x, &rest);
        drop(rest);
        let group_rows = group_rows(tokens, rayon::current_num_threads());
        let mut scratch = Scratch::new(tokens, &self.config);
        for layer in &self.layers {
            between_layers();
            layer.apply(&mut x, &lengths, &mut scratch, group_rows);
        }
        Ok(x)
    }

    fn row<'t>(&self, table: &'t [f32], number: usize) -> Result<&'t [f32], ModelError> {
        table
            .chunks_exact(self.config.hidden_size)
            .nth(number)
            .ok_or(ModelError::Tokens)
    }
}

/// Number of rows that go through a layer together, such that every thread gets the same number of groups or one fewer.
fn group_rows(tokens: usize, threads: usize) -> usize {
    let threads = if tokens < PARALLEL_FROM_TOKENS {
        1
    } else {
        threads
    };
    tokens
        .div_ceil(
            tokens
                .div_ceil(MAX_GROUP_ROWS)
                .next_multiple_of(threads)
                .max(1),
        )
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_stays_on_one_thread_and_a_batch_occupies_each_alike() {
        assert_eq!(
            (group_rows(1, 8), group_rows(13, 8), group_rows(47, 2)),
            (1, 13, 47)
        );
        assert_eq!(
            (
                group_rows(48, 2),
                group_rows(512, 1),
                group_rows(512, 2),
                group_rows(512, 4)
            ),
            (24, 103, 86, 64)
        );
        for tokens in 1..2_000 {
            for threads in 1..8 {
                assert!(
                    (1..=MAX_GROUP_ROWS).contains(&group_rows(tokens, threads)),
                    "{tokens} {threads}"
                );
            }
        }
    }
}
