//! Who is next where something is scarce: threads that search, connections.

use std::collections::{HashMap, VecDeque};

use crate::OwnerId;

/// For whom something is used: an owner, or the service itself.
pub type Sharer = Option<OwnerId>;

/// Hands out a number of equal places, by turns among those who wait: no owner gets more than half of them while
/// another one waits that has less. An owner that is alone may have all of them.
///
/// It decides and counts; whoever has it waits and wakes.
#[derive(Debug)]
pub struct Shares<T> {
    places: usize,
    /// Places in use, by whom.
    used: HashMap<Sharer, usize>,
    in_use: usize,
    /// Who waits, the next one first, each with what waits, oldest first. None of them is empty.
    waiting: VecDeque<(Sharer, VecDeque<T>)>,
    queued: usize,
    max_queued: usize,
}

impl<T> Shares<T> {
    /// So many places, and so many that may wait for one.
    #[must_use]
    pub fn new(places: usize, max_queued: usize) -> Self {
        let (used, waiting) = (HashMap::new(), VecDeque::new());
        Self {
            places: places.max(1),
            used,
            in_use: 0,
            waiting,
            queued: 0,
            max_queued: max_queued.max(1),
        }
    }

    /// Takes a place at once, if one is free that no one waits for.
    pub fn take(&mut self, sharer: &Sharer) -> bool {
        let free = self.waiting.is_empty() && self.in_use < self.places;
        if free {
            self.use_one(sharer.clone());
        }
        free
    }

    /// Lets `item` wait for a place. What is not `wanted` any more makes room for it.
    ///
    /// # Errors
    /// The item, when as many wait as may.
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

    /// Gives the next one that waits a place. `None` when no one waits or no place is free.
    pub fn grant_next(&mut self) -> Option<(Sharer, T)> {
        if self.in_use >= self.places {
            return None;
        }
        let half = (self.places / 2).max(1);
        let has_less =
            |(sharer, _): &(Sharer, _)| self.used.get(sharer).copied().unwrap_or(0) < half;
        let place = self.waiting.iter().position(has_less).unwrap_or(0);
        let (sharer, mut items) = self.waiting.remove(place)?;
        let item = items.pop_front()?;
        self.queued -= 1;
        if !items.is_empty() {
            self.waiting.push_back((sharer.clone(), items));
        }
        self.use_one(sharer.clone());
        Some((sharer, item))
    }

    /// A place that this one had is free again.
    pub fn give_back(&mut self, sharer: &Sharer) {
        if let Some(used) = self.used.get_mut(sharer) {
            *used -= 1;
            self.in_use -= 1;
            if *used == 0 {
                self.used.remove(sharer);
            }
        }
    }

    /// How many wait.
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

    fn shares(places: usize, waiting: &[(&str, u32)]) -> Shares<u32> {
        let mut shares = Shares::new(places, 100);
        for (name, item) in waiting {
            shares.push(owner(name), *item, |_| true).unwrap();
        }
        shares
    }

    fn next(shares: &mut Shares<u32>) -> Option<u32> {
        shares.grant_next().map(|(_, item)| item)
    }

    #[test]
    fn with_one_place_owners_alternate_however_many_of_one_wait() {
        let mut shares = shares(1, &[("a", 1), ("a", 2), ("a", 3), ("b", 10), ("b", 11)]);
        let mut order = Vec::new();
        while let Some((sharer, item)) = shares.grant_next() {
            assert!(shares.grant_next().is_none(), "the place is taken");
            order.push(item);
            shares.give_back(&sharer);
        }
        assert_eq!(order, [1, 10, 2, 11, 3]);
    }

    #[test]
    fn an_owner_alone_has_every_place() {
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
    fn a_free_place_is_taken_at_once_but_not_past_those_who_wait() {
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
