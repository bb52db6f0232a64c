//! The bounded queue between async callers and the writer thread.

#![expect(
    clippy::disallowed_methods,
    reason = "how long the group-commit window is open"
)]

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The weight of a queued item.
pub(crate) trait Weight {
    /// Size of its payload in memory, in bytes.
    fn bytes(&self) -> usize;
}

/// How long a thread waits for an item before it counts as idle.
pub(crate) const IDLE: Duration = Duration::from_secs(2);

/// A queue bounded in items and in bytes. An item heavier than the byte limit still fits into an empty queue.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
    max_items: usize,
    max_bytes: usize,
}

struct State<T> {
    items: VecDeque<T>,
    bytes: usize,
    closed: bool,
    /// Number of items at which the waiting thread is woken.
    wanted: usize,
}

/// Why an item was rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl<T: Weight> Queue<T> {
    pub fn new(max_items: usize, max_bytes: usize) -> Self {
        let state = State {
            items: VecDeque::new(),
            bytes: 0,
            closed: false,
            wanted: 1,
        };
        Self {
            state: Mutex::new(state),
            ready: Condvar::new(),
            max_items: max_items.max(1),
            max_bytes,
        }
    }

    pub fn push(&self, item: T) -> Result<(), Refused> {
        let bytes = item.bytes();
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        let too_heavy =
            !state.items.is_empty() && state.bytes.saturating_add(bytes) > self.max_bytes;
        if state.items.len() >= self.max_items || too_heavy {
            return Err(Refused::Full);
        }
        state.bytes += bytes;
        state.items.push_back(item);
        let wake = state.items.len() >= state.wanted;
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Waits until `wanted` items are queued, the queue is closed, or `timeout` has passed. Only for the thread that
    /// takes items: while it waits here, a push wakes it only when there are enough items.
    pub fn gather(&self, wanted: usize, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        state.wanted = wanted.min(self.max_items);
        while !state.closed && state.items.len() < state.wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .ready
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.wanted = 1;
    }

    /// Waits for an item and takes it together with the items queued behind it, within these limits. `None` when the
    /// queue is closed and empty. `idle` is called once when no item came for a while.
    pub fn take(
        &self,
        max_items: usize,
        max_bytes: usize,
        mut idle: impl FnMut(),
    ) -> Option<Vec<T>> {
        let mut state = self.lock();
        let mut was_idle = false;
        while state.items.is_empty() {
            if state.closed {
                return None;
            }
            if was_idle {
                state = self
                    .ready
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (waited, timeout) = self
                .ready
                .wait_timeout(state, IDLE)
                .unwrap_or_else(PoisonError::into_inner);
            state = waited;
            if timeout.timed_out() && state.items.is_empty() && !state.closed {
                drop(state);
                idle();
                was_idle = true;
                state = self.lock();
            }
        }
        let mut taken = Vec::with_capacity(state.items.len().min(max_items));
        let mut bytes = 0usize;
        while taken.len() < max_items {
            let Some(next) = state.items.front().map(Weight::bytes) else {
                break;
            };
            if !taken.is_empty() && bytes.saturating_add(next) > max_bytes {
                break;
            }
            bytes = bytes.saturating_add(next);
            taken.extend(state.items.pop_front());
        }
        state.bytes -= taken.iter().map(Weight::bytes).sum::<usize>();
        Some(taken)
    }

    /// Number of queued items.
    pub fn len(&self) -> usize {
        self.lock().items.len()
    }

    /// Drops all queued items.
    pub fn clear(&self) {
        let mut state = self.lock();
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        drop(state);
        drop(items);
    }

    /// Rejects new items. Queued items can still be taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Item(usize);

    impl Weight for Item {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn a_full_queue_refuses_by_items_and_by_bytes() {
        let queue = Queue::new(2, 10);
        assert_eq!(queue.push(Item(50)), Ok(()), "the first always fits");
        assert_eq!(queue.push(Item(1)), Err(Refused::Full), "bytes");
        assert_eq!(queue.take(1, 1000, || ()), Some(vec![Item(50)]));
        queue.push(Item(1)).unwrap();
        queue.push(Item(1)).unwrap();
        assert_eq!(queue.push(Item(1)), Err(Refused::Full), "items");
    }

    #[test]
    fn take_stops_at_its_bounds_and_keeps_the_order() {
        let queue = Queue::new(10, 1000);
        for weight in [4, 5, 6, 1] {
            queue.push(Item(weight)).unwrap();
        }
        assert_eq!(queue.take(10, 10, || ()), Some(vec![Item(4), Item(5)]));
        assert_eq!(queue.take(1, 10, || ()), Some(vec![Item(6)]));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn gathering_ends_with_enough_items_at_its_timeout_and_when_the_queue_closes() {
        const FOREVER: Duration = Duration::from_secs(3600);
        let queue = Queue::new(10, 1000);
        queue.push(Item(1)).unwrap();
        queue.gather(1, FOREVER);
        queue.gather(2, Duration::from_millis(1));
        assert_eq!(queue.len(), 1, "nothing is taken");
        std::thread::scope(|scope| {
            let gathering = scope.spawn(|| queue.gather(3, FOREVER));
            queue.push(Item(1)).unwrap();
            queue.push(Item(1)).unwrap();
            gathering.join().unwrap();
            let gathering = scope.spawn(|| queue.gather(99, FOREVER));
            queue.close();
            gathering.join().unwrap();
        });
        assert_eq!(
            queue.take(10, 1000, || ()).map(|items| items.len()),
            Some(3)
        );
    }

    #[test]
    fn a_closed_queue_hands_out_the_rest_and_then_ends() {
        let queue = Queue::new(10, 1000);
        queue.push(Item(1)).unwrap();
        queue.close();
        assert_eq!(queue.push(Item(2)), Err(Refused::Closed));
        assert_eq!(queue.take(1, 1000, || ()), Some(vec![Item(1)]));
        assert_eq!(queue.take(1, 1000, || ()), None);
    }
}
