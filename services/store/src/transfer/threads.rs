//! The contribution of a batch of entries to the rows of their threads.

use std::collections::BTreeMap;

use super::row::Row;
use super::table::Table;
use crate::rules::thread::text_hash;

/// The contribution of a thread's entries to its row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPart {
    /// Number of entries.
    pub entries: i64,
    /// Entries with source `user`.
    pub user: i64,
    /// Entries with source `agent`.
    pub agent: i64,
    /// Entries with images.
    pub multimodal: i64,
    /// Creation time of the first entry.
    pub first_entry: i64,
    /// Creation time of the newest entry.
    pub last_entry: i64,
    /// Id of the newest entry.
    pub last_id: i64,
    /// Its source.
    pub last_source: String,
    /// The hash of its text.
    pub last_hash: i64,
}

/// The contributions of these rows of `entries`, by thread.
#[must_use]
pub fn thread_parts<'r>(table: &Table, rows: &'r [Row]) -> BTreeMap<&'r str, ThreadPart> {
    let mut threads: BTreeMap<&str, (ThreadPart, &Row)> = BTreeMap::new();
    for row in rows {
        let (created_at, id) = (row.int(table, "created_at"), row.int(table, "id"));
        let (part, newest) = threads
            .entry(row.text(table, "thread_id"))
            .or_insert_with(|| {
                let part = ThreadPart {
                    entries: 0,
                    user: 0,
                    agent: 0,
                    multimodal: 0,
                    first_entry: created_at,
                    last_entry: created_at,
                    last_id: id,
                    last_source: String::new(),
                    last_hash: 0,
                };
                (part, row)
            });
        part.entries += 1;
        part.user += i64::from(row.text(table, "source") == "user");
        part.agent += i64::from(row.text(table, "source") == "agent");
        part.multimodal += i64::from(row.int(table, "image_count") > 0);
        part.first_entry = part.first_entry.min(created_at);
        if (created_at, id) >= (part.last_entry, part.last_id) {
            (part.last_entry, part.last_id) = (created_at, id);
            *newest = row;
        }
    }
    let finish = |(name, (mut part, newest)): (&'r str, (ThreadPart, &'r Row))| {
        newest
            .text(table, "source")
            .clone_into(&mut part.last_source);
        part.last_hash = text_hash(newest.text(table, "text"));
        (name, part)
    };
    threads.into_iter().map(finish).collect()
}
