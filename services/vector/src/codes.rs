//! Codes: the compressed form of a vector, which the index holds in memory.

use crate::levels::Levels;
use crate::rotation::Rotation;

/// The sign bits of a vector, 64 per word. Bits beyond the last dimension are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signs(Box<[u64]>);

/// The sign bits of a vector: bit i is set when dimension i is greater than zero.
#[must_use]
#[inline]
pub fn signs(vector: &[f32]) -> Signs {
    let word = |part: &[f32]| {
        part.iter().enumerate().fold(0, |word, (bit, value)| {
            word | u64::from(*value > 0.0) << bit
        })
    };
    Signs(vector.chunks(64).map(word).collect())
}

impl Signs {
    /// Number of words for this many dimensions.
    #[must_use]
    pub const fn words_of(dimensions: usize) -> usize {
        dimensions.div_ceil(64)
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// The stored form: words in little-endian order.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads stored sign bits. `None` when they do not have this number of words.
    #[must_use]
    pub fn from_bytes(bytes: &[u8], words: usize) -> Option<Self> {
        if bytes.len() != words * 8 {
            return None;
        }
        let word = |b: &[u8]| {
            b.iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        Some(Self(bytes.chunks_exact(8).map(word).collect()))
    }
}

/// The compressed form of a vector in an index. [`Index::code`](crate::Index::code) creates it.
#[derive(Debug, Clone, PartialEq)]
pub struct Code {
    pub(crate) signs: Signs,
    /// `None` in an index of sign bits alone.
    pub(crate) levels: Option<Levels>,
}

/// The code of an index of sign bits alone.
impl From<Signs> for Code {
    fn from(signs: Signs) -> Self {
        Self {
            signs,
            levels: None,
        }
    }
}

/// The code of a vector in an index of four bits, which rotates vectors.
pub(crate) fn quantise(rotation: &Rotation, vector: &[f32]) -> Code {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512bw,fma")]
        fn widest(rotation: &Rotation, vector: &[f32]) -> Code {
            quantised(rotation, vector)
        }
        #[target_feature(enable = "avx2,fma")]
        fn wide(rotation: &Rotation, vector: &[f32]) -> Code {
            quantised(rotation, vector)
        }
        let has_fma = is_x86_feature_detected!("fma");
        if has_fma && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has these features.
            return unsafe { widest(rotation, vector) };
        }
        if has_fma && is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has these features.
            return unsafe { wide(rotation, vector) };
        }
    }
    quantised(rotation, vector)
}

#[inline(always)]
fn quantised(rotation: &Rotation, vector: &[f32]) -> Code {
    let rotated = rotation.of(vector);
    Code {
        signs: signs(&rotated),
        levels: Some(Levels::of(&rotated)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bit_for_each_positive_dimension_and_it_survives_storage() {
        let mut vector = vec![-1.0; 100];
        (vector[0], vector[63], vector[64], vector[99]) = (0.1, 2.0, 0.0, 1e-9);
        let signs = signs(&vector);
        assert_eq!(signs.words(), [1 | 1 << 63, 1 << 35]);
        assert_eq!(Signs::from_bytes(&signs.to_bytes(), 2), Some(signs.clone()));
        assert_eq!(Signs::from_bytes(&signs.to_bytes()[1..], 2), None);
        assert_eq!(Signs::words_of(100), 2);
    }
}
