//! Models that run inside the service.
//!
//! All inference of a model happens on one thread with a queue, which takes texts of several callers together and
//! queries before documents: two inferences at once would only take the processor from each other.

mod directory;
mod embedder;
mod reranker;
mod worker;

pub use directory::{LoadError, ModelDirectory};
pub use embedder::{ChunkWish, LocalEmbedder, Prefixes};
pub use reranker::LocalReranker;
