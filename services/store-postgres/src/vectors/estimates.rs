//! The planner's recent estimates of how many entries satisfy a filter. An estimate takes 0.2 ms, as long as the rest
//! of a small search, and agents search the same thread repeatedly. The estimate only decides how to search, so a stale
//! one costs time but does not change the result.

#![expect(clippy::disallowed_methods, reason = "measures how old an estimate is")]

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_model::Filter;
use context_store::{DocumentKind, OwnerId};

/// Maximum number of estimates in memory.
const CAPACITY: usize = 64;
/// How long an estimate is used. Entries stored since then are not counted.
const LIFETIME: Duration = Duration::from_secs(30);

/// The recent estimates. A filter may be as large as a request, so only its hash is stored. A hash collision also only
/// costs time.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    hasher: RandomState,
    recent: Mutex<VecDeque<Estimate>>,
}

/// The hash of an owner, a kind and a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

#[derive(Debug)]
struct Estimate {
    key: Key,
    entries: f64,
    at: Instant,
}

impl Estimates {
    /// The key of this owner, kind and filter.
    pub fn key(&self, owner: &OwnerId, kind: DocumentKind, filter: &Filter) -> Key {
        let mut hashing = Hashing(self.hasher.build_hasher());
        // The debug form contains every part of a filter. If it left something out, two filters would share an
        // estimate.
        let _ = write!(hashing, "{:?} {kind:?} {filter:?}", owner.as_str());
        Key(hashing.0.finish())
    }

    /// The number of entries that the planner expected, if there is a recent estimate.
    pub fn get(&self, key: Key) -> Option<f64> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent
            .iter()
            .rev()
            .find(|estimate| estimate.key == key && estimate.at.elapsed() < LIFETIME)
            .map(|estimate| estimate.entries)
    }

    /// Stores an estimate, and removes the oldest one when there are too many.
    pub fn put(&self, key: Key, entries: f64) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == CAPACITY {
            recent.pop_front();
        }
        recent.push_back(Estimate {
            key,
            entries,
            at: Instant::now(),
        });
    }
}

/// Hashes what is written to it.
struct Hashing<H>(H);

impl<H: Hasher> std::fmt::Write for Hashing<H> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use context_model::ThreadId;

    use super::*;

    #[test]
    fn the_last_are_kept_for_their_owner_and_filter() {
        let filter = |thread: usize| Filter {
            thread_id: Some(ThreadId::from_stored(thread.to_string())),
            ..Filter::default()
        };
        let (estimates, owner) = (Estimates::default(), OwnerId::new("a"));
        let of = |owner: &str, thread| {
            estimates.get(estimates.key(
                &OwnerId::new(owner),
                DocumentKind::Context,
                &filter(thread),
            ))
        };
        for thread in 0..=CAPACITY {
            estimates.put(
                estimates.key(&owner, DocumentKind::Context, &filter(thread)),
                thread as f64,
            );
        }
        assert_eq!(
            (of("a", CAPACITY), of("a", 1)),
            (Some(CAPACITY as f64), Some(1.0))
        );
        assert_eq!((of("a", 0), of("b", 1)), (None, None));
    }
}
