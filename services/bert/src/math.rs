//! The loops between the matrix products. Each is compiled for AVX-512, AVX2 and the baseline. The best version that
//! the processor supports is chosen at run time.

/// Number of partial sums. It fills the widest registers, and the sums are independent so that the compiler can
/// vectorise.
const LANES: usize = 16;

/// Declares a function in three versions and selects one at run time.
macro_rules! dispatched {
    ($(#[$doc:meta])* $name:ident => $body:ident($($argument:ident: $type:ty),*)) => {
        $(#[$doc])*
        pub(crate) fn $name($($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,fma")]
                fn widest($($argument: $type),*) {
                    $body($($argument),*);
                }
                #[target_feature(enable = "avx2,fma")]
                fn wide($($argument: $type),*) {
                    $body($($argument),*);
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("fma")
                {
                    // SAFETY: the processor has these features.
                    return unsafe { widest($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has these features.
                    return unsafe { wide($($argument),*) };
                }
            }
            $body($($argument),*);
        }
    };
}

dispatched! {
    /// Applies GELU, with the error function, in place.
    gelu => gelu_body(values: &mut [f32])
}

dispatched! {
    /// Replaces each row of `columns` values by its softmax, in place.
    softmax => softmax_body(values: &mut [f32], columns: usize)
}

dispatched! {
    /// Adds `residual` to `values`, then normalises, scales and shifts each row, in place. Rows are as long as `scale`.
    add_and_normalise => normalise_body(values: &mut [f32], residual: &[f32], scale: &[f32], shift: &[f32], epsilon: f32)
}

/// e^x for x from -87 to 88, where the result is a normal `f32`. Other inputs are clamped to this range. Relative error
/// below 3e-7.
#[inline(always)]
fn exp(x: f32) -> f32 {
    // Adding this constant leaves the nearest integer in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + MAGIC;
    let whole = shifted - MAGIC;
    // ln 2 is split into two parts to preserve the digits of the difference.
    let rest = x - whole * 0.693_359_4 - whole * -2.121_944_4e-4;
    let series = 1.0
        + rest
            * (1.0
                + rest
                    * (0.5
                        + rest
                            * (0.166_666_67
                                + rest
                                    * (0.041_666_65
                                        + rest * (0.008_333_452 + rest * 0.001_388_5)))));
    let power = f32::from_bits(
        shifted
            .to_bits()
            .wrapping_sub(0x4B40_0000)
            .wrapping_add(127)
            << 23,
    );
    series * power
}

/// Abramowitz and Stegun 7.1.26. The formula's error is below 1.5e-7. With the rounding of `f32` it is about 5e-7.
#[inline(always)]
fn erf(x: f32) -> f32 {
    let magnitude = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * magnitude);
    let series = t
        * (0.254_829_6
            + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    (1.0 - series * exp(-magnitude * magnitude)).copysign(x)
}

#[inline(always)]
fn gelu_body(values: &mut [f32]) {
    for value in values {
        *value = 0.5 * *value * (1.0 + erf(*value * std::f32::consts::FRAC_1_SQRT_2));
    }
}

#[inline(always)]
fn softmax_body(values: &mut [f32], columns: usize) {
    for row in values.chunks_exact_mut(columns) {
        let mut largest = [f32::NEG_INFINITY; LANES];
        let mut chunks = row.chunks_exact(LANES);
        for chunk in &mut chunks {
            for (lane, value) in largest.iter_mut().zip(chunk) {
                *lane = if *value > *lane { *value } else { *lane };
            }
        }
        let rest = chunks
            .remainder()
            .iter()
            .copied()
            .fold(f32::NEG_INFINITY, f32::max);
        let largest = largest.iter().copied().fold(rest, f32::max);
        for value in &mut *row {
            *value = exp(*value - largest);
        }
        let scale = 1.0 / sum(row, |value| value);
        for value in row {
            *value *= scale;
        }
    }
}

#[inline(always)]
fn normalise_body(
    values: &mut [f32],
    residual: &[f32],
    scale: &[f32],
    shift: &[f32],
    epsilon: f32,
) {
    let columns = scale.len();
    for (row, residual) in values
        .chunks_exact_mut(columns)
        .zip(residual.chunks_exact(columns))
    {
        for (value, residual) in row.iter_mut().zip(residual) {
            *value += residual;
        }
        let mean = sum(row, |value| value) / columns as f32;
        let variance = sum(row, |value| (value - mean) * (value - mean)) / columns as f32;
        let factor = 1.0 / (variance + epsilon).sqrt();
        for ((value, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
            *value = (*value - mean) * factor * scale + shift;
        }
    }
}

/// The sum of `f` over the values, computed in independent lanes.
#[inline(always)]
fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = values.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += f(*value);
        }
    }
    lanes.iter().sum::<f32>()
        + chunks
            .remainder()
            .iter()
            .map(|value| f(*value))
            .sum::<f32>()
}

/// Scales a vector to length 1. A vector of zeros is not changed.
pub(crate) fn to_unit_length(vector: &mut [f32]) {
    let length = sum(vector, |value| value * value).sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|value| *value /= length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_agrees_with_the_exact_one() {
        for step in -870..880 {
            let x = step as f32 / 10.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 3e-7, "{x}");
        }
        assert!(exp(-1000.0) < 1e-37 && exp(1000.0).is_finite());
    }

    #[test]
    fn gelu_has_its_known_values() {
        // scipy.stats.norm.cdf(x) * x
        let mut values = [-3.0, -1.0, 0.0, 0.5, 1.0, 3.0];
        gelu(&mut values);
        for (value, exact) in values.iter().zip([
            -0.004_049_7,
            -0.158_655_3,
            0.0,
            0.345_731_2,
            0.841_344_8,
            2.995_950_3,
        ]) {
            assert!((value - exact).abs() < 1e-6, "{value} {exact}");
        }
    }

    #[test]
    fn a_softmax_sums_to_one_and_survives_large_scores() {
        for columns in [1, 3, 16, 37] {
            let mut rows: Vec<f32> = (0..2 * columns)
                .map(|i| (i * 7 % 13) as f32 * 100.0)
                .collect();
            softmax(&mut rows, columns);
            for row in rows.chunks(columns) {
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            }
        }
    }
}
