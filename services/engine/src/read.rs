//! What a read gives the store: the revision it needs, and how large its reply may become.

use std::time::Duration;

use context_model::Limits;
use context_store::Read;

/// How long a read of a standby waits for `min_revision`.
const REVISION_WAIT: Duration = Duration::from_secs(5);

/// A read of a state that has this revision.
pub(crate) fn at(min_revision: Option<i64>) -> Read {
    Read {
        min_revision,
        wait: REVISION_WAIT,
        as_of: None,
    }
}

/// Bytes of text and images in one reply: what is left of the largest message after base64 and JSON.
pub(crate) fn max_reply_bytes(limits: &Limits) -> u64 {
    let message = limits.max_message_bytes() as u64;
    (message - 16 * 1024 * 1024) * 10 / 14
}
