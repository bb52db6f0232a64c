//! Stores embeddings in the transaction of their entry, and searches them with pgvector.
//!
//! `embedding_sets` has a row for each embedding model. `chunks` has a vector for each part of an entry's text.
//! `chunk_tokens` has the token vectors of chunks, if they are stored. The vectors of one model are a set. One set is
//! current. While the operator moves to another model, a second set is filled. A large set has an HNSW index. Without
//! pgvector there is no table `chunks`, and everything except semantic search works.
//!
//! | subject | modules |
//! |---|---|
//! | a write | `write`: the chunks of stored, changed and deleted entries |
//! | a search | `rank`: both retrievers on one state of the database; `search`: the nearest entries; `estimates`: the number of entries that satisfy a filter; `index`: the HNSW index |
//! | an entry without vectors | `pending`: one service claims it, embeds it and adds the vectors |
//! | a model | `sets`: the rows; `use_model`: the selection at startup; `moving`: the change to another model; `sweep`: deletes old sets and expired claims |
//! | the trait that the engine calls | `store` |
//! | a read of the number of embedded entries, and of token vectors | `count`, `tokens` |
//! | the tables, and pgvector's type | `tables`, `types` |
//! | the state in memory | `state` |

mod count;
mod estimates;
mod index;
mod moving;
mod pending;
mod rank;
mod search;
mod sets;
mod state;
mod store;
mod sweep;
mod tables;
mod tokens;
mod types;
mod use_model;
mod write;

pub(crate) use sets::{SetState, create as create_set, current as current_set, lock as lock_sets};
pub(crate) use state::VectorState;
pub(crate) use tables::create as create_tables;
pub(crate) use types::{Vector, VectorType};
pub(crate) use write::ChunkChanges;
