//! Statements that stay prepared on a connection.
//!
//! PostgreSQL plans a prepared statement with its values in view five times, and then keeps one plan for all values if it
//! expects that one to be no dearer (`plan_cache_mode = auto`). Planning is up to half the work of a search, but a plan
//! kept for rare words may be a hundred times too slow for a common one. So searches are kept as well, and a form of
//! search that turned out slow is planned anew for a while.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio_postgres::Statement;

/// Searches that one connection keeps, at most. The server has some ten kilobytes of memory for each.
const MOST_SEARCHES: usize = 64;
/// A search that takes longer may have had a plan that does not suit its values.
const SLOW: Duration = Duration::from_millis(50);
/// Searches of a form that are planned anew after a slow one, at first and at most. Each further slow one makes them
/// four times as many.
const FIRST_REST: u64 = 1_000;
const LONGEST_REST: u64 = 1_000_000;
/// Slow forms that are remembered, at most.
const MOST_SLOW_FORMS: usize = 256;

/// How long a connection keeps a statement prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Not at all: it is planned anew each time, with its values in view.
    Never,
    /// As long as it is among those used last, unless its form is slow. Of searches, which have many texts.
    WhileUsed,
    /// As long as the connection lasts. Of fixed texts, of which there are few.
    Always,
}

/// What stays prepared on one connection.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// By their text.
    always: HashMap<String, Statement>,
    /// Those of them that are written in this program, by the place and length of that text: it need not be put together
    /// and compared for each use.
    written: HashMap<(usize, usize), Statement>,
    searches: Vec<KeptSearch>,
    uses: u64,
}

#[derive(Debug)]
struct KeptSearch {
    sql: String,
    /// `None` when it was asked once: preparing costs a round trip, so it has to be asked again first.
    statement: Option<Statement>,
    last_use: u64,
}

/// Whether a statement is there.
#[derive(Debug)]
pub(crate) enum Found {
    There(Statement),
    /// It is to be prepared and [kept](Kept::keep).
    Missing,
    /// It is to be run without.
    NotYet,
}

fn place(written: &'static str) -> (usize, usize) {
    (written.as_ptr().addr(), written.len())
}

impl Kept {
    /// The statement of a text as it is written in this program, if that is known by now.
    pub fn find_written(&self, written: &'static str) -> Option<&Statement> {
        self.written.get(&place(written))
    }

    /// Takes note of how a statement that is kept is written in this program.
    pub fn note_written(&mut self, written: &'static str, statement: &Statement) {
        self.written.insert(place(written), statement.clone());
    }

    /// Looks up a statement, and notes that a search was asked.
    pub fn find(&mut self, sql: &str, keep: Keep) -> Found {
        match keep {
            Keep::Never => Found::NotYet,
            Keep::Always => self
                .always
                .get(sql)
                .map_or(Found::Missing, |statement| Found::There(statement.clone())),
            Keep::WhileUsed => {
                self.uses += 1;
                if let Some(known) = self.searches.iter_mut().find(|known| known.sql == sql) {
                    known.last_use = self.uses;
                    return known.statement.clone().map_or(Found::Missing, Found::There);
                }
                if self.searches.len() >= MOST_SEARCHES {
                    let oldest = self
                        .searches
                        .iter()
                        .enumerate()
                        .min_by_key(|(_, known)| known.last_use)
                        .map(|(at, _)| at);
                    // Dropping a statement tells the server to forget it.
                    oldest.map(|at| self.searches.swap_remove(at));
                }
                self.searches.push(KeptSearch {
                    sql: sql.to_owned(),
                    statement: None,
                    last_use: self.uses,
                });
                Found::NotYet
            }
        }
    }

    /// Keeps a statement that was missing.
    pub fn keep(&mut self, sql: &str, statement: &Statement) {
        match self.searches.iter_mut().find(|known| known.sql == sql) {
            Some(known) => known.statement = Some(statement.clone()),
            None => _ = self.always.insert(sql.to_owned(), statement.clone()),
        }
    }
}

/// Forms of searches (their texts, without values) for which a kept plan was slow, on any connection of a pool.
#[derive(Debug, Default)]
pub(crate) struct SlowForms {
    /// By the hash of the text: when two share one, both are planned anew.
    forms: Mutex<HashMap<u64, SlowForm>>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct SlowForm {
    /// How many of its searches are planned anew before a plan is kept again.
    rest: u64,
    /// How many were slow.
    times: u32,
}

impl SlowForms {
    /// Whether a search of this form may have a plan that the server keeps.
    pub fn may_keep(&self, sql: &str) -> bool {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        match forms.get_mut(&self.hasher.hash_one(sql)) {
            Some(form) if form.rest > 0 => {
                form.rest -= 1;
                false
            }
            _ => true,
        }
    }

    /// Takes note of how long a search took until its last row.
    pub fn took(&self, sql: &str, time: Duration) {
        if time < SLOW {
            return;
        }
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let key = self.hasher.hash_one(sql);
        if forms.len() >= MOST_SLOW_FORMS && !forms.contains_key(&key) {
            forms.clear();
        }
        let form = forms.entry(key).or_default();
        // One that is planned anew has had the best plan there is.
        if form.rest == 0 {
            form.rest = FIRST_REST
                .saturating_mul(4_u64.saturating_pow(form.times))
                .min(LONGEST_REST);
            form.times = form.times.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_prepared_when_it_is_asked_again_and_the_least_recent_one_is_forgotten() {
        let mut kept = Kept::default();
        assert!(matches!(kept.find("first", Keep::WhileUsed), Found::NotYet));
        assert!(matches!(
            kept.find("first", Keep::WhileUsed),
            Found::Missing
        ));
        for n in 1..MOST_SEARCHES {
            kept.find(&n.to_string(), Keep::WhileUsed);
        }
        assert!(
            matches!(kept.find("first", Keep::WhileUsed), Found::Missing),
            "it was used lately and there was room"
        );
        kept.find("one more", Keep::WhileUsed);
        assert_eq!(kept.searches.len(), MOST_SEARCHES);
        assert!(
            matches!(kept.find("1", Keep::WhileUsed), Found::NotYet),
            "it was the least recent"
        );
        assert!(matches!(
            kept.find("first", Keep::WhileUsed),
            Found::Missing
        ));
    }

    #[test]
    fn fixed_texts_are_prepared_at_once_and_others_never() {
        let mut kept = Kept::default();
        assert!(matches!(kept.find("fixed", Keep::Always), Found::Missing));
        assert!(matches!(kept.find("other", Keep::Never), Found::NotYet));
        assert!(matches!(kept.find("other", Keep::Never), Found::NotYet));
    }

    #[test]
    fn a_slow_form_rests_longer_each_time() {
        let slow = SlowForms::default();
        slow.took("quick", SLOW / 2);
        assert!(slow.may_keep("quick"));
        for rest in [FIRST_REST, 4 * FIRST_REST, 16 * FIRST_REST] {
            slow.took("slow", SLOW);
            slow.took("slow", SLOW);
            let anew = (0..LONGEST_REST)
                .take_while(|_| !slow.may_keep("slow"))
                .count();
            assert_eq!(anew as u64, rest);
        }
        assert!(slow.may_keep("quick"));
        for n in 0..2 * MOST_SLOW_FORMS {
            slow.took(&n.to_string(), SLOW);
        }
        assert!(slow.forms.lock().unwrap().len() <= MOST_SLOW_FORMS);
    }
}
