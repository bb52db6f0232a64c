//! How many entries the planner expected to satisfy the filters that were asked for last. Asking it takes a fifth of a
//! millisecond, as long as the rest of a small search, and whoever talks in a thread searches it again and again. A stale
//! answer costs time at worst: it only chooses the way of a search.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_model::Filter;
use context_store::OwnerId;

/// Filters that are kept.
const KEPT: usize = 64;
/// How long an estimate holds. Entries stored meanwhile are not in it.
const HOLDS: Duration = Duration::from_secs(30);

/// The last estimates. Of a filter, which may be as large as a request, only a hash is kept: a collision costs time at worst too.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    hashed_by: RandomState,
    last: Mutex<VecDeque<Estimate>>,
}

/// The hash of an owner and a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(u64);

#[derive(Debug)]
struct Estimate {
    key: Key,
    entries: f64,
    at: Instant,
}

struct Hashed<H>(H);

impl<H: Hasher> std::fmt::Write for Hashed<H> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Estimates {
    /// What stands for this filter.
    pub fn key(&self, owner: &OwnerId, filter: &Filter) -> Key {
        let mut hashed = Hashed(self.hashed_by.build_hasher());
        // Everything that a filter holds is in its debug form.
        let _ = write!(hashed, "{:?} {filter:?}", owner.as_str());
        Key(hashed.0.finish())
    }

    /// The entries that were expected to satisfy the filter, if that was asked for lately.
    pub fn of(&self, key: Key) -> Option<f64> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter()
            .rev()
            .find(|known| known.key == key && known.at.elapsed() < HOLDS)
            .map(|known| known.entries)
    }

    /// Keeps an estimate, for the oldest one.
    pub fn keep(&self, key: Key, entries: f64) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == KEPT {
            last.pop_front();
        }
        last.push_back(Estimate {
            key,
            entries,
            at: Instant::now(),
        });
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
            estimates.of(estimates.key(&OwnerId::new(owner), &filter(thread)))
        };
        for thread in 0..=KEPT {
            estimates.keep(estimates.key(&owner, &filter(thread)), thread as f64);
        }
        assert_eq!((of("a", KEPT), of("a", 1)), (Some(KEPT as f64), Some(1.0)));
        assert_eq!((of("a", 0), of("b", 1)), (None, None));
    }
}
