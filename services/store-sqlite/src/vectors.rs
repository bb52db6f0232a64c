//! Vectors. `chunks` and `vectors` store them, `chunk_tokens` stores token vectors if enabled, and an in-memory index
//! selects the vectors that a search reads. The vectors of one model are a set. One set is in use. While the operator
//! moves to another model, a second set is built.
//!
//! The index is derived data. At start it is loaded from the sign bits in `chunks`, or computed from the vectors. Every
//! commit that changes chunks updates it before the commit is acknowledged. A search may see the index and the database
//! in different states. The database is authoritative: if a chunk of the index is not in the database, the search reads
//! the entry's current chunks.
//!
//! | module | contents |
//! |---|---|
//! | `store` | the trait that the engine calls |
//! | `write` | the vectors of stored, changed and deleted entries |
//! | `search` | semantic search |
//! | `pending` | entries and artifacts without vectors |
//! | `tokens` | token vectors |
//! | `set` | the sets in memory, and a transaction's changes of them |
//! | `load` | fills the index of a set, at start and at a switch |
//! | `use_model` | selects the model at start |
//! | `moving` | moves to another model, and deletes old sets |

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
