//! How many entries the planner expected to satisfy the filters that were asked for last. Asking it takes a fifth of a
//! millisecond, as long as the rest of a small search, and whoever talks in a thread searches it again and again. A stale
//! answer costs time at worst: it only chooses the way of a search.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use context_model::Filter;
use context_store::OwnerId;

/// Filters that are kept.
const KEPT: usize = 64;
/// How long an estimate holds. Entries stored meanwhile are not in it.
const HOLDS: Duration = Duration::from_secs(30);

/// The last estimates.
#[derive(Debug, Default)]
pub(crate) struct Estimates(Mutex<VecDeque<Estimate>>);

#[derive(Debug)]
struct Estimate {
    owner: OwnerId,
    filter: Filter,
    entries: f64,
    at: Instant,
}

impl Estimates {
    /// The entries of the owner that were expected to satisfy the filter, if that was asked for lately.
    pub fn of(&self, owner: &OwnerId, filter: &Filter) -> Option<f64> {
        let estimates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = estimates.iter().rev().find(|known| known.at.elapsed() < HOLDS && known.owner == *owner && known.filter == *filter);
        found.map(|known| known.entries)
    }

    /// Keeps an estimate, for the oldest one.
    pub fn keep(&self, owner: &OwnerId, filter: &Filter, entries: f64) {
        let mut estimates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        estimates.retain(|known| known.at.elapsed() < HOLDS);
        if estimates.len() == KEPT {
            estimates.pop_front();
        }
        estimates.push_back(Estimate { owner: owner.clone(), filter: filter.clone(), entries, at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use context_model::ThreadId;

    use super::*;

    #[test]
    fn the_last_are_kept_for_their_owner_and_filter() {
        let filter = |thread: usize| Filter { thread_id: Some(ThreadId::from_stored(thread.to_string())), ..Filter::default() };
        let (estimates, owner) = (Estimates::default(), OwnerId::new("a"));
        for thread in 0..=KEPT {
            estimates.keep(&owner, &filter(thread), thread as f64);
        }
        assert_eq!((estimates.of(&owner, &filter(KEPT)), estimates.of(&owner, &filter(1))), (Some(KEPT as f64), Some(1.0)));
        assert_eq!((estimates.of(&owner, &filter(0)), estimates.of(&OwnerId::new("b"), &filter(1))), (None, None));
    }
}
