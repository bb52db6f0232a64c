//! Codes: the sign bits of vectors.

/// The sign bits of a vector, 64 per word. Bits beyond the last dimension are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code(Box<[u64]>);

/// The code of a vector: bit i is set when dimension i is greater than zero.
#[must_use]
pub fn code(vector: &[f32]) -> Code {
    let word = |part: &[f32]| {
        part.iter().enumerate().fold(0, |word, (bit, value)| {
            word | u64::from(*value > 0.0) << bit
        })
    };
    Code(vector.chunks(64).map(word).collect())
}

impl Code {
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

    /// The stored form of the code: words in little-endian order.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Reads a stored code. `None` when it does not have this number of words.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_a_bit_for_each_positive_dimension_and_survives_storage() {
        let mut vector = vec![-1.0; 100];
        (vector[0], vector[63], vector[64], vector[99]) = (0.1, 2.0, 0.0, 1e-9);
        let signs = code(&vector);
        assert_eq!(signs.words(), [1 | 1 << 63, 1 << 35]);
        assert_eq!(Code::from_bytes(&signs.to_bytes(), 2), Some(signs.clone()));
        assert_eq!(Code::from_bytes(&signs.to_bytes()[1..], 2), None);
        assert_eq!(Code::words_of(100), 2);
    }
}
