//! Fair distribution of scarce resources between owners: reader threads and connections.

use std::collections::{HashMap, VecDeque};

use crate::OwnerId;

/// The user of a resource: an owner, or the service itself (`None`).
pub type Sharer = Option<OwnerId>;

/// Grants a fixed number of equal slots in turn to those who wait. No owner gets more than half of the slots (rounded
/// down, but at least one) while another owner with less than that waits. An owner that is alone may use all slots.
///
/// It only decides and counts. The code that owns it does the waiting and waking.
#[derive(Debug)]
pub struct Shares<T> {
    slots: usize,
    /// Number of slots in use, by sharer.
    used: HashMap<Sharer, usize>,
    in_use: usize,
    /// The sharers that wait, the next one first. Each has a non-empty queue of its waiting items, oldest first.
    waiting: VecDeque<(Sharer, VecDeque<T>)>,
    queued: usize,
    max_queued: usize,
}

impl<T> Shares<T> {
    /// `slots` slots and at most `max_queued` waiting items.
    #[must_use]
    pub fn new(slots: usize, max_queued: usize) -> Self {
        let (used, waiting) = (HashMap::new(), VecDeque::new());
        Self {
            slots: slots.max(1),
            used,
            in_use: 0,
            waiting,
            queued: 0,
            max_queued: max_queued.max(1),
        }
    }

    /// Takes a slot if one is free and nothing waits. Returns whether it did.
    pub fn take(&mut self, sharer: &Sharer) -> bool {
        let free = self.waiting.is_empty() && self.in_use < self.slots;
        if free {
            self.use_one(sharer.clone());
        }
        free
    }

    /// Queues `item` for a slot. If the queue is full, items that are no longer `wanted` are removed first.
    ///
    /// # Errors
    /// The item, when the queue is full.
    pub fn push(&mut self, sharer: Sharer, item: T, wanted: impl Fn(&T) -> bool) -> Result<(), T> {
        if self.queued >= self.max_queued {
            self.waiting
                .iter_mut()
                .for_each(|(_, items)| items.retain(&wanted));
            self.waiting.retain(|(_, items)| !items.is_empty());
            self.queued = self.waiting.iter().map(|(_, items)| items.len()).sum();
            if self.queued >= self.max_queued {
                return Err(item);
            }
        }
        self.queued += 1;
        match self.waiting.iter_mut().find(|(other, _)| *other == sharer) {
            Some((_, items)) => items.push_back(item),
            None => self.waiting.push_back((sharer, VecDeque::from([item]))),
        }
        Ok(())
    }

    /// Grants a slot to the next waiting item. `None` when nothing waits or no slot is free.
    pub fn grant_next(&mut self) -> Option<(Sharer, T)> {
        if self.in_use >= self.slots {
            return None;
        }
        let half = (self.slots / 2).max(1);
        let has_less =
            |(sharer, _): &(Sharer, _)| self.used.get(sharer).copied().unwrap_or(0) < half;
        let index = self.waiting.iter().position(has_less).unwrap_or(0);
        let (sharer, mut items) = self.waiting.remove(index)?;
        let item = items.pop_front()?;
        self.queued -= 1;
        if !items.is_empty() {
            self.waiting.push_back((sharer.clone(), items));
        }
        self.use_one(sharer.clone());
        Some((sharer, item))
    }

    /// Returns a slot of this sharer.
    pub fn give_back(&mut self, sharer: &Sharer) {
        if let Some(used) = self.used.get_mut(sharer) {
            *used -= 1;
            self.in_use -= 1;
            if *used == 0 {
                self.used.remove(sharer);
            }
        }
    }

    /// Number of waiting items.
    #[must_use]
    pub const fn queued(&self) -> usize {
        self.queued
    }

    fn use_one(&mut self, sharer: Sharer) {
        *self.used.entry(sharer).or_default() += 1;
        self.in_use += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> Sharer {
        Some(OwnerId::new(name))
    }

    fn shares(slots: usize, waiting: &[(&str, u32)]) -> Shares<u32> {
        let mut shares = Shares::new(slots, 100);
        for (name, item) in waiting {
            shares.push(owner(name), *item, |_| true).unwrap();
        }
        shares
    }

    fn next(shares: &mut Shares<u32>) -> Option<u32> {
        shares.grant_next().map(|(_, item)| item)
    }

    #[test]
    fn with_one_slot_owners_alternate_however_many_of_one_wait() {
        let mut shares = shares(1, &[("a", 1), ("a", 2), ("a", 3), ("b", 10), ("b", 11)]);
        let mut order = Vec::new();
        while let Some((sharer, item)) = shares.grant_next() {
            assert!(shares.grant_next().is_none(), "no slot is free");
            order.push(item);
            shares.give_back(&sharer);
        }
        assert_eq!(order, [1, 10, 2, 11, 3]);
    }

    #[test]
    fn an_owner_alone_has_every_slot() {
        let mut shares = shares(4, &[("a", 1), ("a", 2), ("a", 3), ("a", 4), ("a", 5)]);
        assert_eq!(
            (0..4).filter_map(|_| next(&mut shares)).collect::<Vec<_>>(),
            [1, 2, 3, 4]
        );
        assert_eq!(next(&mut shares), None);
    }

    #[test]
    fn an_owner_that_has_half_waits_for_those_who_have_less() {
        let mut shares = shares(4, &[("a", 1), ("a", 2), ("a", 3)]);
        assert_eq!(
            (next(&mut shares), next(&mut shares), next(&mut shares)),
            (Some(1), Some(2), Some(3))
        );
        for (name, item) in [("a", 4), ("b", 10), ("b", 11), ("c", 20)] {
            shares.push(owner(name), item, |_| true).unwrap();
        }
        assert_eq!(next(&mut shares), Some(10), "a has more than half");
        shares.give_back(&owner("a"));
        assert_eq!(next(&mut shares), Some(20), "a has half");
        shares.give_back(&owner("a"));
        assert_eq!(
            next(&mut shares),
            Some(4),
            "a has less than half, and waited longest"
        );
        shares.give_back(&owner("a"));
        assert_eq!(next(&mut shares), Some(11));
    }

    #[test]
    fn a_free_slot_is_taken_at_once_but_not_past_those_who_wait() {
        let mut shares = shares(2, &[]);
        assert!(shares.take(&owner("a")) && shares.take(&owner("a")));
        assert!(!shares.take(&owner("b")));
        shares.push(owner("b"), 1, |_| true).unwrap();
        shares.give_back(&owner("a"));
        assert!(!shares.take(&owner("a")), "b is next");
        assert_eq!(next(&mut shares), Some(1));
        assert_eq!(shares.queued(), 0);
    }

    #[test]
    fn a_full_queue_refuses_unless_some_of_it_is_not_wanted_any_more() {
        let mut shares = Shares::new(1, 2);
        for item in 0..2 {
            shares.push(None, item, |_| true).unwrap();
        }
        assert_eq!(shares.push(owner("a"), 2, |_| true), Err(2));
        assert_eq!(shares.push(owner("a"), 2, |item| *item != 0), Ok(()));
        assert_eq!((shares.queued(), next(&mut shares)), (2, Some(1)));
    }
}
