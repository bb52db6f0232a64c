//! The context window of a reply: the words of the preceding entries, stored in column `ctx` of the full-text table.
//! Other entries have none there ([`ContextWindow`]).
//!
//! Only preceding entries count, so storing an entry changes no other entry. When an entry is deleted, or its text is
//! changed, the entries after it are reindexed. The same happens when a copy inserts an entry before others.

use std::collections::{HashMap, HashSet, VecDeque};

use context_model::Source;
use context_store::ContextWindow;
use context_text::{Analyzer, CONTEXT_KEYWORDS_BYTES, context_keywords};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::columns::LossyText;
use crate::entries::{source_or_user, substr};
use crate::schema::entries;

/// Maximum number of threads in each of the maps `young` and `old`.
const CACHED_THREADS: usize = 512;

/// An entry in the context window of later entries.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turn {
    row_id: i64,
    created_at: i64,
    source: Source,
    keywords: String,
}

/// Computes the context keywords of entries. Caches the newest entries of the threads that are being written, so that
/// storing an entry neither reads nor analyzes the preceding ones.
#[derive(Debug)]
pub(crate) struct ContextWindows {
    context_window: ContextWindow,
    analyzer: Analyzer,
    /// The newest entries of recently written threads, oldest first. When `young` is full it becomes `old`, and the
    /// threads of the previous `old` that were not written since are dropped.
    young: HashMap<(i64, String), VecDeque<Turn>>,
    old: HashMap<(i64, String), VecDeque<Turn>>,
}

impl ContextWindows {
    pub fn new(context_window: ContextWindow, analyzer: Analyzer) -> Self {
        Self {
            context_window,
            analyzer,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    /// Number of preceding entries in the context window.
    pub const fn reach(&self) -> u32 {
        self.context_window.entries
    }

    /// The context keywords of a text.
    pub fn keywords(&self, text: &str) -> String {
        if self.reach() == 0 {
            String::new()
        } else {
            context_keywords(text, &self.analyzer, ContextWindow::WORDS)
        }
    }

    /// The context keywords for a new entry. `newest` is the row of the previous entry in its thread, if there is one.
    pub fn of_new(
        &mut self,
        conn: &mut SqliteConnection,
        position: &EntryPosition<'_>,
        source: Source,
        newest: Option<i64>,
        keywords: impl FnOnce(&Self) -> String,
    ) -> QueryResult<String> {
        if self.reach() == 0 {
            return Ok(String::new());
        }
        let key = (position.owner, position.thread_id.to_owned());
        let cached = self.young.remove(&key).or_else(|| self.old.remove(&key));
        let mut turns = match (cached, newest) {
            (_, None) => VecDeque::new(),
            // A different newest row means that a request was undone or that an entry was deleted. A later time means
            // that the cached entry was stored with a wrong clock.
            (Some(turns), Some(newest))
                if turns.back().is_some_and(|turn| {
                    turn.row_id == newest && turn.created_at <= position.created_at
                }) =>
            {
                turns
            }
            (_, Some(_)) => self.read_before(conn, position)?,
        };
        let words = self.words(&turns, position.created_at, source);
        turns.push_back(Turn {
            row_id: position.row_id,
            created_at: position.created_at,
            source,
            keywords: keywords(self),
        });
        while turns.len() > self.reach() as usize {
            turns.pop_front();
        }
        if self.young.len() >= CACHED_THREADS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, turns);
        Ok(words)
    }

    /// Like [`Self::of_new`], for a scan over all entries in their order.
    pub fn of_next(
        &mut self,
        conn: &mut SqliteConnection,
        position: &EntryPosition<'_>,
        source: Source,
        text: &str,
    ) -> QueryResult<String> {
        let key = (position.owner, position.thread_id.to_owned());
        let newest = self
            .young
            .get(&key)
            .or_else(|| self.old.get(&key))
            .and_then(VecDeque::back)
            .map(|turn| turn.row_id);
        // A thread that is not in the cache is read from the database.
        let newest = newest.or(Some(0));
        self.of_new(conn, position, source, newest, |context_windows| {
            context_windows.keywords(text)
        })
    }

    /// The context keywords for an entry that may have later entries.
    pub fn of_old(
        &self,
        conn: &mut SqliteConnection,
        position: &EntryPosition<'_>,
        source: Source,
    ) -> QueryResult<String> {
        if self.reach() == 0 {
            return Ok(String::new());
        }
        let turns = self.read_before(conn, position)?;
        Ok(self.words(&turns, position.created_at, source))
    }

    /// The entries after this position whose context window may contain it: creation time and row id, oldest first.
    pub fn after(
        &self,
        conn: &mut SqliteConnection,
        position: &EntryPosition<'_>,
    ) -> QueryResult<Vec<(i64, i64)>> {
        if self.reach() == 0 {
            return Ok(Vec::new());
        }
        let later = entries::created_at.gt(position.created_at);
        let beside = entries::created_at
            .eq(position.created_at)
            .and(entries::row_id.gt(position.row_id));
        entries::table
            .filter(
                entries::owner
                    .eq(position.owner)
                    .and(entries::thread_id.eq(position.thread_id)),
            )
            .filter(
                entries::created_at
                    .ge(position.created_at)
                    .and(later.or(beside)),
            )
            .order((entries::created_at, entries::row_id))
            .limit(i64::from(self.reach()))
            .select((entries::created_at, entries::row_id))
            .load(conn)
    }

    /// Clears the cache, because a write was undone, or an entry was changed, deleted or inserted before others.
    pub fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// The entries before this position that are in its context window, oldest first.
    fn read_before(
        &self,
        conn: &mut SqliteConnection,
        position: &EntryPosition<'_>,
    ) -> QueryResult<VecDeque<Turn>> {
        let earlier = entries::created_at.lt(position.created_at);
        let beside = entries::created_at
            .eq(position.created_at)
            .and(entries::row_id.lt(position.row_id));
        let chars = i64::try_from(CONTEXT_KEYWORDS_BYTES).unwrap_or(i64::MAX);
        let rows: Vec<(i64, i64, LossyText, LossyText)> = entries::table
            .filter(
                entries::owner
                    .eq(position.owner)
                    .and(entries::thread_id.eq(position.thread_id)),
            )
            .filter(
                entries::created_at
                    .le(position.created_at)
                    .and(earlier.or(beside)),
            )
            .filter(
                entries::created_at.ge(position
                    .created_at
                    .saturating_sub(self.context_window.gap_micros())),
            )
            .order((entries::created_at.desc(), entries::row_id.desc()))
            .limit(i64::from(self.reach()))
            .select((
                entries::row_id,
                entries::created_at,
                entries::source,
                substr(entries::text, 1, chars),
            ))
            .load(conn)?;
        let turn = |(row_id, created_at, source, text): (i64, i64, LossyText, LossyText)| Turn {
            row_id,
            created_at,
            source: source_or_user(&String::from(source)),
            keywords: self.keywords(&String::from(text)),
        };
        Ok(rows.into_iter().rev().map(turn).collect())
    }

    /// The distinct keywords of the entries that are close enough in time to an entry of this time and source. Empty if
    /// that entry is no reply to the last of them.
    fn words(&self, turns: &VecDeque<Turn>, created_at: i64, source: Source) -> String {
        let oldest = created_at.saturating_sub(self.context_window.gap_micros());
        let is_near = |turn: &&Turn| turn.created_at >= oldest;
        let preceding = turns.back().filter(is_near);
        if preceding.is_none_or(|turn| turn.source == source) {
            return String::new();
        }
        let near = turns.iter().filter(is_near);
        let mut seen = HashSet::new();
        let mut words = String::new();
        for word in near.flat_map(|turn| turn.keywords.split(' ')) {
            if !word.is_empty() && seen.insert(word) {
                words.push_str(if words.is_empty() { "" } else { " " });
                words.push_str(word);
            }
        }
        words
    }
}

/// The position of an entry in its thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryPosition<'e> {
    pub owner: i64,
    pub thread_id: &'e str,
    pub created_at: i64,
    pub row_id: i64,
}
