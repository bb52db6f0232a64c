//! The vector index of the SQLite store: codes of the vectors, in memory.
//!
//! The database holds the full vectors. This crate finds those that are worth reading. A search compares the query with
//! one sign bit per dimension of each vector, and with four bits per dimension of those that may be near. Four bits
//! give the similarity within a known error, so a search reads few more vectors than it returns. At 384 dimensions a
//! vector takes 264 bytes of memory and about 20 nanoseconds of a search.
//!
//! - [`Index`] holds the codes of each owner and applies the changes of a committed transaction atomically.
//! - [`Precision`] is the form in which it holds a vector.
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

// How the modules work together:
//
// - Store: `rotation` spreads the values of a vector evenly over its dimensions. `codes` makes the code of the rotated
//   vector, whose levels of four bits are in `levels`. `segment` holds up to 1024 codes, and `index` the segments of
//   each owner.
// - Search: `query` prepares the query vector. `nearest` scans the segments: `kernel` compares sign bits, `levels`
//   estimates the similarity of those that may be near, and `allowed` skips entries that do not pass the filter.
// - `exact` computes with full vectors, for the caller and for `levels`.

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
