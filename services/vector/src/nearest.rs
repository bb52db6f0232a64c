//! The scan.

use crate::allowed::Allowed;
use crate::kernel::{BLOCK, Kernel, count_one};
use crate::segment::Segment;

/// A chunk whose code is near the query's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near {
    /// Bits that differ.
    pub bits: u32,
    /// The chunk.
    pub chunk: i64,
    /// The entry it is of.
    pub entry: i64,
}

/// Codes wanted of a block up to which they are counted one by one. That reads less: one code lies in as many cache lines as
/// it has words, a block in eight times as many.
const ALONE: u32 = 4;

/// The nearest so far, at most `depth` of them once it is finished.
pub(crate) struct Best {
    depth: usize,
    /// Only what differs in fewer bits can still be among the nearest.
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
            if wanted.count_ones() <= ALONE {
                for slot in bits(wanted) {
                    self.look_at(segment, block * BLOCK + slot, count_one(codes, slot, query));
                }
                continue;
            }
            kernel(codes, query, &mut counts);
            // Most blocks hold nothing near, which this finds out without a branch for each code.
            if counts
                .iter()
                .fold(u64::MAX, |least, count| least.min(*count))
                >= self.below
            {
                continue;
            }
            for slot in bits(wanted) {
                self.look_at(segment, block * BLOCK + slot, counts[slot]);
            }
        }
    }

    fn look_at(&mut self, segment: &Segment, place: usize, count: u64) {
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

/// The places of the set bits.
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
