//! The scan over the codes of a segment.

use crate::allowed::Allowed;
use crate::kernel::{BLOCK, Kernel, count_one};
use crate::segment::Segment;

/// A chunk whose code is near the query's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near {
    /// Number of differing bits.
    pub bits: u32,
    /// The chunk's number.
    pub chunk: i64,
    /// The entry that the chunk belongs to.
    pub entry: i64,
}

/// Up to this many candidates in a block are counted individually. That reads less memory: one code spans as many cache
/// lines as it has words, a block eight times as many.
const MAX_COUNTED_INDIVIDUALLY: u32 = 4;

/// The nearest chunks so far. [`finish`](Self::finish) reduces them to at most `depth`.
pub(crate) struct Best {
    depth: usize,
    /// Only chunks that differ in fewer bits than this can still be among the nearest.
    below: u64,
    found: Vec<Near>,
}

impl Best {
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            below: u64::MAX,
            found: Vec::with_capacity(depth.min(1 << 16) * 2),
        }
    }

    pub fn scan(
        &mut self,
        segment: &Segment,
        words: usize,
        query: &[u64],
        kernel: Kernel,
        allowed: Option<&Allowed>,
    ) {
        let mut counts = [0; BLOCK];
        for (block, &alive) in segment.alive.iter().enumerate() {
            let wanted = allowed.map_or(alive, |allowed| segment.wanted(block, allowed));
            if wanted == 0 {
                continue;
            }
            let codes = &segment.codes[block * words * BLOCK..(block + 1) * words * BLOCK];
            if wanted.count_ones() <= MAX_COUNTED_INDIVIDUALLY {
                for slot in bits(wanted) {
                    self.consider(segment, block * BLOCK + slot, count_one(codes, slot, query));
                }
                continue;
            }
            kernel(codes, query, &mut counts);
            // Most blocks hold no near code. This check detects that without a branch for each code.
            if counts
                .iter()
                .fold(u64::MAX, |least, count| least.min(*count))
                >= self.below
            {
                continue;
            }
            for slot in bits(wanted) {
                self.consider(segment, block * BLOCK + slot, counts[slot]);
            }
        }
    }

    fn consider(&mut self, segment: &Segment, place: usize, count: u64) {
        if count < self.below {
            self.push(Near {
                bits: count as u32,
                chunk: segment.chunks[place],
                entry: segment.entries[place],
            });
        }
    }

    fn push(&mut self, near: Near) {
        self.found.push(near);
        if self.found.len() >= self.depth.saturating_mul(2).max(BLOCK) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        if self.depth == 0 {
            self.found.clear();
            self.below = 0;
        } else if self.found.len() > self.depth {
            let (_, last, _) = self.found.select_nth_unstable(self.depth - 1);
            self.below = u64::from(last.bits);
            self.found.truncate(self.depth);
        }
    }

    pub fn finish(mut self) -> Vec<Near> {
        self.cut();
        self.found.sort_unstable();
        self.found
    }
}

/// The positions of the set bits.
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        if mask == 0 {
            return None;
        }
        let place = mask.trailing_zeros() as usize;
        mask &= mask - 1;
        Some(place)
    })
}
