//! Token vectors in 4 bits per dimension: the stored form, and the comparison with a query.
//!
//! Each dimension is quantised to one of 16 equidistant levels, symmetric around zero. The step between levels differs
//! from token to token and is not stored: a token's vector has length 1, so the levels are scaled to that length. 384
//! dimensions take 192 bytes per token, an eighth of the size as floats. Scores of texts deviate by about 0.004 (root
//! mean square), which changes few rankings and no recall (docs/benchmarks.md).

/// Version of the stored form, its first byte. It must change with the form, so that forms cannot be confused.
const FORM: u8 = 1;
/// The offset of the levels: code 0 is this many steps below zero, code 15 as many above.
const MIDDLE: f32 = 7.5;
/// Candidate steps, in standard deviations of a vector's values. The best one is chosen for each token. The first is
/// optimal for normally distributed values (Max, Quantizing for minimum distortion, 1960). The others are for tokens
/// with a few outliers.
const STEPS: [f32; 4] = [0.335, 0.39, 0.46, 0.56];
/// Number of independent sums in a dot product.
const LANES: usize = 64;

/// The token vectors of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenVectors {
    /// The token ids.
    pub ids: Vec<u32>,
    /// One vector of length 1 per token, concatenated.
    pub vectors: Vec<f32>,
}

/// The stored bytes are not token codes: the format is different, or the length is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stored token vectors are malformed")]
pub struct MalformedCodes;

/// The token vectors of a text in 4 bits per dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenCodes {
    /// The format byte, then the tokens. Each byte holds two dimensions that are half a vector apart, so that both
    /// halves are read sequentially.
    bytes: Vec<u8>,
    dimensions: usize,
}

impl TokenCodes {
    /// Encodes concatenated vectors of length 1 with this number of dimensions.
    #[must_use]
    pub fn encode(vectors: &[f32], dimensions: usize) -> Self {
        let dimensions = dimensions.max(1);
        let mut bytes =
            Vec::with_capacity(1 + vectors.len().div_ceil(dimensions) * bytes_of(dimensions));
        bytes.push(FORM);
        let mut levels = vec![0.0; dimensions];
        for vector in vectors.chunks_exact(dimensions) {
            let step = best_step(vector, &mut levels);
            let code = |value: f32| (value / step + MIDDLE).round().clamp(0.0, 15.0) as u8;
            let (first, second) = vector.split_at(bytes_of(dimensions));
            let second = second.iter().copied().chain(std::iter::repeat(0.0));
            bytes.extend(
                first
                    .iter()
                    .zip(second)
                    .map(|(low, high)| code(*low) | code(high) << 4),
            );
        }
        Self { bytes, dimensions }
    }

    /// Parses stored codes of vectors with this number of dimensions.
    ///
    /// # Errors
    /// [`MalformedCodes`].
    pub fn from_bytes(bytes: Vec<u8>, dimensions: usize) -> Result<Self, MalformedCodes> {
        match bytes.split_first() {
            Some((&FORM, codes)) if dimensions > 0 && codes.len() % bytes_of(dimensions) == 0 => {
                Ok(Self { bytes, dimensions })
            }
            _ => Err(MalformedCodes),
        }
    }

    /// The stored form.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Number of tokens.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.codes().len() / bytes_of(self.dimensions)
    }

    /// For each token of the query, the highest cosine with any token of the text. 0 if that is negative, or if the
    /// text has no tokens.
    #[must_use]
    pub fn best_similarities(&self, query: &TokenVectors) -> Vec<f32> {
        let mut best = vec![0.0; query.vectors.len() / self.dimensions];
        raise(self.codes(), self.dimensions, &query.vectors, &mut best);
        best
    }

    fn codes(&self) -> &[u8] {
        self.bytes.get(1..).unwrap_or_default()
    }
}

/// Size of a token's codes in bytes.
const fn bytes_of(dimensions: usize) -> usize {
    dimensions.div_ceil(2)
}

/// The step that preserves the vector's direction best. `levels` is scratch space of the same length.
fn best_step(vector: &[f32], levels: &mut [f32]) -> f32 {
    let deviation = (dot(vector, vector) / vector.len() as f32).sqrt();
    if !deviation.is_normal() {
        // The vector is zero or not finite, so it has no direction to preserve.
        return 1.0;
    }
    let mut best = (f32::NEG_INFINITY, deviation);
    for step in STEPS.map(|step| step * deviation) {
        for (level, value) in levels.iter_mut().zip(vector) {
            *level = (value / step + MIDDLE).round().clamp(0.0, 15.0) - MIDDLE;
        }
        let cosine = dot(vector, levels) / dot(levels, levels).sqrt();
        if cosine > best.0 {
            best = (cosine, step);
        }
    }
    best.1
}

/// Raises each value of `best`, one per vector of the query, to its highest cosine with any of the tokens.
fn raise(codes: &[u8], dimensions: usize, query: &[f32], best: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,fma")]
        fn widest(codes: &[u8], dimensions: usize, query: &[f32], best: &mut [f32]) {
            raise_each(codes, dimensions, query, best);
        }
        #[target_feature(enable = "avx2,fma")]
        fn wide(codes: &[u8], dimensions: usize, query: &[f32], best: &mut [f32]) {
            raise_each(codes, dimensions, query, best);
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has these features.
            return unsafe { widest(codes, dimensions, query, best) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has these features.
            return unsafe { wide(codes, dimensions, query, best) };
        }
    }
    raise_each(codes, dimensions, query, best);
}

#[inline(always)]
fn raise_each(codes: &[u8], dimensions: usize, query: &[f32], best: &mut [f32]) {
    let half = bytes_of(dimensions);
    // With an odd number of dimensions, the last code of the second half stands for no dimension.
    let mut levels = vec![0.0; 2 * half];
    for token in codes.chunks_exact(half) {
        let (first, second) = levels.split_at_mut(half);
        for at in 0..half {
            first[at] = f32::from(token[at] & 15) - MIDDLE;
            second[at] = f32::from(token[at] >> 4) - MIDDLE;
        }
        let levels = &levels[..dimensions];
        // No level is zero, so the length is not zero either.
        let scale = 1.0 / dot(levels, levels).sqrt();
        for (best, wanted) in best.iter_mut().zip(query.chunks_exact(dimensions)) {
            *best = best.max(dot(wanted, levels) * scale);
        }
    }
}

/// The loops use a counter and a constant length, for the reason given at `LANES` in `services/vector/src/exact.rs`.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (of_a, rest_of_a) = a.as_chunks::<LANES>();
    let (of_b, rest_of_b) = b.as_chunks::<LANES>();
    let mut lanes = [0.0f32; LANES];
    for block in 0..of_a.len().min(of_b.len()) {
        let (a, b) = (&of_a[block], &of_b[block]);
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let mut rest = 0.0;
    for at in 0..rest_of_a.len().min(rest_of_b.len()) {
        rest += rest_of_a[at] * rest_of_b[at];
    }
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

#[cfg(test)]
mod tests {
    use context_test_support::Random;

    use super::*;

    /// Vectors similar to a model's: normally distributed, with one outlier.
    fn directions(count: usize, dimensions: usize) -> Vec<f32> {
        let mut random = Random::new(1);
        let mut vectors: Vec<f32> = (0..count * dimensions)
            .map(|_| random.unit() + random.unit() + random.unit())
            .collect();
        for vector in vectors.chunks_exact_mut(dimensions) {
            vector[0] += 4.0;
            let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
            vector.iter_mut().for_each(|value| *value /= length);
        }
        vectors
    }

    fn query(vectors: Vec<f32>, dimensions: usize) -> TokenVectors {
        TokenVectors {
            ids: vec![0; vectors.len() / dimensions],
            vectors,
        }
    }

    #[test]
    fn every_token_keeps_its_direction() {
        for dimensions in [1, 2, 7, 48, 384, 385] {
            let vectors = directions(20, dimensions);
            let codes = TokenCodes::encode(&vectors, dimensions);
            assert_eq!(codes.tokens(), 20);
            for vector in vectors.chunks_exact(dimensions) {
                let itself = codes.best_similarities(&query(vector.to_vec(), dimensions))[0];
                assert!(
                    itself > 0.98 && itself < 1.0 + 1e-5,
                    "{dimensions} dimensions: {itself}"
                );
            }
        }
    }

    #[test]
    fn cosines_are_off_by_a_few_hundredths_at_most() {
        let (texts, wanted) = (
            directions(200, 384),
            directions(230, 384).split_off(200 * 384),
        );
        for text in texts.chunks_exact(384) {
            let found =
                TokenCodes::encode(text, 384).best_similarities(&query(wanted.clone(), 384));
            for (found, wanted) in found.iter().zip(wanted.chunks_exact(384)) {
                let exact = dot(text, wanted).max(0.0);
                assert!((found - exact).abs() < 0.06, "{found} for {exact}");
            }
        }
    }

    #[test]
    fn the_nearest_token_counts_and_a_text_without_tokens_is_like_nothing() {
        let vectors = directions(3, 64);
        let codes = TokenCodes::encode(&vectors, 64);
        let found = codes.best_similarities(&query(vectors[64..].to_vec(), 64));
        assert!(
            found.len() == 2 && found.iter().all(|found| *found > 0.99),
            "{found:?}"
        );
        let opposite = vectors[..64].iter().map(|value| -value).collect();
        let found = TokenCodes::encode(&vectors[..64], 64).best_similarities(&query(opposite, 64));
        assert_eq!(found, [0.0], "a similarity is never negative");
        assert_eq!(
            TokenCodes::encode(&[], 64).best_similarities(&query(vectors, 64)),
            [0.0; 3]
        );
    }

    #[test]
    fn codes_survive_storage_and_malformed_ones_are_an_error() {
        let codes = TokenCodes::encode(&directions(5, 48), 48);
        let bytes = codes.clone().into_bytes();
        assert_eq!(bytes.len(), 1 + 5 * 24);
        assert_eq!(TokenCodes::from_bytes(bytes.clone(), 48), Ok(codes));
        assert_eq!(
            TokenCodes::from_bytes(bytes[..bytes.len() - 1].to_vec(), 48),
            Err(MalformedCodes),
            "truncated"
        );
        assert_eq!(
            TokenCodes::from_bytes(bytes.clone(), 50),
            Err(MalformedCodes),
            "another number of dimensions"
        );
        assert_eq!(
            TokenCodes::from_bytes(bytes.clone(), 0),
            Err(MalformedCodes)
        );
        assert_eq!(
            TokenCodes::from_bytes([&[FORM + 1], &bytes[1..]].concat(), 48),
            Err(MalformedCodes),
            "another version"
        );
        assert_eq!(TokenCodes::from_bytes(Vec::new(), 48), Err(MalformedCodes));
        // Any codes form valid token codes.
        let any = TokenCodes::from_bytes(
            [&[FORM][..], &[0x0F; 24], &[0xFF; 24], &[0; 24]].concat(),
            48,
        )
        .unwrap();
        assert!(
            any.best_similarities(&query(directions(4, 48), 48))
                .iter()
                .all(|found| (0.0..1.0).contains(found))
        );
    }

    #[test]
    fn vectors_without_a_direction_do_no_harm() {
        let odd = [0.0; 8]
            .into_iter()
            .chain([f32::NAN; 8])
            .chain([f32::INFINITY; 8])
            .collect::<Vec<_>>();
        let codes = TokenCodes::encode(&odd, 8);
        assert_eq!(codes.tokens(), 3);
        assert!(
            codes
                .best_similarities(&query(directions(2, 8), 8))
                .iter()
                .all(|found| found.is_finite())
        );
    }

    #[test]
    fn every_processor_finds_the_same() {
        let (texts, wanted) = (
            TokenCodes::encode(&directions(9, 100), 100),
            directions(4, 100),
        );
        let (mut fast, mut plain) = ([0.0; 4], [0.0; 4]);
        raise(texts.codes(), 100, &wanted, &mut fast);
        raise_each(texts.codes(), 100, &wanted, &mut plain);
        assert!(
            fast.iter()
                .zip(&plain)
                .all(|(fast, plain)| (fast - plain).abs() < 1e-5),
            "{fast:?} {plain:?}"
        );
    }
}
