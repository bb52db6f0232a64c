//! A thread's row: its counts, its first and last times, and its newest entry.

use context_model::{Source, SourceCounts, Thread, Timestamp};
use sha2::{Digest as _, Sha256};

use super::counts::EntryCounts;
use crate::clock;

/// The row of one thread. A thread without entries has no row, or one that is deleted in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadState {
    /// Name of the thread.
    pub thread_id: String,
    /// Number of entries.
    pub entry_count: i64,
    /// Entries of users.
    pub user_count: i64,
    /// Entries of agents.
    pub agent_count: i64,
    /// Entries with images.
    pub multimodal_count: i64,
    /// When its first entry was created, in microseconds.
    pub first_entry: i64,
    /// When its newest entry was created, in microseconds.
    pub last_entry: i64,
    /// Id of the newest entry: the last one stored, whatever its time.
    pub last_id: i64,
    /// Its source: `user` or `agent`.
    pub last_source: String,
    /// The [`text_hash`] of its text.
    pub last_hash: i64,
}

/// A hash of a text. A new text needs to be compared with the newest entry's text only when their hashes are equal.
#[must_use]
pub fn text_hash(text: &str) -> i64 {
    let digest = Sha256::digest(text.as_bytes());
    i64::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

/// What a thread's row needs to know of an entry that is added to the thread.
#[derive(Debug, Clone, Copy)]
pub struct NewestEntry {
    /// The entry's id.
    pub id: i64,
    /// Its source.
    pub source: Source,
    /// Number of images.
    pub image_count: i64,
    /// Creation time, in microseconds. See [`ThreadState::created_at`].
    pub created_at: i64,
    /// The [`text_hash`] of its text.
    pub hash: i64,
}

/// The first and the newest remaining entry of a thread after a deletion.
#[derive(Debug, Clone)]
pub struct ThreadEnds {
    /// Creation time of the first entry.
    pub first_entry: i64,
    /// Creation time of the newest entry.
    pub last_entry: i64,
    /// Id of the newest entry.
    pub last_id: i64,
    /// Its source.
    pub last_source: String,
    /// Its text. Only needed when another entry has become the newest.
    pub last_text: Option<String>,
}

impl ThreadState {
    /// A thread without entries.
    #[must_use]
    pub fn empty(thread_id: &str) -> Self {
        Self {
            thread_id: thread_id.to_owned(),
            entry_count: 0,
            user_count: 0,
            agent_count: 0,
            multimodal_count: 0,
            first_entry: 0,
            last_entry: 0,
            last_id: 0,
            last_source: String::new(),
            last_hash: 0,
        }
    }

    /// The id of the newest entry, if an entry with this source and [`text_hash`] may repeat it.
    #[must_use]
    pub fn may_be_repeated_by(&self, source: Source, hash: i64) -> Option<i64> {
        (self.entry_count > 0 && self.last_source == source.as_str() && self.last_hash == hash)
            .then_some(self.last_id)
    }

    /// The creation time of a new entry with this id. See [`clock::created_at`]. Services that share a database lease
    /// ids in blocks, so a later entry may have a lower id. Then `earliest` is one microsecond after the newest entry,
    /// so that sorting by time and then by id keeps the order in which the entries were stored.
    #[must_use]
    pub fn created_at(&self, now: Timestamp, id: i64) -> i64 {
        if self.entry_count == 0 {
            return now.micros();
        }
        let earliest = if id > self.last_id {
            self.last_entry
        } else {
            self.last_entry + 1
        };
        clock::created_at(now, earliest)
    }

    /// Adds an entry, which becomes the newest.
    pub fn add(&mut self, newest: &NewestEntry) {
        let NewestEntry {
            id,
            source,
            image_count,
            created_at,
            hash,
        } = *newest;
        if self.entry_count == 0 {
            self.first_entry = created_at;
        }
        self.count(EntryCounts::of_entry(source, image_count));
        self.first_entry = self.first_entry.min(created_at);
        self.last_entry = created_at;
        self.last_id = id;
        source.as_str().clone_into(&mut self.last_source);
        self.last_hash = hash;
    }

    /// Adds an entry. Unlike with [`add`](Self::add), entries may be added in any order: the newest entry is the one
    /// with the latest time, then the highest id.
    pub fn add_in_order(&mut self, entry: &NewestEntry) {
        let is_newest = (entry.created_at, entry.id) > (self.last_entry, self.last_id);
        if self.entry_count == 0 || is_newest {
            self.add(entry);
        } else {
            self.count(EntryCounts::of_entry(entry.source, entry.image_count));
            self.first_entry = self.first_entry.min(entry.created_at);
        }
    }

    /// Applies a change to the counts.
    pub fn count(&mut self, change: EntryCounts) {
        let EntryCounts {
            entries,
            user,
            agent,
            multimodal,
            images: _,
        } = change;
        self.entry_count += entries;
        self.user_count += user;
        self.agent_count += agent;
        self.multimodal_count += multimodal;
    }

    /// Updates the hash if the entry with the new text is the newest.
    pub fn text_changed(&mut self, id: i64, text: &str) {
        if self.last_id == id {
            self.last_hash = text_hash(text);
        }
    }

    /// Sets the first and the newest entry after a deletion.
    pub fn set_ends(&mut self, ends: ThreadEnds) {
        let ThreadEnds {
            first_entry,
            last_entry,
            last_id,
            last_source,
            last_text,
        } = ends;
        if let Some(text) = last_text.filter(|_| last_id != self.last_id) {
            self.last_hash = text_hash(&text);
        }
        self.first_entry = first_entry;
        self.last_entry = last_entry;
        self.last_id = last_id;
        self.last_source = last_source;
    }
}

impl From<ThreadState> for Thread {
    fn from(state: ThreadState) -> Self {
        let ThreadState {
            thread_id,
            entry_count,
            user_count,
            agent_count,
            multimodal_count,
            first_entry,
            last_entry,
            last_id,
            last_source: _,
            last_hash: _,
        } = state;
        Self {
            thread_id,
            entry_count,
            source_types: i64::from(user_count > 0) + i64::from(agent_count > 0),
            sources: SourceCounts {
                user: user_count,
                agent: agent_count,
            },
            multimodal_count,
            first_entry: Timestamp(first_entry),
            last_entry: Timestamp(last_entry),
            last_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: i64, created_at: i64, text: &str) -> NewestEntry {
        NewestEntry {
            id,
            source: Source::User,
            image_count: 0,
            created_at,
            hash: text_hash(text),
        }
    }

    #[test]
    fn the_last_entry_stored_is_the_newest_and_its_time_agrees_with_its_id() {
        let mut thread = ThreadState::empty("t");
        assert_eq!(thread.created_at(Timestamp(50), 9), 50);
        thread.add(&entry(9, 50, "a"));
        assert_eq!(
            thread.created_at(Timestamp(40), 10),
            50,
            "a clock that stepped back"
        );
        assert_eq!(
            thread.created_at(Timestamp(40), 3),
            51,
            "an id of another block"
        );
        thread.add(&entry(3, 51, "b"));
        assert_eq!(
            (thread.first_entry, thread.last_entry, thread.last_id),
            (50, 51, 3)
        );
        assert_eq!(
            thread.may_be_repeated_by(Source::User, text_hash("b")),
            Some(3)
        );
        assert_eq!(
            thread.may_be_repeated_by(Source::User, text_hash("a")),
            None
        );
        assert_eq!(
            thread.may_be_repeated_by(Source::Agent, text_hash("b")),
            None
        );
        assert_eq!(
            ThreadState::empty("t").may_be_repeated_by(Source::User, 0),
            None
        );
    }

    #[test]
    fn entries_in_any_order_give_the_same_ends() {
        let mut thread = ThreadState::empty("t");
        for (id, at, text) in [(2, 7, "b"), (3, 7, "c"), (1, 5, "a")] {
            thread.add_in_order(&entry(id, at, text));
        }
        let ends = (thread.first_entry, thread.last_entry, thread.last_id);
        assert_eq!((ends, thread.entry_count), ((5, 7, 3), 3));
        assert_eq!(thread.last_hash, text_hash("c"));
    }

    #[test]
    fn a_change_of_text_counts_for_the_newest_entry_alone() {
        let mut thread = ThreadState::empty("t");
        thread.add(&entry(1, 1, "a"));
        thread.add(&entry(2, 2, "b"));
        thread.text_changed(1, "c");
        assert_eq!(thread.last_hash, text_hash("b"));
        thread.text_changed(2, "c");
        assert_eq!(thread.last_hash, text_hash("c"));
        thread.count(-EntryCounts::of_entry(Source::User, 0));
        let ends = ThreadEnds {
            first_entry: 1,
            last_entry: 1,
            last_id: 1,
            last_source: "user".to_owned(),
            last_text: Some("a".to_owned()),
        };
        thread.set_ends(ends);
        assert_eq!((thread.entry_count, thread.last_id), (1, 1));
        assert_eq!(thread.last_hash, text_hash("a"));
    }
}
