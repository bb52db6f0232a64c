//! Vectors: `chunks` and `vectors` hold them, and an index in memory finds those worth reading. `chunk_tokens` holds those
//! of their tokens, where they are kept.
//!
//! The index is derived: a start loads it from the codes in `chunks`, and every commit that changes chunks changes it
//! before anybody hears of the commit. A search may see the two in different states; the database's counts: an entry whose
//! chunk is not there is looked up by its own number.

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
