//! How long a request may take, by kind of operation.

use std::time::Duration;

/// How long a read may take. Below the 60 seconds after which common clients give up on a call.
pub const READ_DEADLINE: Duration = Duration::from_secs(30);
/// How long a single write may take.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// How long a batch may take.
pub const BATCH_DEADLINE: Duration = Duration::from_secs(120);
