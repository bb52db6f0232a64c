//! Statements that stay prepared on a connection.
//!
//! PostgreSQL plans the first five uses of a prepared statement for their values, and then reuses one plan for all
//! values if it expects that plan to cost no more (`plan_cache_mode = auto`). Planning is up to half the work of a
//! search, but a plan made for rare words may be a hundred times too slow for a common one. So searches are cached as
//! well, and if a search was slow, its next uses are planned again.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::Statement;

/// Maximum number of searches that one connection caches. The server needs about 10 kB for each.
const MAX_SEARCHES: usize = 64;
/// A slower search may have had a plan that does not suit its values.
const SLOW: Duration = Duration::from_millis(50);
/// How many uses of a search are planned again after its first slow use. Each slow use after such a pause multiplies
/// the number by four.
const FIRST_PAUSE: u64 = 1_000;
/// Maximum number of uses that are planned again after a slow one.
const MAX_PAUSE: u64 = 1_000_000;
/// Maximum number of slow searches that are remembered. When there are more, all are forgotten.
const MAX_SLOW_SEARCHES: usize = 256;

/// How long a connection keeps a statement prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CachePolicy {
    /// Never. The statement is planned each time, with its values.
    Never,
    /// While it is among the most recently used statements, unless it was slow. For texts put together at run time.
    WhileUsed,
    /// As long as the connection lasts. For the few fixed texts of this program.
    Always,
}

/// Identifies a fixed text of this program, so that it is not rendered and hashed for each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum StatementId {
    /// A string literal, by its address and length.
    Literal(usize, usize),
    /// A diesel query, by its static query id.
    Query(TypeId),
}

impl StatementId {
    pub fn of_literal(sql: &'static str) -> Self {
        Self::Literal(sql.as_ptr().addr(), sql.len())
    }
}

/// The prepared statements of one connection.
#[derive(Debug, Default)]
pub(crate) struct StatementCache {
    by_text: HashMap<String, Statement>,
    by_id: HashMap<StatementId, Statement>,
    /// The text of each id, to detect an id that is used for two texts.
    #[cfg(debug_assertions)]
    texts: HashMap<StatementId, String>,
    searches: Vec<CachedSearch>,
    uses: u64,
}

#[derive(Debug)]
struct CachedSearch {
    sql: String,
    /// `None` after the first use: preparing costs a round trip, which pays off from the second use on.
    statement: Option<Statement>,
    last_use: u64,
}

/// How to run a statement.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// Run this prepared statement.
    Hit(Statement),
    /// Prepare it and [insert](StatementCache::insert) it.
    Miss,
    /// Run it without preparing it.
    Unprepared,
}

impl StatementCache {
    /// The statement with this id, if it is prepared.
    pub fn find_by_id(&self, id: StatementId) -> Option<&Statement> {
        self.by_id.get(&id)
    }

    /// Adds the id of a statement that is prepared.
    pub fn insert_id(&mut self, id: StatementId, sql: &str, statement: &Statement) {
        self.by_id.insert(id, statement.clone());
        #[cfg(debug_assertions)]
        self.texts.insert(id, sql.to_owned());
        #[cfg(not(debug_assertions))]
        let _ = sql;
    }

    /// The text of an id that was [inserted](Self::insert_id).
    #[cfg(debug_assertions)]
    pub fn text_of(&self, id: StatementId) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// Looks up a statement and counts the use of a search.
    pub fn find(&mut self, sql: &str, policy: CachePolicy) -> Lookup {
        match policy {
            CachePolicy::Never => Lookup::Unprepared,
            CachePolicy::Always => self
                .by_text
                .get(sql)
                .map_or(Lookup::Miss, |statement| Lookup::Hit(statement.clone())),
            CachePolicy::WhileUsed => {
                self.uses += 1;
                if let Some(search) = self.searches.iter_mut().find(|search| search.sql == sql) {
                    search.last_use = self.uses;
                    return search.statement.clone().map_or(Lookup::Miss, Lookup::Hit);
                }
                if self.searches.len() >= MAX_SEARCHES {
                    let oldest = self
                        .searches
                        .iter()
                        .enumerate()
                        .min_by_key(|(_, search)| search.last_use)
                        .map(|(at, _)| at);
                    // Dropping a statement closes it on the server.
                    oldest.map(|at| self.searches.swap_remove(at));
                }
                self.searches.push(CachedSearch {
                    sql: sql.to_owned(),
                    statement: None,
                    last_use: self.uses,
                });
                Lookup::Unprepared
            }
        }
    }

    /// Adds a statement after a [`Lookup::Miss`].
    pub fn insert(&mut self, sql: &str, statement: &Statement) {
        match self.searches.iter_mut().find(|search| search.sql == sql) {
            Some(search) => search.statement = Some(statement.clone()),
            None => _ = self.by_text.insert(sql.to_owned(), statement.clone()),
        }
    }
}

/// Searches, by their text without values, that were slow on any connection of a pool, with a cached plan or without.
#[derive(Debug, Default)]
pub(crate) struct SlowSearches {
    /// Keyed by the hash of the text. When two texts share a hash, both are planned again.
    by_hash: Mutex<HashMap<u64, SlowSearch>>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct SlowSearch {
    /// How many uses are planned again before a plan is cached.
    pause: u64,
    /// How many pauses there were.
    pauses: u32,
}

impl SlowSearches {
    /// Whether this search may use a cached plan.
    pub fn may_cache(&self, sql: &str) -> bool {
        let mut slow = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        match slow.get_mut(&self.hasher.hash_one(sql)) {
            Some(search) if search.pause > 0 => {
                search.pause -= 1;
                false
            }
            _ => true,
        }
    }

    /// Records how long a search took until its last row or its failure.
    pub fn record(&self, sql: &str, time: Duration) {
        if time < SLOW {
            return;
        }
        let mut slow = self.by_hash.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.hasher.hash_one(sql);
        if slow.len() >= MAX_SLOW_SEARCHES && !slow.contains_key(&key) {
            slow.clear();
        }
        let search = slow.entry(key).or_default();
        // A search that is planned for each use already has the best plan.
        if search.pause == 0 {
            search.pause = FIRST_PAUSE
                .saturating_mul(4_u64.saturating_pow(search.pauses))
                .min(MAX_PAUSE);
            search.pauses = search.pauses.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_prepared_when_it_is_asked_again_and_the_least_recent_one_is_forgotten() {
        let mut cache = StatementCache::default();
        let mut find = |sql: &str| cache.find(sql, CachePolicy::WhileUsed);
        assert!(matches!(find("first"), Lookup::Unprepared));
        assert!(matches!(find("first"), Lookup::Miss));
        for n in 1..MAX_SEARCHES {
            find(&n.to_string());
        }
        assert!(
            matches!(find("first"), Lookup::Miss),
            "it was used recently, and there was room"
        );
        find("one more");
        assert!(
            matches!(find("1"), Lookup::Unprepared),
            "it was the least recently used"
        );
        assert!(matches!(find("first"), Lookup::Miss));
        assert_eq!(cache.searches.len(), MAX_SEARCHES);
    }

    #[test]
    fn fixed_texts_are_prepared_at_once_and_others_never() {
        let mut cache = StatementCache::default();
        assert!(matches!(
            cache.find("fixed", CachePolicy::Always),
            Lookup::Miss
        ));
        for _ in 0..2 {
            assert!(matches!(
                cache.find("other", CachePolicy::Never),
                Lookup::Unprepared
            ));
        }
    }

    #[test]
    fn a_slow_form_rests_longer_each_time() {
        let slow = SlowSearches::default();
        slow.record("quick", SLOW / 2);
        assert!(slow.may_cache("quick"));
        for pause in [FIRST_PAUSE, 4 * FIRST_PAUSE, 16 * FIRST_PAUSE] {
            slow.record("slow", SLOW);
            slow.record("slow", SLOW);
            let planned = (0..MAX_PAUSE)
                .take_while(|_| !slow.may_cache("slow"))
                .count();
            assert_eq!(planned as u64, pause);
        }
        assert!(slow.may_cache("quick"));
        for n in 0..2 * MAX_SLOW_SEARCHES {
            slow.record(&n.to_string(), SLOW);
        }
        assert!(slow.by_hash.lock().unwrap().len() <= MAX_SLOW_SEARCHES);
    }
}
