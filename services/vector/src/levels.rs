//! Vectors in four bits per dimension, with a factor that corrects the estimated similarity and a bound of its error.
//!
//! The similarity of two vectors of length 1 is their inner product. Each dimension of a rotated vector is rounded to
//! one of 16 equidistant levels. The levels point in a slightly different direction than the vector. Dividing by their
//! inner product with the vector makes the estimate unbiased, and its error has a known deviation (Gao and Long,
//! RaBitQ, SIGMOD 2024, whose estimator holds for any code of a randomly rotated vector).

use crate::exact;

/// The middle of the 16 levels, which stands for zero.
pub(crate) const MIDDLE: f32 = 7.5;
/// Distance of two adjacent levels in standard deviations. It is optimal for normally distributed values (Max,
/// Quantizing for minimum distortion, 1960), and the values of a rotated vector are about normally distributed.
const STEP: f32 = 0.335;
/// Assumed maximum error of an estimate, in standard deviations. Of normally distributed errors, 1.6 % exceed it in
/// each direction.
const TRUSTED_DEVIATIONS: f32 = 2.15;
/// The largest value of a query's dimension as an integer.
const QUERY_RANGE: f32 = 127.0;
/// Number of bytes of a code that are compared at once.
const LANES: usize = 32;
/// Number of blocks of [`LANES`] bytes whose products can be added in 16 bits: each block adds two products of at most
/// 15 times 127 to a lane.
const BLOCKS: usize = 8;

/// The levels of a vector.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Levels {
    /// Two dimensions per byte, half a vector apart, so that both halves are read in order.
    pub bytes: Box<[u8]>,
    pub correction: Correction,
}

/// Turns the inner product with levels into an estimate of the similarity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Correction {
    /// The factor by which the product is multiplied.
    pub scale: f32,
    /// The trusted maximum difference of the similarity and the estimate.
    pub error: f32,
}

/// Number of bytes of the levels of a vector.
pub(crate) const fn bytes_of(dimensions: usize) -> usize {
    dimensions.div_ceil(2)
}

/// The level of each dimension, 0 to 15.
#[inline(always)]
pub(crate) fn levels_of(vector: &[f32]) -> Vec<u8> {
    let squares = exact::dot(vector, vector);
    let step = STEP * (squares / vector.len().max(1) as f32).sqrt();
    // Each value of a vector of zeros gets level 8.
    let per_step = if step.is_normal() { 1.0 / step } else { 0.0 };
    let mut levels = vec![0; vector.len()];
    for at in 0..vector.len() {
        levels[at] = (vector[at] * per_step + (MIDDLE + 0.5)).clamp(0.0, 15.0) as i32 as u8;
    }
    levels
}

impl Levels {
    /// The levels of a rotated vector of length 1.
    #[inline(always)]
    pub fn of(rotated: &[f32]) -> Self {
        let dimensions = rotated.len();
        let mut levels = levels_of(rotated);
        let mut centred = vec![0.0; dimensions];
        for at in 0..dimensions {
            centred[at] = f32::from(levels[at]) - MIDDLE;
        }
        let (product, squares) = (
            exact::dot(&centred, rotated),
            exact::dot(&centred, &centred),
        );
        let scale = if product > 0.0 { 1.0 / product } else { 0.0 };
        // The squared length of the scaled levels' component that is orthogonal to the vector. Relative to it, the
        // query may have any direction.
        let orthogonal = (squares * scale * scale - 1.0).max(0.0);
        let error =
            TRUSTED_DEVIATIONS * (orthogonal / dimensions.saturating_sub(1).max(1) as f32).sqrt();
        let half = bytes_of(dimensions);
        levels.resize(2 * half, 0);
        let (low, high) = levels.split_at_mut(half);
        for at in 0..half {
            low[at] |= high[at] << 4;
        }
        Self {
            bytes: low.into(),
            correction: Correction { scale, error },
        }
    }
}

/// A rotated query, for comparison with levels.
#[derive(Debug, Clone)]
pub(crate) struct LevelQuery {
    /// The first half of the dimensions, as integers.
    low: Vec<i16>,
    /// The second half, with a 0 at the end when the number of dimensions is odd.
    high: Vec<i16>,
    /// The value of 1 in these integers.
    unit: f32,
    /// The query's product with [`MIDDLE`] in each dimension.
    middle: f32,
    kernel: DotKernel,
}

impl LevelQuery {
    /// The query for a rotated vector.
    pub fn new(rotated: &[f32]) -> Self {
        let greatest = rotated
            .iter()
            .fold(0.0f32, |greatest, value| greatest.max(value.abs()));
        let per_unit = if greatest.is_normal() {
            QUERY_RANGE / greatest
        } else {
            0.0
        };
        let integers: Vec<i16> = rotated
            .iter()
            .map(|value| (value * per_unit).round() as i16)
            .collect();
        let (low, high) = integers.split_at(bytes_of(integers.len()));
        let mut high = high.to_vec();
        high.resize(low.len(), 0);
        let sum: i32 = integers.iter().map(|value| i32::from(*value)).sum();
        Self {
            low: low.to_vec(),
            high,
            unit: if per_unit > 0.0 { 1.0 / per_unit } else { 0.0 },
            middle: MIDDLE * sum as f32,
            kernel: fastest(),
        }
    }

    /// The estimated similarity with a vector.
    pub fn similarity(&self, bytes: &[u8], correction: Correction) -> f32 {
        let product = (self.kernel)(bytes, &self.low, &self.high);
        (product as f32 - self.middle) * self.unit * correction.scale
    }
}

/// Computes the inner product of a code's levels and a query's integers.
type DotKernel = fn(bytes: &[u8], low: &[i16], high: &[i16]) -> i32;

/// The fastest kernel that this processor supports.
fn fastest() -> DotKernel {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            return |bytes, low, high| {
                // SAFETY: the processor has these features.
                unsafe { widest(bytes, low, high) }
            };
        }
        if is_x86_feature_detected!("avx2") {
            return |bytes, low, high| {
                // SAFETY: the processor has this feature.
                unsafe { wide(bytes, low, high) }
            };
        }
    }
    portable
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn widest(bytes: &[u8], low: &[i16], high: &[i16]) -> i32 {
    dot(bytes, low, high)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn wide(bytes: &[u8], low: &[i16], high: &[i16]) -> i32 {
    dot(bytes, low, high)
}

fn portable(bytes: &[u8], low: &[i16], high: &[i16]) -> i32 {
    dot(bytes, low, high)
}

/// The loops use a counter and a constant length, for the reason given at `exact::LANES`. The additions cannot
/// overflow: see [`BLOCKS`]. Checks would prevent the compiler from using wide registers.
#[expect(
    clippy::needless_range_loop,
    reason = "iterators are not always inlined here: see `exact::LANES`"
)]
#[inline(always)]
fn dot(bytes: &[u8], low: &[i16], high: &[i16]) -> i32 {
    let (bytes, rest) = bytes.as_chunks::<LANES>();
    let (of_low, rest_of_low) = low.as_chunks::<LANES>();
    let (of_high, rest_of_high) = high.as_chunks::<LANES>();
    let blocks = bytes.len().min(of_low.len()).min(of_high.len());
    let mut total = 0i32;
    let mut first = 0;
    while first < blocks {
        let mut lanes = [0i16; LANES];
        let end = blocks.min(first + BLOCKS);
        for block in first..end {
            let (bytes, low, high) = (&bytes[block], &of_low[block], &of_high[block]);
            for lane in 0..LANES {
                let of_low = i16::wrapping_mul((bytes[lane] & 15) as i16, low[lane]);
                let of_high = i16::wrapping_mul((bytes[lane] >> 4) as i16, high[lane]);
                lanes[lane] = i16::wrapping_add(lanes[lane], i16::wrapping_add(of_low, of_high));
            }
        }
        let mut sum = 0i32;
        for lane in 0..LANES {
            sum = sum.wrapping_add(lanes[lane] as i32);
        }
        total = total.wrapping_add(sum);
        first = end;
    }
    for at in 0..rest.len().min(rest_of_low.len()).min(rest_of_high.len()) {
        total += i32::from(rest[at] & 15) * i32::from(rest_of_low[at])
            + i32::from(rest[at] >> 4) * i32::from(rest_of_high[at]);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_computes_the_same() {
        for half in [1, 31, 32, 192, 193, 1536, 2048] {
            let bytes: Vec<u8> = (0..half)
                .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
                .collect();
            // The extremes too: every product as large as it can be.
            for query in [
                (0..half)
                    .map(|at| (at.wrapping_mul(40_503) % 255) as i16 - 127)
                    .collect::<Vec<_>>(),
                vec![127; half as usize],
                vec![-127; half as usize],
            ] {
                for bytes in [bytes.clone(), vec![0xFF; half as usize]] {
                    let by_hand: i32 = bytes
                        .iter()
                        .zip(&query)
                        .map(|(byte, value)| {
                            (i32::from(byte & 15) + i32::from(byte >> 4)) * i32::from(*value)
                        })
                        .sum();
                    assert_eq!(fastest()(&bytes, &query, &query), by_hand, "{half}");
                    assert_eq!(portable(&bytes, &query, &query), by_hand, "{half}");
                }
            }
        }
    }

    #[test]
    fn a_vector_without_a_direction_is_similar_to_nothing() {
        for vector in [vec![0.0; 9], vec![f32::NAN; 9]] {
            let levels = Levels::of(&vector);
            let query = LevelQuery::new(&[1.0 / 3.0; 9]);
            assert_eq!(query.similarity(&levels.bytes, levels.correction), 0.0);
            let query = LevelQuery::new(&vector);
            let levels = Levels::of(&[1.0 / 3.0; 9]);
            assert_eq!(query.similarity(&levels.bytes, levels.correction), 0.0);
        }
    }
}
