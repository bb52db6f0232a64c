//! Moves the data of all owners from one database to another. Rows of every table that is not derived are read in an
//! order that both databases have, in bounded batches, and written unchanged. Each database recreates derived data
//! (full text, case-folded copies, counts) itself.
//!
//! [`migrate`] copies from a [`Source`] to a [`Target`] and compares the two at the end. Each batch is committed
//! together with its position, the [`Mark`]. An interrupted migration therefore continues after the last batch, and a
//! service that finds the mark refuses to open the database.
//!
//! [`predecessor`] converts the rows of an mcp-context-server's database into ours.

mod endpoint;
mod examine;
mod losses;
mod mark;
mod observer;
pub mod predecessor;
mod row;
mod run;
mod table;
mod threads;
mod verify;

pub use endpoint::{ErasedOwner, Head, Source, Target, TransferError};
pub use examine::{Examination, Examined, Examiner, Finding, examine};
pub use losses::{Field, Loss, Losses};
pub use mark::Mark;
pub use observer::{Observer, Phase};
pub use row::{Cell, Row, Slots};
pub use run::{Report, migrate};
pub use table::{Column, Kind, Slot, TABLES, Table};
pub use threads::{ThreadPart, thread_parts};
pub use verify::Verified;

/// Maximum number of rows in a batch.
pub const BATCH_ROWS: usize = 500;
/// Number of bytes in a batch after which no further row is added.
pub const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// Number of owners that are read at a time.
pub const OWNERS_AT_ONCE: usize = 500;
/// The key of the [`Mark`] in the database's own settings.
pub const MARK: &str = "migration";

/// What a service reports about a database with an incomplete migration.
pub const INCOMPLETE_MIGRATION: &str = "is being filled by a migration that has not ended; run the same `context-service migrate-data` \
                              command again to finish it, or use another database";
