//! Semantic search on each available database, with a small network of random weights: equal texts have nearly equal
//! vectors, and no model has to be downloaded.

pub mod harness;
mod long_texts;
mod model_change;
mod provider;
mod reranking;
mod search;
mod token_vectors;
