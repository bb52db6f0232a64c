//! The queries that were asked last through the index of a set. What is asked tells better than any sample of what is stored
//! how far the index must look: of stored vectors that repeat each other much, and of queries that are near to none of
//! them, a sample knows nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

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
}

impl Asked {
    /// Notes a query; the last ones when it is time to look with them how far the index must look.
    pub fn note(&self, set_id: i64, query: &[f32]) -> Option<Vec<String>> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.set_id != set_id {
            *recent = Recent { set_id, next: FIRST, ..Recent::default() };
        }
        if recent.queries.iter().any(|known| known == query) {
            return None;
        }
        if recent.queries.len() == KEPT {
            recent.queries.pop_front();
        }
        recent.queries.push_back(query.to_vec());
        recent.count += 1;
        if recent.count < recent.next {
            return None;
        }
        recent.next += (recent.next * (MORE - 1)).min(SELDOM);
        Some(shown(&recent.queries))
    }

    /// The last queries of a set; `None` when there are too few to tell anything.
    pub fn of(&self, set_id: i64) -> Option<Vec<String>> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (recent.set_id == set_id && recent.count >= FIRST).then(|| shown(&recent.queries))
    }
}

/// As pgvector reads them.
fn shown(queries: &VecDeque<Vec<f32>>) -> Vec<String> {
    queries.iter().map(|query| format!("{query:?}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_queries_are_looked_at_ever_more_seldom() {
        let asked = Asked::default();
        let due: Vec<u16> = (1..=40_000).filter(|n| asked.note(1, &[f32::from(*n)]).is_some()).collect();
        assert_eq!(due, [8, 32, 128, 512, 2_048, 8_192, 16_384, 24_576, 32_768]);
        assert_eq!(asked.of(1).map(|queries| queries.len()), Some(KEPT));
        assert_eq!(asked.note(1, &[40_000.0]), None, "the same is not noted again");
    }

    #[test]
    fn another_set_begins_anew() {
        let asked = Asked::default();
        let noted: Vec<bool> = (0..8u8).map(|n| asked.note(1, &[f32::from(n)]).is_some()).collect();
        assert_eq!(noted, [false, false, false, false, false, false, false, true]);
        assert_eq!((asked.note(2, &[0.5, -1.0]), asked.of(1), asked.of(2)), (None, None, None));
        let queries = (1..8u8).find_map(|n| asked.note(2, &[f32::from(n), 0.0]));
        assert_eq!(queries.map(|queries| queries[..2].to_vec()), Some(vec!["[0.5, -1.0]".to_owned(), "[1.0, 0.0]".to_owned()]));
    }
}
