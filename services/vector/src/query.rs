//! A query, prepared for the comparison with codes.

use std::f32::consts::FRAC_PI_2;

use crate::codes::Signs;
use crate::kernel::{PLANES, QueryWord};
use crate::levels::{LevelQuery, MIDDLE, levels_of};

/// Number of standard deviations by which sign bits may underestimate a similarity before a chunk is missed. 2 % of
/// random directions exactly at the floor are missed, and fewer above it. Each further 0.1 makes a search 5 % slower.
const DEVIATIONS: f32 = 1.8;
/// Variance of the estimate from sign bits, times the dimensions: π/2 - 1 for the signs, and a hundredth of π/2 for the
/// levels of the query.
const SIGN_VARIANCE: f32 = FRAC_PI_2 * 1.0115 - 1.0;

/// A query vector. [`Index::query`](crate::Index::query) creates it.
#[derive(Debug, Clone)]
pub struct Query {
    pub(crate) signs: SignQuery,
    /// `None` for an index of sign bits alone.
    pub(crate) levels: Option<LevelQuery>,
}

/// A query for the comparison with sign bits.
///
/// The query has four bits per dimension, because its sign bits alone would lose too much: for random directions they
/// carry half as much information about the similarity.
#[derive(Debug, Clone)]
pub(crate) struct SignQuery {
    /// The bits of the levels.
    pub words: Vec<QueryWord>,
    /// The count of a vector that is orthogonal to the query.
    middle: f32,
    /// Similarity per count below the middle.
    per_count: f32,
    /// The trusted maximum difference of the similarity and the estimate.
    pub error: f32,
}

impl SignQuery {
    /// The query for a vector of length 1. It must be rotated if the codes are.
    pub fn new(vector: &[f32]) -> Self {
        let dimensions = vector.len().max(1) as f32;
        let mut words = vec![[0; PLANES]; Signs::words_of(vector.len())];
        let mut product = 0.0;
        for (at, (level, value)) in levels_of(vector).into_iter().zip(vector).enumerate() {
            for (plane, word) in words[at / 64].iter_mut().enumerate() {
                *word |= u64::from(level >> plane & 1) << (at % 64);
            }
            product += (f32::from(level) - MIDDLE) * value;
        }
        // The levels times `step` are approximately the vector. The sum of the absolute values of a rotated vector of
        // length 1 is approximately √(2 · dimensions / π).
        let step = if product > 0.0 { 1.0 / product } else { 0.0 };
        let per_count = step * (FRAC_PI_2 / dimensions).sqrt();
        Self {
            words,
            middle: ((1 << PLANES) - 1) as f32 * dimensions / 2.0,
            per_count,
            error: DEVIATIONS * (SIGN_VARIANCE / dimensions).sqrt(),
        }
    }

    /// The estimated similarity with a vector whose sign bits have this count.
    pub fn similarity(&self, count: u64) -> f32 {
        (self.middle - count as f32) * self.per_count
    }

    /// The count with this estimated similarity.
    pub fn count_of(&self, similarity: f32) -> u64 {
        self.count_at(similarity).round() as u64
    }

    /// The lowest count that rules out a similarity of `floor`, even if the sign bits underestimate it by `error`.
    pub fn count_below(&self, floor: f32) -> u64 {
        self.count_at(floor - self.error).ceil() as u64
    }

    /// The count with this estimated similarity, as a float. A cast to an integer turns a negative result into 0 and
    /// infinity into the maximum.
    fn count_at(&self, similarity: f32) -> f32 {
        if self.per_count > 0.0 {
            self.middle - similarity / self.per_count
        } else {
            f32::INFINITY
        }
    }
}
