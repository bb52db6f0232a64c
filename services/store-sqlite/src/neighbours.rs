//! The words of an entry's neighbours: what the column `ctx` of the full-text table holds.
//!
//! Only entries before an entry count, so storing one changes no other. When a text changes or goes, those after it are
//! indexed anew.

use std::collections::{HashMap, HashSet, VecDeque};

use context_store::Neighbourhood;
use context_text::{Analyzer, GIST_BYTES, gist};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::entries::substr;
use crate::schema::entries;

/// Threads whose newest entries are kept in memory, twice.
const KEPT_THREADS: usize = 512;

/// An entry as a neighbour of later ones.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    row_id: i64,
    created_at: i64,
    gist: String,
}

/// Gives each entry the words of its neighbours. Keeps the newest entries of the threads that are written to, so that
/// storing an entry neither reads nor analyzes the ones before it.
#[derive(Debug)]
pub(crate) struct Neighbours {
    neighbourhood: Neighbourhood,
    analyzer: Analyzer,
    /// The newest entries of threads, oldest first. What is not used for a while falls out of the older half.
    young: HashMap<(i64, String), VecDeque<Turn>>,
    old: HashMap<(i64, String), VecDeque<Turn>>,
}

impl Neighbours {
    pub fn new(neighbourhood: Neighbourhood, analyzer: Analyzer) -> Self {
        Self {
            neighbourhood,
            analyzer,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// How many entries back words reach.
    pub const fn reach(&self) -> u32 {
        self.neighbourhood.entries
    }

    /// What an entry's text contributes to those after it.
    pub fn gist(&self, text: &str) -> String {
        if self.reach() == 0 {
            String::new()
        } else {
            gist(text, &self.analyzer, Neighbourhood::WORDS)
        }
    }

    /// The words of the neighbours of a new entry. `newest` is the row before it in its thread, when there is one.
    pub fn of_new(
        &mut self,
        conn: &mut SqliteConnection,
        place: &Place<'_>,
        newest: Option<i64>,
        gist: impl FnOnce(&Self) -> String,
    ) -> QueryResult<String> {
        if self.reach() == 0 {
            return Ok(String::new());
        }
        let key = (place.owner, place.thread_id.to_owned());
        let kept = self.young.remove(&key).or_else(|| self.old.remove(&key));
        let mut turns = match (kept, newest) {
            (_, None) => VecDeque::new(),
            // Another newest one means that a request was undone, or that something was deleted.
            // One that is later than this place was stored with a wrong clock.
            (Some(turns), Some(newest))
                if turns.back().is_some_and(|turn| {
                    turn.row_id == newest && turn.created_at <= place.created_at
                }) =>
            {
                turns
            }
            (_, Some(_)) => self.read_before(conn, place)?,
        };
        let words = self.words(&turns, place.created_at);
        turns.push_back(Turn {
            row_id: place.row_id,
            created_at: place.created_at,
            gist: gist(self),
        });
        while turns.len() > self.reach() as usize {
            turns.pop_front();
        }
        if self.young.len() >= KEPT_THREADS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, turns);
        Ok(words)
    }

    /// Like [`Self::of_new`] for the next entry of a walk over all of them in their order.
    pub fn of_next(
        &mut self,
        conn: &mut SqliteConnection,
        place: &Place<'_>,
        text: &str,
    ) -> QueryResult<String> {
        let key = (place.owner, place.thread_id.to_owned());
        let newest = self
            .young
            .get(&key)
            .or_else(|| self.old.get(&key))
            .and_then(VecDeque::back)
            .map(|turn| turn.row_id);
        // A thread that was not met yet, or long ago, is looked up.
        self.of_new(conn, place, newest.or(Some(0)), |neighbours| {
            neighbours.gist(text)
        })
    }

    /// The words of the neighbours of an entry that may have entries after it.
    pub fn of_old(&self, conn: &mut SqliteConnection, place: &Place<'_>) -> QueryResult<String> {
        if self.reach() == 0 {
            return Ok(String::new());
        }
        Ok(self.words(&self.read_before(conn, place)?, place.created_at))
    }

    /// The rows after this place that may have its words, each with its time.
    pub fn after(
        &self,
        conn: &mut SqliteConnection,
        place: &Place<'_>,
    ) -> QueryResult<Vec<(i64, i64)>> {
        if self.reach() == 0 {
            return Ok(Vec::new());
        }
        let later = entries::created_at.gt(place.created_at);
        let beside = entries::created_at
            .eq(place.created_at)
            .and(entries::row_id.gt(place.row_id));
        entries::table
            .filter(
                entries::owner
                    .eq(place.owner)
                    .and(entries::thread_id.eq(place.thread_id)),
            )
            .filter(
                entries::created_at
                    .ge(place.created_at)
                    .and(later.or(beside)),
            )
            .order((entries::created_at, entries::row_id))
            .limit(i64::from(self.reach()))
            .select((entries::created_at, entries::row_id))
            .load(conn)
    }

    /// Forgets what was kept: something was undone, changed or deleted.
    pub fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// The entries before this place, oldest first.
    fn read_before(
        &self,
        conn: &mut SqliteConnection,
        place: &Place<'_>,
    ) -> QueryResult<VecDeque<Turn>> {
        let earlier = entries::created_at.lt(place.created_at);
        let beside = entries::created_at
            .eq(place.created_at)
            .and(entries::row_id.lt(place.row_id));
        let chars = i64::try_from(GIST_BYTES).unwrap_or(i64::MAX);
        let rows: Vec<(i64, i64, String)> = entries::table
            .filter(
                entries::owner
                    .eq(place.owner)
                    .and(entries::thread_id.eq(place.thread_id)),
            )
            .filter(
                entries::created_at
                    .le(place.created_at)
                    .and(earlier.or(beside)),
            )
            .filter(
                entries::created_at.ge(place
                    .created_at
                    .saturating_sub(self.neighbourhood.gap_micros())),
            )
            .order((entries::created_at.desc(), entries::row_id.desc()))
            .limit(i64::from(self.reach()))
            .select((
                entries::row_id,
                entries::created_at,
                substr(entries::text, 1, chars),
            ))
            .load(conn)?;
        let turn = |(row_id, created_at, text): (i64, i64, String)| Turn {
            row_id,
            created_at,
            gist: self.gist(&text),
        };
        Ok(rows.into_iter().rev().map(turn).collect())
    }

    /// The words of those that are near enough, each once.
    fn words(&self, turns: &VecDeque<Turn>, created_at: i64) -> String {
        let oldest = created_at.saturating_sub(self.neighbourhood.gap_micros());
        let near = turns.iter().filter(|turn| turn.created_at >= oldest);
        let mut seen = HashSet::new();
        let mut words = String::new();
        for word in near.flat_map(|turn| turn.gist.split(' ')) {
            if !word.is_empty() && seen.insert(word) {
                words.push_str(if words.is_empty() { "" } else { " " });
                words.push_str(word);
            }
        }
        words
    }
}

/// Where an entry stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'e> {
    pub owner: i64,
    pub thread_id: &'e str,
    pub created_at: i64,
    pub row_id: i64,
}
