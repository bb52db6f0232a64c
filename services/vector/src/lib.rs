//! The vector index of the SQLite store: one sign bit per dimension, in memory.
//!
//! The database holds the vectors. This crate finds the few hundred vectors that are worth reading. A search counts the
//! bits in which the query's code differs from each stored code and returns the nearest chunks. The caller rescores
//! them with [`distance`] on the full vectors. At 384 dimensions each vector takes 48 bytes and about two nanoseconds.
//!
//! - [`Index`] holds the codes of each owner and applies the changes of a committed transaction atomically.
//! - [`Snapshot`] is one state of an owner's codes. A search runs on it while commits continue.
//! - [`Allowed`] holds the entries that pass a filter.
//!
//! ```
//! use context_vector::{Change, Index, Item, code};
//!
//! let index = Index::new(4);
//! let vector = [0.5, -0.5, 0.5, 0.5];
//! index.apply([Change::Add { owner: 1, item: Item { chunk: 1, entry: 7, code: code(&vector) } }]);
//! let nearest = index.snapshot(1).nearest(&code(&[0.4, -0.6, 0.5, 0.5]), 10, None);
//! assert_eq!((nearest[0].entry, nearest[0].bits), (7, 0));
//! ```

mod allowed;
mod codes;
mod exact;
mod index;
mod kernel;
mod nearest;
mod segment;

pub use allowed::Allowed;
pub use codes::{Code, code};
pub use exact::{decode, distance, encode, normalise};
pub use index::{Change, Index, Snapshot};
pub use nearest::Near;
pub use segment::Item;
