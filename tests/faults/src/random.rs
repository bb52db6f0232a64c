//! Random numbers that a seed repeats.

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose what breaks when.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A sequence of its own for part `part` of a test.
    #[must_use]
    pub fn part(&self, part: u64) -> Self {
        let mut random = Self(self.0 ^ part.wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(random.next())
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound - 1`; 0 when `bound` is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        if bound == 0 {
            0
        } else {
            (self.next() % bound as u64) as usize
        }
    }

    /// True in `percent` of 100 cases.
    pub const fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// This many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// The seed of a run: `CONTEXT_FAULTS_SEED`, else the clock. It is printed, so that a failure can be repeated.
#[must_use]
pub fn seed() -> u64 {
    let given = std::env::var("CONTEXT_FAULTS_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    eprintln!("CONTEXT_FAULTS_SEED={seed}");
    seed
}

/// How often a test repeats its fault: the environment variable, else the small number that every run can afford.
#[must_use]
pub fn rounds(variable: &str, usual: usize) -> usize {
    std::env::var(variable)
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(usual)
}
