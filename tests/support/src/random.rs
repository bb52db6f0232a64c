//! Random numbers, repeatable with a seed.

use crate::clock::now;

/// xorshift64* (Vigna 2016): small, and good enough to choose inputs and the time and kind of failures. A failing test
/// prints its seed.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// An independent sequence for part `part` of a test.
    #[must_use]
    pub const fn part(&self, part: u64) -> Self {
        let mut random =
            Self::new(self.0 ^ part.wrapping_add(1).wrapping_mul(0xD6E8_FEB8_6659_FD93));
        Self::new(random.next())
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number from 0 to `bound - 1`. 0 when `bound` is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            (self.next() >> 33) as usize % bound
        }
    }

    /// True once in `n` times.
    pub const fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// True in `percent` of 100 calls.
    pub const fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A number from -1 up to 1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u32 << 23) as f32 - 1.0
    }

    /// A number with an approximately normal distribution.
    pub fn normal(&mut self) -> f32 {
        (0..4).map(|_| self.unit()).sum::<f32>() * 0.866
    }

    /// One of the values. There must be at least one.
    pub fn pick<'v, T>(&mut self, values: &'v [T]) -> &'v T {
        &values[self.below(values.len())]
    }

    /// This many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

/// The seed of a run: `CONTEXT_FAULTS_SEED`, or else the clock. It is printed, so that a failure can be repeated.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("CONTEXT_FAULTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| now().micros().cast_unsigned());
    eprintln!("CONTEXT_FAULTS_SEED={seed}");
    seed
}

/// Number of repetitions of a test: the environment variable, or a small default for every run.
///
/// # Panics
///
/// When the variable is not a number.
#[must_use]
pub fn rounds(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |rounds| {
        rounds
            .parse()
            .unwrap_or_else(|error| panic!("{variable}={rounds}: {error}"))
    })
}
