//! Vectors. `chunks` and `vectors` store them, `chunk_tokens` stores token vectors if enabled, and an in-memory index
//! selects the vectors that a search reads.
//!
//! The index is derived data. At start it is loaded from the codes in `chunks`. Every commit that changes chunks
//! updates it before the commit is acknowledged. A search may see the index and the database in different states. The
//! database is authoritative: if a chunk of the index is not in the database, the search reads the entry's current
//! chunks.

mod job;
mod load;
mod moving;
mod pending;
mod search;
mod set;
mod store;
mod tokens;
mod use_model;
mod write;

pub(crate) use load::load;
pub(crate) use set::{OpenVectors, Vectors};
pub(crate) use write::{insert, remove, replace};
