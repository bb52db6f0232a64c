//! The queries that were asked last through the index of a set. What is asked tells better than any sample of what is stored
//! how far the index must look: of stored vectors that repeat each other much, and of queries that are near to none of
//! them, a sample knows nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Queries that are kept.
const KEPT: usize = 32;
/// Different queries after which the index is looked at first, how much more each time, and the most.
const FIRST: u64 = 8;
const MORE: u64 = 4;
const SELDOM: u64 = 8_192;

/// The last different queries.
#[derive(Debug, Default)]
pub(crate) struct Asked(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    set_id: i64,
    /// Different queries since the set was first searched.
    count: u64,
    /// How many there must be for the next look.
    next: u64,
    queries: VecDeque<Vec<f32>>,
    /// Whether somebody looks.
    is_looked: bool,
}

/// The last queries of a set. Until it is dropped nobody else looks with them.
#[derive(Debug)]
pub(crate) struct Look<'a> {
    asked: &'a Asked,
    pub queries: Vec<String>,
}

impl Look<'_> {
    /// Whether there are as many queries as are kept.
    pub fn is_full(&self) -> bool {
        self.queries.len() == KEPT
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.asked.lock().is_looked = false;
    }
}

impl Asked {
    /// Notes a query. True when it is time to look with the last ones how far the index must look.
    pub fn note(&self, set_id: i64, query: &[f32]) -> bool {
        let mut recent = self.lock();
        if recent.set_id != set_id {
            *recent = Recent {
                set_id,
                next: FIRST,
                is_looked: recent.is_looked,
                ..Recent::default()
            };
        }
        if recent.queries.iter().any(|known| known == query) {
            return false;
        }
        if recent.queries.len() == KEPT {
            recent.queries.pop_front();
        }
        recent.queries.push_back(query.to_vec());
        recent.count += 1;
        if recent.count < recent.next || recent.is_looked {
            return false;
        }
        recent.next = recent.count + (recent.next * (MORE - 1)).min(SELDOM);
        true
    }

    /// The last queries of a set, as pgvector reads them; `None` when there are too few to tell anything, and while somebody
    /// looks.
    pub fn look(&self, set_id: i64) -> Option<Look<'_>> {
        let mut recent = self.lock();
        if recent.set_id != set_id || recent.count < FIRST || recent.is_looked {
            return None;
        }
        recent.is_looked = true;
        let queries = recent
            .queries
            .iter()
            .map(|query| format!("{query:?}"))
            .collect();
        Some(Look {
            asked: self,
            queries,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_queries_are_looked_at_ever_more_seldom() {
        let asked = Asked::default();
        let due: Vec<u16> = (1..=40_000)
            .filter(|n| asked.note(1, &[f32::from(*n)]))
            .collect();
        assert_eq!(due, [8, 32, 128, 512, 2_048, 8_192, 16_384, 24_576, 32_768]);
        assert!(asked.look(1).is_some_and(|look| look.is_full()));
        let count = asked.lock().count;
        asked.note(1, &[40_000.0]);
        assert_eq!(asked.lock().count, count, "the same is not noted again");
    }

    #[test]
    fn another_set_begins_anew() {
        let asked = Asked::default();
        let noted: Vec<bool> = (0..8u8).map(|n| asked.note(1, &[f32::from(n)])).collect();
        assert_eq!(
            noted,
            [false, false, false, false, false, false, false, true]
        );
        asked.note(2, &[0.5, -1.0]);
        assert!(asked.look(1).is_none() && asked.look(2).is_none());
        assert!((1..8u8).any(|n| asked.note(2, &[f32::from(n), 0.0])));
        assert_eq!(
            asked.look(2).unwrap().queries[..2],
            ["[0.5, -1.0]", "[1.0, 0.0]"]
        );
    }

    #[test]
    fn one_looks_at_a_time() {
        let asked = Asked::default();
        assert!((0..8u8).any(|n| asked.note(1, &[f32::from(n)])));
        let look = asked.look(1).unwrap();
        assert!(!look.is_full() && asked.look(1).is_none());
        assert!(!(8..100u8).any(|n| asked.note(1, &[f32::from(n)])));
        drop(look);
        assert!(asked.note(1, &[100.0]) && asked.look(1).is_some());
    }
}
