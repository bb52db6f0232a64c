//! The read options of the store: the required revision and the maximum size of the reply. Also the memory that a read
//! took.

use std::time::Duration;

use context_model::Limits;
use context_store::{Read, StoredEntry};

/// How long a read on a standby waits for `min_revision`.
const REVISION_WAIT: Duration = Duration::from_secs(5);

/// A read of a state that includes this revision.
pub(crate) fn at(min_revision: Option<i64>) -> Read {
    Read {
        min_revision,
        wait: REVISION_WAIT,
        as_of: None,
    }
}

/// Maximum bytes of text and images in one reply: the largest message, minus what base64 and JSON add.
pub(crate) fn max_reply_bytes(limits: &Limits) -> u64 {
    let message = limits.max_message_bytes() as u64;
    (message - 16 * 1024 * 1024) * 10 / 14
}

/// Bytes that the read of these entries without images took from the caller's memory budget, at least.
pub(crate) fn taken_bytes<'e>(entries: impl IntoIterator<Item = &'e StoredEntry>) -> u64 {
    let of_entry = |entry: &StoredEntry| {
        let tags: usize = entry.tags.iter().map(String::len).sum();
        let texts = entry.text.len() + entry.summary.len() + entry.thread_id.len();
        (texts + tags + entry.metadata.as_str().len()) as u64
    };
    entries.into_iter().map(of_entry).sum()
}
