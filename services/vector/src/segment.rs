//! A segment: up to 1024 codes. A change modifies a segment in place, or a copy if a search is reading it.

use crate::allowed::Allowed;
use crate::codes::Code;
use crate::kernel::BLOCK;
use crate::levels::Correction;

/// Maximum number of codes in a segment. A change during a search copies up to this many.
pub(crate) const CAPACITY: usize = 1024;

/// A chunk of an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The chunk's number. Later chunks have greater numbers, and no number is reused.
    pub chunk: i64,
    /// The entry that the chunk belongs to.
    pub entry: i64,
    /// The code of its vector.
    pub code: Code,
}

/// Up to [`CAPACITY`] codes of one owner. The place of a code is its index in `chunks`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    /// Chunk numbers, ascending.
    pub chunks: Vec<i64>,
    /// The entry of each chunk.
    pub entries: Vec<i64>,
    /// Sign bits in blocks of 64 codes, each in the layout described in `kernel`.
    pub signs: Vec<u64>,
    /// The levels of each code, one code after the other. Empty in an index of sign bits alone.
    pub levels: Vec<u8>,
    /// The correction of each code's levels.
    pub corrections: Vec<Correction>,
    /// One word per block, with a set bit for each code that was not removed.
    pub alive: Vec<u64>,
    /// The smallest and the greatest entry of each block.
    pub spans: Vec<(i64, i64)>,
    /// Number of codes that were not removed.
    pub live: usize,
}

impl Segment {
    pub fn is_full(&self) -> bool {
        self.chunks.len() >= CAPACITY
    }

    /// The smallest chunk number, removed chunks included. `i64::MAX` for an empty segment.
    pub fn first_chunk(&self) -> i64 {
        self.chunks.first().copied().unwrap_or(i64::MAX)
    }

    /// Adds a code of `words` words of sign bits.
    pub fn push(&mut self, words: usize, item: &Item) {
        let Code { signs, levels } = &item.code;
        self.put(
            words,
            (item.chunk, item.entry),
            signs.words().iter().copied(),
        );
        if let Some(levels) = levels {
            self.levels.extend_from_slice(&levels.bytes);
            self.corrections.push(levels.correction);
        }
    }

    /// Adds the sign bits of a code. The caller adds its levels.
    fn put(&mut self, words: usize, (chunk, entry): (i64, i64), signs: impl Iterator<Item = u64>) {
        let (block, slot) = (self.chunks.len() / BLOCK, self.chunks.len() % BLOCK);
        if slot == 0 {
            self.signs.resize((block + 1) * words * BLOCK, 0);
            self.alive.push(0);
            self.spans.push((entry, entry));
        }
        for (word, value) in signs.take(words).enumerate() {
            self.signs[(block * words + word) * BLOCK + slot] = value;
        }
        self.alive[block] |= 1 << slot;
        let (least, greatest) = &mut self.spans[block];
        (*least, *greatest) = ((*least).min(entry), (*greatest).max(entry));
        self.chunks.push(chunk);
        self.entries.push(entry);
        self.live += 1;
    }

    /// The levels of the code at this place.
    #[inline]
    pub fn levels_at(&self, place: usize, level_bytes: usize) -> &[u8] {
        &self.levels[place * level_bytes..(place + 1) * level_bytes]
    }

    /// Marks a chunk as removed. Returns false when it is not in this segment or was removed already.
    pub fn remove(&mut self, chunk: i64) -> bool {
        let Ok(place) = self.chunks.binary_search(&chunk) else {
            return false;
        };
        let bit = 1 << (place % BLOCK);
        let alive = &mut self.alive[place / BLOCK];
        let was = *alive & bit != 0;
        *alive &= !bit;
        self.live -= usize::from(was);
        was
    }

    /// The codes of a block that were not removed and belong to allowed entries, as a bit mask.
    pub fn wanted(&self, block: usize, allowed: &Allowed) -> u64 {
        let (least, greatest) = self.spans[block];
        if !allowed.may_contain(least, greatest) {
            return 0;
        }
        let entries = self.entries[block * BLOCK..].iter().take(BLOCK);
        let mask = entries.enumerate().fold(0, |mask, (slot, entry)| {
            mask | u64::from(allowed.contains(*entry)) << slot
        });
        mask & self.alive[block]
    }

    /// Whether most of the codes were removed, and the segment has more than one block. The sign bits of one code take
    /// as much memory as those of a block.
    pub fn is_sparse(&self) -> bool {
        self.chunks.len() > BLOCK && self.live * 2 < self.chunks.len()
    }

    /// A copy without the removed codes.
    pub fn compacted(&self, words: usize) -> Self {
        let mut compacted = Self::default();
        let level_bytes = self.levels.len() / self.chunks.len().max(1);
        for (place, (&chunk, &entry)) in self.chunks.iter().zip(&self.entries).enumerate() {
            let (block, slot) = (place / BLOCK, place % BLOCK);
            if self.alive[block] >> slot & 1 == 1 {
                compacted.put(
                    words,
                    (chunk, entry),
                    (0..words).map(|word| self.signs[(block * words + word) * BLOCK + slot]),
                );
                if let Some(correction) = self.corrections.get(place) {
                    compacted
                        .levels
                        .extend_from_slice(self.levels_at(place, level_bytes));
                    compacted.corrections.push(*correction);
                }
            }
        }
        compacted
    }
}
