//! Moving everything from one database to another: rows of every table in an order both databases have, read in
//! bounded batches and written as they are. What a database derives from them (full text, folded copies, counts) it makes
//! itself.
//!
//! [`migrate`] copies from a [`Source`] to a [`Target`] and compares the two at the end. Each batch is committed together
//! with a note of how far it came, the [`Mark`], so that an interrupted migration goes on after the last batch, and a
//! service finds the note and keeps its hands off.
//!
//! [`predecessor`] makes the rows of an mcp-context-server's database into ours.

mod examine;
mod mark;
mod observer;
mod place;
pub mod predecessor;
mod row;
mod run;
mod table;
mod threads;
mod verify;

pub use examine::{Examination, Examined, Examiner, Finding, examine};
pub use mark::Mark;
pub use observer::{Observer, Phase};
pub use place::{Head, Source, Target, TransferError};
pub use row::{Cell, Row, Slots};
pub use run::{Report, migrate};
pub use table::{Column, Kind, Slot, TABLES, Table};
pub use threads::{ThreadPart, thread_parts};
pub use verify::Verified;

/// Rows of one batch, at most.
pub const BATCH_ROWS: usize = 500;
/// Bytes of one batch after which no further row is added to it.
pub const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Owners that are read at a time.
pub const OWNERS_AT_ONCE: usize = 500;
/// The key, among a database's own settings, of the note that it is being filled.
pub const MARK: &str = "migration";

/// What a service says of a database that is being filled.
pub const HALF_MOVED: &str = "is being filled by a migration that has not ended; run the same `context-service migrate-data` \
                              command again to finish it, or use another database";
