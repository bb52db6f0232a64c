//! Full vectors: their stored form and their distance.

/// Number of independent sums. They fill several registers of the widest kind, so that an addition does not wait for
/// the previous one. The loops over them use a counter and a constant length: iterator adaptors are not always inlined
/// into functions with other processor features, and then the wide registers are not used.
const LANES: usize = 64;

/// The L2 distance of two vectors of the same length: 0 for equal vectors, 2 for opposite vectors of length 1.
#[must_use]
pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,fma")]
        fn widest(a: &[f32], b: &[f32]) -> f32 {
            squares(a, b)
        }
        #[target_feature(enable = "avx2,fma")]
        fn wide(a: &[f32], b: &[f32]) -> f32 {
            squares(a, b)
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has these features.
            return unsafe { widest(a, b) }.sqrt();
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has these features.
            return unsafe { wide(a, b) }.sqrt();
        }
    }
    squares(a, b).sqrt()
}

#[inline(always)]
fn squares(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| (a - b) * (a - b))
}

/// The inner product of two vectors of the same length.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| a * b)
}

#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], of: impl Fn(f32, f32) -> f32) -> f32 {
    let (of_a, rest_of_a) = a.as_chunks::<LANES>();
    let (of_b, rest_of_b) = b.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for block in 0..of_a.len().min(of_b.len()) {
        let (a, b) = (&of_a[block], &of_b[block]);
        for lane in 0..LANES {
            lanes[lane] += of(a[lane], b[lane]);
        }
    }
    let rest: f32 = rest_of_a
        .iter()
        .zip(rest_of_b)
        .map(|(a, b)| of(*a, *b))
        .sum();
    // Added in pairs, because in sequence each addition would wait for the previous one.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0] + rest
}

/// Scales a vector to length 1. Returns false, and changes nothing, if a value is not finite or the length is
/// below 1e-12.
#[must_use]
pub fn normalise(vector: &mut [f32]) -> bool {
    let length = vector
        .iter()
        .map(|value| f64::from(*value) * f64::from(*value))
        .sum::<f64>()
        .sqrt();
    if !length.is_finite() || length < 1e-12 {
        return false;
    }
    vector
        .iter_mut()
        .for_each(|value| *value = (f64::from(*value) / length) as f32);
    true
}

/// The stored form of a vector: 32-bit floats in little-endian order.
#[must_use]
pub fn encode(vector: &[f32]) -> Vec<u8> {
    vector
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Reads a stored vector into `to`. Returns false when it has another length.
#[must_use]
pub fn decode(bytes: &[u8], to: &mut [f32]) -> bool {
    if bytes.len() != to.len() * 4 {
        return false;
    }
    for (value, bytes) in to.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_l2_at_every_length() {
        for length in [1, 3, 16, 40, 384] {
            let a: Vec<f32> = (0..length).map(|i| (i % 7) as f32).collect();
            let b: Vec<f32> = (0..length).map(|i| (i % 5) as f32).collect();
            let exact = a
                .iter()
                .zip(&b)
                .map(|(a, b)| f64::from(a - b).powi(2))
                .sum::<f64>()
                .sqrt();
            assert!(
                (f64::from(distance(&a, &b)) - exact).abs() < 1e-4 * (1.0 + exact),
                "{length}"
            );
        }
    }

    #[test]
    fn only_a_vector_with_a_direction_is_normalised() {
        let mut vector = [3.0, 4.0];
        assert!(normalise(&mut vector));
        assert_eq!(vector, [0.6, 0.8]);
        assert!(!normalise(&mut [0.0, 0.0]));
        assert!(!normalise(&mut [f32::NAN, 1.0]));
        assert!(!normalise(&mut [f32::INFINITY, 1.0]));
    }

    #[test]
    fn a_vector_survives_storage() {
        let mut back = [0.0; 3];
        assert!(decode(&encode(&[0.1, -2.0, 3e-9]), &mut back));
        assert_eq!(back, [0.1, -2.0, 3e-9]);
        assert!(!decode(&[0; 11], &mut back));
    }
}
