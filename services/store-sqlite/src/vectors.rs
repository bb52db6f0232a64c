//! Vectors. `chunks` and `vectors` store them, `chunk_tokens` stores token vectors if enabled, and an in-memory index
//! finds the vectors worth reading.
//!
//! The index is derived data. At start it is loaded from the codes in `chunks`. Every commit that changes chunks
//! updates it before the commit is acknowledged. A search may see the index and the database in different states. The
//! database decides: an entry whose chunk is not found there is looked up by its id.

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
