//! Vectors: `chunks` holds them, in the transaction that writes the entry. `chunk_tokens` holds those of their tokens, where
//! they are kept.
//!
//! A set of many vectors has an HNSW index over their halfvec form, made beside the running writes. A search goes
//! through it, and measures what it finds with the vectors themselves; where a filter leaves few entries it measures
//! all of theirs instead. pgvector may be missing: then there is no table, and everything else works.

mod asked;
mod estimates;
mod index;
mod moving;
mod pending;
mod rank;
mod search;
mod sight;
mod store;
mod tables;
mod tokens;
mod types;
mod use_model;
mod write;

pub(crate) use tables::{Vectors, make as make_tables};
pub(crate) use types::{Vector, VectorType};
pub(crate) use use_model::{current as current_set, make as make_set};
pub(crate) use write::ToEmbed;
