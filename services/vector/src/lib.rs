//! The vector index of the embedded store: one sign bit for each dimension, in memory.
//!
//! The database holds the vectors themselves; this crate holds what finds the few hundred that are worth reading. A
//! search counts the bits in which the query's code differs from each stored one, keeps the nearest, and the caller
//! rescores those with [`distance`] on the exact vectors. At 384 dimensions that is 48 bytes and about two nanoseconds
//! for each vector.
//!
//! - [`Index`] keeps a set of codes for each owner and applies what a transaction committed, all of it at once.
//! - [`Snapshot`] is one state of an owner's codes; a search runs on it while commits go on.
//! - [`Allowed`] are the entries that a filter leaves.
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
