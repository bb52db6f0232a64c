//! The vector index of the SQLite store: codes of the vectors, in memory.
//!
//! The database holds the vectors. This crate finds those that are worth reading. A search compares the query with one
//! sign bit per dimension of each vector, and with four bits per dimension of those that may be near. Four bits tell
//! the similarity within a bound, so hardly more vectors must be read than were asked for. At 384 dimensions a vector
//! takes 264 bytes and about 20 nanoseconds.
//!
//! - [`Index`] holds the codes of each owner and applies the changes of a committed transaction atomically.
//! - [`Precision`] says what it keeps of a vector.
//! - [`Snapshot`] is one state of an owner's codes. A search runs on it while commits continue.
//! - [`Allowed`] holds the entries that pass a filter.
//!
//! ```
//! use context_vector::{Change, Index, Item, Precision};
//!
//! let index = Index::new(4, Precision::FourBits);
//! let code = index.code(&[0.5, -0.5, 0.5, 0.5]);
//! index.apply([Change::Add { owner: 1, item: Item { chunk: 1, entry: 7, code } }]);
//! let query = index.query(&[0.5, -0.5, 0.7, 0.1]);
//! let nearest = index.snapshot(1).nearest(&query, 10, None);
//! assert_eq!(nearest[0].entry, 7);
//! ```

mod allowed;
mod codes;
mod exact;
mod index;
mod kernel;
mod levels;
mod nearest;
mod query;
mod rotation;
mod segment;

pub use allowed::Allowed;
pub use codes::{Code, Signs, signs};
pub use exact::{decode, distance, encode, normalise};
pub use index::{Change, Index, Precision, Snapshot};
pub use nearest::Near;
pub use query::Query;
pub use segment::Item;
