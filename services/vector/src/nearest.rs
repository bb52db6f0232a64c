//! The search for the nearest chunks: scans the codes of one segment after the other.

use crate::allowed::Allowed;
use crate::kernel::{BLOCK, Kernel, count_one};
use crate::query::Query;
use crate::segment::Segment;

/// A chunk that may be among the nearest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Near {
    /// The estimated inner product of the vectors.
    pub similarity: f32,
    /// The trusted maximum error of the estimate. 0 in an index of sign bits alone, where it is unknown.
    pub error: f32,
    /// The chunk's number.
    pub chunk: i64,
    /// The entry that the chunk belongs to.
    pub entry: i64,
}

impl Near {
    /// The estimated L2 distance.
    #[must_use]
    pub fn distance(&self) -> f64 {
        f64::from((2.0 - 2.0 * self.similarity).max(0.0)).sqrt()
    }

    /// The lower bound of the similarity.
    fn least(&self) -> f32 {
        self.similarity - self.error
    }

    /// The upper bound of the similarity.
    #[must_use]
    pub fn greatest(&self) -> f32 {
        self.similarity + self.error
    }
}

/// Up to this many allowed codes in a block are compared one by one, which reads less memory: one code spans as many
/// cache lines as it has words, a block eight times as many.
const MAX_COUNTED_INDIVIDUALLY: u32 = 4;

/// A search: the nearest chunks of the segments scanned so far, and the bounds that later chunks must reach.
pub(crate) struct Best<'q> {
    query: &'q Query,
    kernel: Kernel,
    words: usize,
    level_bytes: usize,
    /// Number of entries to find, or of chunks in an index of sign bits alone.
    depth: usize,
    /// Only chunks that may be at least this similar can still be among the nearest.
    floor: f32,
    /// Only sign bits with a count below this one can belong to such a chunk.
    below: u64,
    found: Vec<Near>,
    /// Position in the current segment and count of each code whose count is less than `below`.
    candidates: Vec<(usize, u64)>,
    /// Length of `found` at which [`cut`](Self::cut) drops the worst chunks.
    limit: usize,
}

impl<'q> Best<'q> {
    pub fn new(
        query: &'q Query,
        kernel: Kernel,
        words: usize,
        level_bytes: usize,
        depth: usize,
    ) -> Self {
        let limit = depth.saturating_mul(2).max(BLOCK);
        Self {
            query,
            kernel,
            words,
            level_bytes,
            depth,
            floor: f32::NEG_INFINITY,
            below: u64::MAX,
            found: Vec::with_capacity(limit.min(1 << 16)),
            candidates: Vec::new(),
            limit,
        }
    }

    /// Adds the chunks of a segment that may be among the nearest. `allowed`, if given, are the only entries to find.
    pub fn scan(&mut self, segment: &Segment, allowed: Option<&Allowed>) {
        let mut counts = [0; BLOCK];
        let block_words = self.words * BLOCK;
        for (block, &alive) in segment.alive.iter().enumerate() {
            let wanted = allowed.map_or(alive, |allowed| segment.wanted(block, allowed));
            if wanted == 0 {
                continue;
            }
            let signs = &segment.signs[block * block_words..(block + 1) * block_words];
            let query = &self.query.signs.words;
            if wanted.count_ones() <= MAX_COUNTED_INDIVIDUALLY {
                for slot in bits(wanted) {
                    let count = count_one(signs, slot, query);
                    if count < self.below {
                        self.candidates.push((block * BLOCK + slot, count));
                    }
                }
                continue;
            }
            let mask = (self.kernel)(signs, query, self.below, &mut counts) & wanted;
            for slot in bits(mask) {
                self.candidates.push((block * BLOCK + slot, counts[slot]));
            }
        }
        // This loop does nothing else, so that the processor can load the levels of several candidates at once.
        let mut candidates = std::mem::take(&mut self.candidates);
        for (place, count) in candidates.drain(..) {
            self.consider(segment, place, count);
        }
        self.candidates = candidates;
    }

    /// Estimates the similarity of a candidate, and adds it if it may be among the nearest.
    fn consider(&mut self, segment: &Segment, place: usize, count: u64) {
        let (similarity, error) = match (&self.query.levels, segment.corrections.get(place)) {
            (Some(query), Some(correction)) => {
                let levels = segment.levels_at(place, self.level_bytes);
                (query.similarity(levels, *correction), correction.error)
            }
            _ => (self.query.signs.similarity(count), 0.0),
        };
        if similarity + error >= self.floor {
            self.found.push(Near {
                similarity,
                error,
                chunk: segment.chunks[place],
                entry: segment.entries[place],
            });
            if self.found.len() >= self.limit {
                self.cut();
            }
        }
    }

    /// Drops chunks that cannot be among the nearest, and tightens the bounds for later chunks.
    fn cut(&mut self) {
        if self.query.levels.is_some() {
            self.cut_by_entries();
        } else {
            self.cut_by_chunks();
        }
        self.limit = self
            .found
            .len()
            .max(self.depth)
            .saturating_mul(2)
            .max(BLOCK);
    }

    /// Keeps the chunks that may belong to one of the nearest entries, and of each entry those that may be its nearest.
    fn cut_by_entries(&mut self) {
        self.found.sort_unstable_by(|a, b| {
            a.entry
                .cmp(&b.entry)
                .then(b.least().total_cmp(&a.least()))
                .then(a.chunk.cmp(&b.chunk))
        });
        let mut best: Option<Near> = None;
        let mut least_of_entries = Vec::with_capacity(self.found.len());
        self.found.retain(|near| match best {
            Some(best) if best.entry == near.entry => near.greatest() >= best.least(),
            _ => {
                best = Some(*near);
                least_of_entries.push(near.least());
                true
            }
        });
        if least_of_entries.len() < self.depth {
            return;
        }
        let (_, floor, _) =
            least_of_entries.select_nth_unstable_by(self.depth - 1, |a, b| b.total_cmp(a));
        self.floor = *floor;
        self.below = self.query.signs.count_below(self.floor);
        self.found.retain(|near| near.greatest() >= self.floor);
    }

    /// Keeps the `depth` nearest chunks.
    fn cut_by_chunks(&mut self) {
        if self.found.len() <= self.depth {
            return;
        }
        let (_, last, _) = self
            .found
            .select_nth_unstable_by(self.depth - 1, nearest_first);
        // A later chunk with the same count ranks lower, because its number is greater.
        self.below = self.query.signs.count_of(last.similarity);
        self.found.truncate(self.depth);
    }

    /// The chunks that may be among the nearest, in the order of their similarity.
    pub fn finish(mut self) -> Vec<Near> {
        self.cut();
        self.found.sort_unstable_by(nearest_first);
        self.found
    }
}

fn nearest_first(a: &Near, b: &Near) -> std::cmp::Ordering {
    b.similarity
        .total_cmp(&a.similarity)
        .then(a.chunk.cmp(&b.chunk))
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
