//! The deadlines of calls, by kind of operation.

use std::time::Duration;

/// Deadline of a read. It is shorter than the 60 seconds after which common clients give up on a call.
pub const READ_DEADLINE: Duration = Duration::from_secs(30);
/// Deadline of a single write.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// Deadline of a batch.
pub const BATCH_DEADLINE: Duration = Duration::from_secs(120);
