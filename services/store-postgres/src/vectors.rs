//! Stores embeddings in the transaction of their entry or artifact, and searches them with pgvector.
//!
//! `embedding_sets` has a row for each embedding model. `chunks` has a vector for each part of the text of an entry or
//! artifact. `chunk_tokens` has the token vectors of chunks, if they are stored. The vectors of one model are a set.
//! One set is current. While the operator moves to another model, a second set is filled. A large set has an HNSW index.
//! Without pgvector there is no table `chunks`, and everything except semantic search works.
//!
//! | module | contents |
//! |---|---|
//! | `store` | the trait that the engine calls |
//! | `write` | the chunks of stored, changed and deleted entries and artifacts |
//! | `rank` | a search with the full-text retriever, the semantic retriever or both, on one state of the database |
//! | `search` | semantic search: the nearest entries or artifacts |
//! | `estimates` | the estimated number of entries or artifacts that satisfy a filter |
//! | `index` | the HNSW index |
//! | `pending` | entries and artifacts without vectors: one service claims them, embeds them and adds the vectors |
//! | `count` | the number of entries with vectors |
//! | `tokens` | reads token vectors |
//! | `sets` | the rows of `embedding_sets` |
//! | `use_model` | selects the model at startup |
//! | `moving` | the change to another model |
//! | `sweep` | deletes old sets and expired claims |
//! | `tables` | creates the tables |
//! | `types` | pgvector's type |
//! | `state` | the state in memory |

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
