//! Embeddings: written in the transaction of their entry, searched through pgvector.
//!
//! `embedding_sets` has a row for each embedding model, `chunks` a vector for each part of an entry's text, and
//! `chunk_tokens` the vectors of a chunk's tokens, where they are stored. One set is current; another may be filled
//! beside it while the owner of the service moves to another model. A large set has an HNSW index. pgvector may be
//! missing: then there is no table `chunks`, and everything but semantic search works.
//!
//! | to follow | read |
//! |---|---|
//! | a write | `write`: the chunks of stored, changed and deleted entries |
//! | a search | `rank`: both retrievers on one state of the database; `search`: the nearest entries; `estimates`: how many entries a filter leaves; `index`: the HNSW index |
//! | an entry without vectors | `pending`: claimed by one service, embedded there, added |
//! | a model | `sets`: the rows; `use_model`: the choice at the start; `moving`: the change to another; `sweep`: what is left of the one before |
//! | the rest | `store`: the trait that the engine calls; `state`: what a service remembers; `tables`: making them; `count`, `tokens`: two reads; `types`: pgvector's type |

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

pub(crate) use sets::{SetState, create as create_set, current as current_set};
pub(crate) use state::VectorState;
pub(crate) use tables::create as create_tables;
pub(crate) use types::{Vector, VectorType};
pub(crate) use write::ChunkChanges;
