//! The deadlines of calls, by kind of operation.
//!
//! The service ends a call at its deadline, or earlier after its own CONTEXT_REQUEST_TIMEOUT_SECONDS (60 by default). A
//! write that has begun still runs to its end. A read ends up to a second before the deadline, so that the
//! service's error, which says what to narrow, arrives before this gateway gives up.

use std::time::Duration;

/// Deadline of a read. It is shorter than the 60 seconds after which common clients give up on a call.
pub const READ_DEADLINE: Duration = Duration::from_secs(30);
/// Deadline of a single write.
pub const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// Deadline of a batch. It is longer than the default of the service on purpose: the service's own error then arrives
/// after 60 seconds, and a service with a larger CONTEXT_REQUEST_TIMEOUT_SECONDS may use the time.
pub const BATCH_DEADLINE: Duration = Duration::from_secs(120);
