//! The codes of all owners.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::allowed::Allowed;
use crate::codes::Code;
use crate::kernel::{self, Kernel};
use crate::nearest::{Best, Near};
use crate::segment::{Item, Segment};

/// A change to the vectors by a committed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A chunk was stored.
    Add {
        /// The owner of the entry.
        owner: i64,
        /// The chunk and its code.
        item: Item,
    },
    /// A chunk was deleted.
    Remove {
        /// The owner of the entry.
        owner: i64,
        /// The chunk's number.
        chunk: i64,
    },
}

/// The codes of all owners. Searches read one state while changes create the next.
#[derive(Debug)]
pub struct Index {
    words: usize,
    kernel: Kernel,
    owners: RwLock<HashMap<i64, Arc<Codes>>>,
}

#[derive(Debug, Clone, Default)]
struct Codes {
    segments: Vec<Arc<Segment>>,
    live: usize,
}

impl Index {
    /// Creates an empty index for vectors of this length.
    #[must_use]
    pub fn new(dimensions: usize) -> Self {
        Self {
            words: Code::words_of(dimensions),
            kernel: kernel::fastest(),
            owners: RwLock::default(),
        }
    }

    /// Number of words of a code.
    #[must_use]
    pub const fn words(&self) -> usize {
        self.words
    }

    /// Applies the changes atomically: a search sees all of them or none. A code of another length is ignored.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) {
        let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            match change {
                Change::Add { owner, item } if item.code.words().len() == self.words => {
                    Arc::make_mut(owners.entry(owner).or_default()).add(self.words, &item);
                }
                Change::Add { .. } => {}
                Change::Remove { owner, chunk } => {
                    if let Some(codes) = owners.get_mut(&owner) {
                        Arc::make_mut(codes).remove(self.words, chunk);
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
            words: self.words,
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

    /// The chunks whose codes differ from the query's in the fewest bits, at most `depth`, nearest first. Chunks at
    /// equal distance are ordered by their numbers. With `allowed`, only chunks of those entries are returned.
    #[must_use]
    pub fn nearest(&self, query: &Code, depth: usize, allowed: Option<&Allowed>) -> Vec<Near> {
        let mut best = Best::new(depth.min(self.codes.live));
        if query.words().len() == self.words && depth > 0 {
            for segment in &self.codes.segments {
                best.scan(segment, self.words, query.words(), self.kernel, allowed);
            }
        }
        best.finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::code;

    fn item(chunk: i64, dimensions: usize) -> Item {
        let vector: Vec<f32> = (0..dimensions as i64)
            .map(|i| ((chunk * 31 + i * 17) * 7919 % 101 - 50) as f32 + 0.5)
            .collect();
        // Some chunks belong to an older entry that was updated.
        let entry = if chunk % 97 == 0 {
            chunk % 3
        } else {
            chunk / 2
        };
        Item {
            chunk,
            entry,
            code: code(&vector),
        }
    }

    fn bits(a: &Code, b: &Code) -> u32 {
        a.words()
            .iter()
            .zip(b.words())
            .map(|(a, b)| (a ^ b).count_ones())
            .sum()
    }

    #[test]
    fn a_search_sees_its_own_state_whatever_is_committed_meanwhile() {
        let index = Index::new(64);
        index.apply((1..=10).map(|chunk| Change::Add {
            owner: 1,
            item: item(chunk, 64),
        }));
        let before = index.snapshot(1);
        index.apply([
            Change::Remove { owner: 1, chunk: 3 },
            Change::Add {
                owner: 1,
                item: item(11, 64),
            },
        ]);
        let chunks = |snapshot: &Snapshot| {
            let mut chunks: Vec<i64> = snapshot
                .nearest(&item(3, 64).code, 100, None)
                .iter()
                .map(|near| near.chunk)
                .collect();
            chunks.sort_unstable();
            chunks
        };
        assert_eq!(chunks(&before), (1..=10).collect::<Vec<_>>());
        assert_eq!(chunks(&index.snapshot(1)), [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert!(index.snapshot(2).is_empty(), "owners do not see each other");
    }

    #[test]
    fn segments_that_lose_most_of_their_codes_are_made_anew() {
        let index = Index::new(64);
        index.apply((1..=10_000).map(|chunk| Change::Add {
            owner: 1,
            item: item(chunk, 64),
        }));
        index.apply((1..=9_900).map(|chunk| Change::Remove { owner: 1, chunk }));
        let snapshot = index.snapshot(1);
        assert_eq!((snapshot.len(), index.len()), (100, 100));
        assert!(
            snapshot
                .codes
                .segments
                .iter()
                .map(|segment| segment.chunks.len())
                .sum::<usize>()
                < 5000
        );
        assert_eq!(snapshot.nearest(&item(9_950, 64).code, 1, None)[0].bits, 0);
        index.apply([
            Change::Remove {
                owner: 1,
                chunk: 9_950,
            },
            Change::Remove {
                owner: 1,
                chunk: 9_950,
            },
        ]);
        assert_eq!(index.len(), 99, "removing twice counts once");
    }

    proptest! {
        #[test]
        fn the_nearest_are_those_an_exact_count_gives(
            chunks in 1i64..6000, removed in 1i64..7, depth in 1usize..300, dimensions in 1usize..200,
            // A filter that allows many codes of a block, few of them, or none in most blocks.
            every in prop::option::of(prop::sample::select(vec![1i64, 3, 20, 700])),
        ) {
            let index = Index::new(dimensions);
            index.apply((1..=chunks).map(|chunk| Change::Add { owner: 1, item: item(chunk, dimensions) }));
            index.apply((1..=chunks).filter(|chunk| chunk % removed == 1).map(|chunk| Change::Remove { owner: 1, chunk }));
            let query = item(chunks * 3 + 1, dimensions).code;
            let allowed: Option<Allowed> = every.map(|every| (1..=chunks).filter(|entry| entry % every == 1 % every).collect());
            let mut exact: Vec<Near> = (1..=chunks)
                .filter(|chunk| chunk % removed != 1)
                .map(|chunk| item(chunk, dimensions))
                .filter(|item| allowed.as_ref().is_none_or(|allowed| allowed.contains(item.entry)))
                .map(|item| Near { bits: bits(&item.code, &query), chunk: item.chunk, entry: item.entry })
                .collect();
            exact.sort_unstable();
            exact.truncate(depth);
            let found = index.snapshot(1).nearest(&query, depth, allowed.as_ref());
            // Among the last results, chunks at equal distance may differ.
            let distances = |list: &[Near]| list.iter().map(|near| near.bits).collect::<Vec<_>>();
            prop_assert_eq!(distances(&found), distances(&exact));
        }
    }
}
