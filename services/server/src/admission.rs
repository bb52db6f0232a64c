//! Limits how many operations run at once and how many may wait, with a fair share for each caller.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use context_model::{Error, Reason};
use context_store::OwnerId;
use tokio::sync::oneshot;

/// The caller that a slot is charged to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Holder {
    /// An owner.
    Owner(OwnerId),
    /// The network of a caller whose request needs no credentials; `None` if the request came over no connection, as in
    /// a unit test.
    Network(Option<IpAddr>),
}

/// Slots shared by all callers. A caller may hold, and wait for, at most its share. A free slot
/// goes to the waiting caller that holds the fewest.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
    /// How many slots one caller may hold.
    share: usize,
    /// How many operations of one caller may wait.
    queue_share: usize,
    /// How many operations of all callers may wait.
    queue: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    held: HashMap<Holder, usize>,
    waiting: HashMap<Holder, VecDeque<Waiter>>,
    waiters: usize,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    granted: oneshot::Sender<()>,
}

impl Admission {
    /// Allows `slots` operations at once and `queue` waiting ones. With `shared`, one caller gets at most
    /// half of each, rounded up.
    #[must_use]
    pub fn new(slots: usize, queue: usize, shared: bool) -> Arc<Self> {
        let share = |of: usize| if shared { of.div_ceil(2) } else { of };
        let state = State {
            free: slots,
            held: HashMap::new(),
            waiting: HashMap::new(),
            waiters: 0,
            next_id: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            share: share(slots).max(1),
            queue_share: share(queue),
            queue,
        })
    }

    /// Waits for a slot. Dropping the slot frees it.
    ///
    /// # Errors
    /// `OVERLOADED` if the queue, or the caller's share of it, is full.
    pub async fn enter(self: &Arc<Self>, holder: Holder) -> Result<Slot, Error> {
        let (id, granted) = {
            let mut state = self.lock();
            if state.take(&holder, self.share) {
                return Ok(Slot {
                    admission: self.clone(),
                    holder,
                });
            }
            let waiting = state.waiting.get(&holder).map_or(0, VecDeque::len);
            if state.waiters >= self.queue || waiting >= self.queue_share {
                return Err(overloaded());
            }
            let (granted, receiver) = oneshot::channel();
            let id = state.next_id;
            state.next_id += 1;
            state.waiters += 1;
            state
                .waiting
                .entry(holder.clone())
                .or_default()
                .push_back(Waiter { id, granted });
            (id, receiver)
        };
        let mut entry = QueueEntry {
            admission: self,
            holder: Some(holder),
            id,
            granted,
        };
        let outcome = (&mut entry.granted).await;
        match (outcome, entry.holder.take()) {
            (Ok(()), Some(holder)) => Ok(Slot {
                admission: self.clone(),
                holder,
            }),
            _ => Err(overloaded()),
        }
    }

    /// Takes a slot without waiting.
    ///
    /// # Errors
    /// `OVERLOADED` if no slot is free, or the caller already holds its share.
    pub fn try_enter(self: &Arc<Self>, holder: Holder) -> Result<Slot, Error> {
        if self.lock().take(&holder, self.share) {
            Ok(Slot {
                admission: self.clone(),
                holder,
            })
        } else {
            Err(overloaded())
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, holder: &Holder) {
        let mut state = self.lock();
        state.release(holder);
        while let Some((holder, waiter)) = state.next(self.share) {
            // A waiter that has just left passes its turn to the next one.
            if waiter.granted.send(()).is_err() {
                state.release(&holder);
            }
        }
    }
}

impl State {
    fn take(&mut self, holder: &Holder, share: usize) -> bool {
        if self.free == 0 {
            return false;
        }
        match self.held.get_mut(holder) {
            Some(held) if *held >= share => return false,
            Some(held) => *held += 1,
            None => _ = self.held.insert(holder.clone(), 1),
        }
        self.free -= 1;
        true
    }

    fn release(&mut self, holder: &Holder) {
        self.free += 1;
        if let Entry::Occupied(mut held) = self.held.entry(holder.clone()) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// The next waiter that may run; a slot is taken for it.
    fn next(&mut self, share: usize) -> Option<(Holder, Waiter)> {
        if self.free == 0 || self.waiters == 0 {
            return None;
        }
        let held = |holder: &Holder| self.held.get(holder).copied().unwrap_or_default();
        let waiting = self
            .waiting
            .iter()
            .filter(|(holder, _)| held(holder) < share);
        let first = |queue: &VecDeque<Waiter>| queue.front().map_or(u64::MAX, |waiter| waiter.id);
        let (holder, _) = waiting.min_by_key(|(holder, queue)| (held(holder), first(queue)))?;
        let holder = holder.clone();
        let waiter = self.remove(&holder, None)?;
        // This succeeds: a slot is free, and the holder is below its share.
        self.take(&holder, share);
        Some((holder, waiter))
    }

    /// Removes a waiter from the queue: the one with this id, or the first.
    fn remove(&mut self, holder: &Holder, id: Option<u64>) -> Option<Waiter> {
        let queue = self.waiting.get_mut(holder)?;
        let index = id.map_or(Some(0), |id| {
            queue.iter().position(|waiter| waiter.id == id)
        })?;
        let waiter = queue.remove(index)?;
        if queue.is_empty() {
            self.waiting.remove(holder);
        }
        self.waiters -= 1;
        Some(waiter)
    }
}

/// Permission to run, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    admission: Arc<Admission>,
    holder: Holder,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.admission.give_back(&self.holder);
    }
}

/// An entry of the queue. Dropping it removes it, however the wait ends.
struct QueueEntry<'a> {
    admission: &'a Arc<Admission>,
    /// `None` once the slot was granted.
    holder: Option<Holder>,
    id: u64,
    granted: oneshot::Receiver<()>,
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        let Some(holder) = &self.holder else { return };
        let is_waiting = self
            .admission
            .lock()
            .remove(holder, Some(self.id))
            .is_some();
        if !is_waiting && self.granted.try_recv().is_ok() {
            // The slot was granted, but the caller left before it received it.
            self.admission.give_back(holder);
        }
    }
}

/// The error of a full queue.
#[must_use]
pub fn overloaded() -> Error {
    Error::new(
        Reason::Overloaded,
        "too many requests at once; retry in a second",
    )
    .with_retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    fn owner(name: &str) -> Holder {
        Holder::Owner(OwnerId::new(name))
    }

    #[tokio::test]
    async fn one_runs_one_waits_and_the_third_is_refused() {
        let admission = Admission::new(1, 1, false);
        let first = admission.enter(owner("a")).await.unwrap();
        let mut second = Box::pin(admission.enter(owner("a")));
        assert!(second.as_mut().now_or_never().is_none(), "the second waits");
        assert_eq!(
            admission.enter(owner("a")).await.unwrap_err().reason,
            Reason::Overloaded
        );
        drop(first);
        let second = second.await.unwrap();
        drop(second);
        drop(admission.enter(owner("a")).await.unwrap());
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_waiting_leaves_its_place_and_its_slot() {
        let admission = Admission::new(1, 1, false);
        let first = admission.enter(owner("a")).await.unwrap();
        assert!(admission.enter(owner("a")).now_or_never().is_none());
        assert!(
            admission.enter(owner("a")).now_or_never().is_none(),
            "the abandoned wait left the queue"
        );
        let mut granted = Box::pin(admission.enter(owner("a")));
        assert!(granted.as_mut().now_or_never().is_none());
        drop(first);
        drop(granted);
        drop(admission.try_enter(owner("a")).unwrap());
    }

    #[tokio::test]
    async fn a_caller_holds_half_and_another_one_is_let_in_at_once() {
        let admission = Admission::new(4, 8, true);
        let greedy: Vec<Slot> = (0..2)
            .map(|_| admission.try_enter(owner("greedy")).unwrap())
            .collect();
        let mut third = Box::pin(admission.enter(owner("greedy")));
        assert!(
            third.as_mut().now_or_never().is_none(),
            "more than half has to wait"
        );
        let other = admission
            .enter(owner("other"))
            .now_or_never()
            .expect("at once")
            .unwrap();
        drop(other);
        assert!(
            third.as_mut().now_or_never().is_none(),
            "the free slot is not for a caller that has its share"
        );
        drop(greedy);
        drop(third.await.unwrap());
    }

    #[tokio::test]
    async fn a_free_slot_goes_to_the_waiting_caller_that_holds_the_fewest() {
        let admission = Admission::new(4, 8, true);
        let hold = |name| admission.try_enter(owner(name)).unwrap();
        let (one, two, _others) = (hold("one"), hold("two"), [hold("two"), hold("four")]);
        // It waits longest and may hold two slots, but it holds one already.
        let mut again = Box::pin(admission.enter(owner("one")));
        assert!(again.as_mut().now_or_never().is_none());
        let mut late = Box::pin(admission.enter(owner("three")));
        assert!(late.as_mut().now_or_never().is_none());
        drop(two);
        let late = late.now_or_never().expect("its turn").unwrap();
        assert!(again.as_mut().now_or_never().is_none());
        drop((late, one));
        drop(again.await.unwrap());
    }

    #[tokio::test]
    async fn a_caller_fills_half_of_the_queue_at_most() {
        let admission = Admission::new(2, 2, true);
        let _slots = [
            admission.try_enter(owner("a")).unwrap(),
            admission.try_enter(owner("b")).unwrap(),
        ];
        let mut first = Box::pin(admission.enter(owner("a")));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(
            admission.enter(owner("a")).await.unwrap_err().reason,
            Reason::Overloaded
        );
        assert!(
            admission.enter(owner("b")).now_or_never().is_none(),
            "the other half is for other callers"
        );
    }
}
