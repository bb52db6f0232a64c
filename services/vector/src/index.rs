//! The codes of all owners.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::allowed::Allowed;
use crate::codes::{self, Code, Signs, signs};
use crate::kernel::{self, Kernel};
use crate::levels::{self, LevelQuery};
use crate::nearest::{Best, Near};
use crate::query::{Query, SignQuery};
use crate::rotation::Rotation;
use crate::segment::{Item, Segment};

/// The form in which an index holds each vector in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// One sign bit per dimension. It finds candidates, which the caller orders by their full vectors.
    SignBits,
    /// Four bits per dimension of the rotated vector, and its sign bits. It estimates similarities, with a bound of the
    /// error.
    FourBits,
}

/// A change to the vectors by a committed transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A chunk was stored.
    Add {
        /// The owner of the entry, as a number. Each number has codes of its own.
        owner: i64,
        /// The chunk and its code.
        item: Item,
    },
    /// A chunk was deleted.
    Remove {
        /// The owner of the entry, as a number. Each number has codes of its own.
        owner: i64,
        /// The chunk's number.
        chunk: i64,
    },
}

/// The codes of all owners. Searches read one state while changes create the next.
#[derive(Debug)]
pub struct Index {
    dimensions: usize,
    /// The rotation of vectors before they are quantised. `None` in an index of sign bits alone.
    rotation: Option<Rotation>,
    kernel: Kernel,
    owners: RwLock<HashMap<i64, Arc<Codes>>>,
}

/// The codes of one owner.
#[derive(Debug, Clone, Default)]
struct Codes {
    /// Ordered by their chunk numbers.
    segments: Vec<Arc<Segment>>,
    /// Number of codes that were not removed.
    live: usize,
}

impl Index {
    /// Creates an empty index for vectors of this length.
    #[must_use]
    pub fn new(dimensions: usize, precision: Precision) -> Self {
        Self {
            dimensions,
            rotation: match precision {
                Precision::SignBits => None,
                Precision::FourBits => Some(Rotation::new(dimensions)),
            },
            kernel: kernel::fastest(),
            owners: RwLock::default(),
        }
    }

    /// The form in which the index holds each vector.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        match self.rotation {
            None => Precision::SignBits,
            Some(_) => Precision::FourBits,
        }
    }

    /// Number of words of sign bits.
    #[must_use]
    pub const fn words(&self) -> usize {
        Signs::words_of(self.dimensions)
    }

    /// The code of a vector of length 1.
    #[must_use]
    pub fn code(&self, vector: &[f32]) -> Code {
        match &self.rotation {
            None => signs(vector).into(),
            Some(rotation) => codes::quantise(rotation, vector),
        }
    }

    /// The query for a vector of length 1.
    #[must_use]
    pub fn query(&self, vector: &[f32]) -> Query {
        match &self.rotation {
            None => Query {
                signs: SignQuery::new(vector),
                levels: None,
            },
            Some(rotation) => {
                let rotated = rotation.of(vector);
                Query {
                    signs: SignQuery::new(&rotated),
                    levels: Some(LevelQuery::new(&rotated)),
                }
            }
        }
    }

    /// Whether a code has the form of this index.
    fn accepts(&self, code: &Code) -> bool {
        code.signs.words().len() == self.words()
            && match (&code.levels, &self.rotation) {
                (None, None) => true,
                (Some(levels), Some(_)) => levels.bytes.len() == levels::bytes_of(self.dimensions),
                _ => false,
            }
    }

    /// Applies the changes atomically: a search sees all of them or none. Codes of another kind of index are ignored.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        let words = self.words();
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            match change {
                Change::Add { owner, item } if self.accepts(&item.code) => {
                    Arc::make_mut(owners.entry(owner).or_default()).add(words, &item);
                }
                Change::Add { .. } => {}
                Change::Remove { owner, chunk } => {
                    if let Some(codes) = owners.get_mut(&owner) {
                        Arc::make_mut(codes).remove(words, chunk);
                    }
                }
            }
        }
    }

    /// The current codes of the owner.
    #[must_use]
    pub fn snapshot(&self, owner: i64) -> Snapshot {
        let owners = self.owners.read().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            codes: owners.get(&owner).cloned().unwrap_or_default(),
            words: self.words(),
            level_bytes: levels::bytes_of(self.dimensions),
            kernel: self.kernel,
        }
    }

    /// Number of codes of all owners.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .map(|codes| codes.live)
            .sum()
    }

    /// Whether the index is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Codes {
    fn add(&mut self, words: usize, item: &Item) {
        if self.segments.last().is_none_or(|last| last.is_full()) {
            self.segments.push(Arc::default());
        }
        if let Some(last) = self.segments.last_mut() {
            Arc::make_mut(last).push(words, item);
            self.live += 1;
        }
    }

    fn remove(&mut self, words: usize, chunk: i64) {
        let after = self
            .segments
            .partition_point(|segment| segment.first_chunk() <= chunk);
        let Some(place) = after.checked_sub(1) else {
            return;
        };
        let segment = &mut self.segments[place];
        if !Arc::make_mut(segment).remove(chunk) {
            return;
        }
        self.live -= 1;
        if segment.live == 0 {
            self.segments.remove(place);
        } else if segment.is_sparse() {
            *segment = Arc::new(segment.compacted(words));
        }
    }
}

/// One state of an owner's codes.
#[derive(Debug, Clone)]
pub struct Snapshot {
    codes: Arc<Codes>,
    words: usize,
    level_bytes: usize,
    kernel: Kernel,
}

impl Snapshot {
    /// Number of chunks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.codes.live
    }

    /// Whether there are no chunks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.codes.live == 0
    }

    /// The chunks that may be nearest to the query, in the order of their estimated similarity. Chunks of equal
    /// similarity are ordered by their numbers. With `allowed`, only chunks of those entries are returned.
    ///
    /// With [`Precision::FourBits`] they are all chunks that may belong to the `depth` nearest entries, given the
    /// errors of the estimates: usually more than `depth`. Chunks that are certainly not the nearest one of their entry
    /// are left out. With [`Precision::SignBits`] they are at most `depth` chunks.
    #[must_use]
    pub fn nearest(&self, query: &Query, depth: usize, allowed: Option<&Allowed>) -> Vec<Near> {
        let depth = depth.min(self.codes.live);
        if query.signs.words.len() != self.words || depth == 0 {
            return Vec::new();
        }
        let mut best = Best::new(query, self.kernel, self.words, self.level_bytes, depth);
        for segment in &self.codes.segments {
            best.scan(segment, allowed);
        }
        best.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{distance, normalise};

    const PRECISIONS: [Precision; 2] = [Precision::SignBits, Precision::FourBits];

    /// A vector of length 1. Some seeds have the same vector.
    fn vector(seed: i64, dimensions: usize) -> Vec<f32> {
        let mut vector: Vec<f32> = (0..dimensions as i64)
            .map(|i| ((seed * 31 + i * 17) * 7919 % 101 - 50) as f32 + 0.5)
            .collect();
        assert!(normalise(&mut vector));
        vector
    }

    /// A pseudorandom vector of length 1.
    fn direction(seed: u64, dimensions: usize) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut unit = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as f32 / (1u32 << 24) as f32 - 0.5
        };
        let mut vector: Vec<f32> = (0..dimensions)
            .map(|_| unit() + unit() + unit() + unit())
            .collect();
        assert!(normalise(&mut vector));
        vector
    }

    /// The entry of a chunk. Some chunks belong to an older entry that was updated.
    fn entry_of(chunk: i64) -> i64 {
        if chunk % 97 == 0 {
            chunk % 3
        } else {
            chunk / 2
        }
    }

    fn add(index: &Index, chunk: i64, vector: &[f32]) -> Change {
        let item = Item {
            chunk,
            entry: entry_of(chunk),
            code: index.code(vector),
        };
        Change::Add { owner: 1, item }
    }

    fn filled(dimensions: usize, precision: Precision, chunks: i64) -> Index {
        let index = Index::new(dimensions, precision);
        index.apply((1..=chunks).map(|chunk| add(&index, chunk, &vector(chunk, dimensions))));
        index
    }

    #[test]
    fn a_search_sees_its_own_state_whatever_is_committed_meanwhile() {
        for precision in PRECISIONS {
            let index = filled(64, precision, 10);
            let before = index.snapshot(1);
            index.apply([
                Change::Remove { owner: 1, chunk: 3 },
                add(&index, 12, &vector(12, 64)),
            ]);
            let query = index.query(&vector(3, 64));
            let chunks = |snapshot: &Snapshot| {
                let near = snapshot.nearest(&query, 100, None);
                let mut chunks: Vec<i64> = near.iter().map(|near| near.chunk).collect();
                chunks.sort_unstable();
                chunks
            };
            let has = |snapshot: &Snapshot, chunk| chunks(snapshot).contains(&chunk);
            assert!(has(&before, 3) && !has(&before, 12), "{precision:?}");
            let after = index.snapshot(1);
            assert!(!has(&after, 3) && has(&after, 12), "{precision:?}");
            assert!(index.snapshot(2).is_empty(), "owners do not see each other");
        }
    }

    #[test]
    fn segments_that_lose_most_of_their_codes_are_compacted() {
        for precision in PRECISIONS {
            let index = filled(64, precision, 10_000);
            // A few codes of each segment remain.
            let removed = (1i64..=10_000).filter(|chunk| chunk % 100 != 50);
            index.apply(removed.map(|chunk| Change::Remove { owner: 1, chunk }));
            let snapshot = index.snapshot(1);
            assert_eq!((snapshot.len(), index.len()), (100, 100));
            let places = snapshot
                .codes
                .segments
                .iter()
                .map(|segment| segment.chunks.len());
            assert!(places.sum::<usize>() < 2_000);
            let query = index.query(&vector(9_950, 64));
            let nearest = snapshot.nearest(&query, 1, None)[0];
            assert!(nearest.similarity > 0.75, "{precision:?}: {nearest:?}");
            let remove = || Change::Remove {
                owner: 1,
                chunk: 9_950,
            };
            index.apply([remove(), remove()]);
            assert_eq!(index.len(), 99, "removing twice counts once");
        }
    }

    #[test]
    fn a_code_of_another_kind_of_index_is_ignored() {
        let (signs, codes) = (
            Index::new(64, Precision::SignBits),
            Index::new(64, Precision::FourBits),
        );
        codes.apply([add(&signs, 1, &vector(1, 64))]);
        signs.apply([add(&codes, 1, &vector(1, 64))]);
        signs.apply([add(&Index::new(65, Precision::SignBits), 1, &vector(1, 65))]);
        assert!(signs.is_empty() && codes.is_empty());
    }

    #[test]
    fn the_nearest_of_random_directions_are_among_those_worth_a_comparison() {
        let (count, dimensions) = (6_000, 384);
        let vectors: Vec<Vec<f32>> = (0..count).map(|seed| direction(seed, dimensions)).collect();
        let index = Index::new(dimensions, Precision::FourBits);
        index.apply((0i64..).zip(&vectors).map(|(at, vector)| Change::Add {
            owner: 1,
            item: Item {
                chunk: at + 1,
                entry: at,
                code: index.code(vector),
            },
        }));
        for depth in [1, 10, 100] {
            let (mut found, mut returned) = (0, 0);
            for seed in 0..20 {
                let query = direction(1_000_000 + seed, dimensions);
                let near = index.snapshot(1).nearest(&index.query(&query), depth, None);
                let mut exact: Vec<(f32, i64)> = (0..)
                    .zip(&vectors)
                    .map(|(at, vector)| (distance(&query, vector), at))
                    .collect();
                exact.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
                exact.truncate(depth);
                found += exact
                    .iter()
                    .filter(|(_, at)| near.iter().any(|near| near.entry == *at))
                    .count();
                returned += near.len();
                for near in near {
                    let exact = f64::from(distance(&query, &vectors[near.entry as usize]));
                    assert!(
                        (near.distance() - exact).abs() < 0.04,
                        "{} for {exact}",
                        near.distance()
                    );
                }
            }
            assert!(
                found * 100 >= depth * 20 * 97,
                "{found} of the nearest {depth}"
            );
            assert!(returned < depth * 20 * 8, "{returned} chunks for {depth}");
        }
    }

    proptest! {
        #[test]
        fn sign_bits_find_the_nearest_by_an_exact_count(
            chunks in 1i64..6000, removed in 1i64..7, depth in 1usize..300, dimensions in 1usize..200,
            // A filter that allows many codes of a block, few of them, or none in most blocks.
            every in prop::option::of(prop::sample::select(vec![1i64, 3, 20, 700])),
        ) {
            let index = filled(dimensions, Precision::SignBits, chunks);
            index.apply((1..=chunks).filter(|chunk| chunk % removed == 1).map(|chunk| Change::Remove { owner: 1, chunk }));
            let query = index.query(&vector(chunks * 3 + 1, dimensions));
            let allowed: Option<Allowed> = every.map(|every| (1..=chunks).filter(|entry| entry % every == 1 % every).collect());
            // The inner product of the query's levels and a chunk's signs.
            let levels = levels::levels_of(&vector(chunks * 3 + 1, dimensions));
            let product = |chunk: i64| -> i64 {
                let signs = vector(chunk, dimensions).into_iter().map(|value| if value > 0.0 { 1 } else { -1 });
                levels.iter().zip(signs).map(|(level, sign)| (2 * i64::from(*level) - 15) * sign).sum()
            };
            let mut exact: Vec<i64> = (1..=chunks)
                .filter(|chunk| chunk % removed != 1)
                .filter(|chunk| allowed.as_ref().is_none_or(|allowed| allowed.contains(entry_of(*chunk))))
                .map(product)
                .collect();
            exact.sort_unstable_by_key(|product| std::cmp::Reverse(*product));
            exact.truncate(depth);
            let found = index.snapshot(1).nearest(&query, depth, allowed.as_ref());
            // Among the last results, chunks at equal distance may differ.
            let products: Vec<i64> = found.iter().map(|near| product(near.chunk)).collect();
            prop_assert_eq!(products, exact);
        }

        #[test]
        fn four_bits_find_every_chunk_that_the_error_bounds_allow(
            chunks in 1i64..3000, removed in 1i64..7, depth in 1usize..200, dimensions in 2usize..200,
            every in prop::option::of(prop::sample::select(vec![1i64, 3, 20, 700])),
        ) {
            let index = filled(dimensions, Precision::FourBits, chunks);
            index.apply((1..=chunks).filter(|chunk| chunk % removed == 1).map(|chunk| Change::Remove { owner: 1, chunk }));
            let query = index.query(&vector(chunks * 3 + 1, dimensions));
            let allowed: Option<Allowed> = every.map(|every| (1..=chunks).filter(|entry| entry % every == 1 % every).collect());
            let live = (1..=chunks)
                .filter(|chunk| chunk % removed != 1)
                .filter(|chunk| allowed.as_ref().is_none_or(|allowed| allowed.contains(entry_of(*chunk))));
            let found = index.snapshot(1).nearest(&query, depth, allowed.as_ref());
            // The result of a scan without sign bits: the floor is the `depth`-th best lower bound of an entry.
            let estimate = |chunk: i64| {
                let Code { signs, levels } = index.code(&vector(chunk, dimensions));
                let (levels, kernel) = (levels.unwrap(), query.levels.as_ref().unwrap());
                let words: Vec<[u64; kernel::BLOCK]> = signs.words().iter().map(|word| [*word; kernel::BLOCK]).collect();
                let count = kernel::count_one(words.as_flattened(), 0, &query.signs.words);
                (kernel.similarity(&levels.bytes, levels.correction), levels.correction.error, count)
            };
            let mut of_entries: HashMap<i64, f32> = HashMap::new();
            for chunk in live.clone() {
                let (similarity, error, _) = estimate(chunk);
                let best = of_entries.entry(entry_of(chunk)).or_insert(f32::NEG_INFINITY);
                *best = best.max(similarity - error);
            }
            let mut bounds: Vec<f32> = of_entries.values().copied().collect();
            bounds.sort_unstable_by(|a, b| b.total_cmp(a));
            let floor = if bounds.len() > depth { bounds[depth - 1] } else { f32::NEG_INFINITY };
            for chunk in live {
                let (similarity, error, count) = estimate(chunk);
                let is_best_of_entry = similarity + error >= of_entries[&entry_of(chunk)];
                let may_be_near = similarity + error >= floor && count < query.signs.count_below(floor);
                if is_best_of_entry && may_be_near {
                    prop_assert!(found.iter().any(|near| near.chunk == chunk), "{chunk} is missing");
                }
            }
            prop_assert!(found.iter().all(|near| near.greatest() >= floor));
            prop_assert!(found.is_sorted_by(|a, b| a.similarity >= b.similarity));
        }
    }
}
