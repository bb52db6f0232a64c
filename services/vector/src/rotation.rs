//! A random rotation.
//!
//! The values of a rotated vector are about normally distributed, whatever the model. The codes assume this
//! distribution. A rotation does not change inner products.

use std::f32::consts::FRAC_1_SQRT_2;

/// Number of rounds, each with random signs of its own. The first round spreads the value of a single dimension over
/// all dimensions. The second also spreads the few vectors that the first one concentrates.
const ROUNDS: usize = 2;
/// The seed of the signs. Codes of rotated vectors are never stored, so it may change.
const SEED: u64 = 0x5EED_0F51_6E73_0001;

/// A rotation of vectors of one length.
///
/// Each round multiplies the values by random signs. Then, in several steps, it replaces pairs of values `a`, `b` by
/// `(a + b) / √2` and `(a - b) / √2`, until each value depends on all others. `a` is from the first half of the vector,
/// `b` from the second, and the two results become adjacent. For a power of two this is the Hadamard transform, in
/// another order.
#[derive(Debug, Clone)]
pub(crate) struct Rotation {
    /// Factors 1 and -1, for each round and dimension.
    signs: Vec<f32>,
    dimensions: usize,
}

impl Rotation {
    /// The rotation of vectors of this length. The seed is fixed, so every call returns the same rotation.
    pub fn new(dimensions: usize) -> Self {
        let mut state = SEED;
        let mut sign = || {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            if (z ^ (z >> 31)) & 1 == 0 { 1.0 } else { -1.0 }
        };
        Self {
            signs: (0..ROUNDS * dimensions).map(|_| sign()).collect(),
            dimensions,
        }
    }

    /// The rotated vector. A vector of another length is returned unchanged.
    #[inline(always)]
    pub fn of(&self, vector: &[f32]) -> Vec<f32> {
        let mut values = vector.to_vec();
        let dimensions = self.dimensions;
        if values.len() != dimensions || dimensions < 2 {
            return values;
        }
        let mut next = vec![0.0; dimensions];
        for signs in self.signs.chunks_exact(dimensions) {
            for at in 0..dimensions {
                values[at] *= signs[at];
            }
            for _ in 0..(dimensions - 1).ilog2() + 1 {
                mix(&values, &mut next);
                std::mem::swap(&mut values, &mut next);
            }
        }
        values
    }
}

/// One step of a round, from one buffer to the other. The loop uses a counter, for the reason given at `exact::LANES`.
#[inline(always)]
fn mix(from: &[f32], to: &mut [f32]) {
    let half = from.len() / 2;
    let (first, rest) = from.split_at(half);
    let (second, unpaired) = rest.split_at(half);
    // A value without a partner goes to the front, so that it has one in the next step.
    let (front, pairs) = to.split_at_mut(unpaired.len());
    front.copy_from_slice(unpaired);
    let (pairs, _) = pairs.as_chunks_mut::<2>();
    for at in 0..half.min(pairs.len()) {
        let (a, b) = (first[at] * FRAC_1_SQRT_2, second[at] * FRAC_1_SQRT_2);
        pairs[at] = [a + b, a - b];
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    proptest! {
        #[test]
        fn a_rotation_changes_no_inner_product(pairs in prop::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..600)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let rotation = Rotation::new(a.len());
            let (rotated_a, rotated_b) = (rotation.of(&a), rotation.of(&b));
            prop_assert!((dot(&rotated_a, &rotated_b) - dot(&a, &b)).abs() < 1e-3);
            prop_assert!((dot(&rotated_a, &rotated_a) - dot(&a, &a)).abs() < 1e-3);
        }
    }

    #[test]
    fn it_spreads_a_vector_over_all_dimensions() {
        for dimensions in [64, 100, 384, 511, 768, 1024, 4096] {
            let ramp: Vec<f32> = (0..dimensions).map(|at| at as f32 + 1.0).collect();
            let axis = |at: usize| {
                (0..dimensions)
                    .map(|i| if i == at { 1.0 } else { 0.0 })
                    .collect()
            };
            for vector in [
                axis(0),
                axis(dimensions / 2),
                axis(dimensions - 1),
                vec![1.0; dimensions],
                ramp,
            ] {
                let rotated = Rotation::new(dimensions).of(&vector);
                let greatest = rotated
                    .iter()
                    .fold(0.0f32, |greatest, value| greatest.max(value.abs()));
                let average = (dot(&vector, &vector) / dimensions as f32).sqrt();
                assert!(
                    greatest < 5.0 * average,
                    "{dimensions}: {greatest} of {average}"
                );
            }
        }
    }
}
