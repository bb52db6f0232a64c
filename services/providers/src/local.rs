//! Models that run inside the service.
//!
//! All inference of a model runs on one thread with a queue. It combines the texts of several callers and processes
//! queries before documents. Two concurrent inferences would only compete for the processor.

mod directory;
mod embedder;
mod prefixes;
mod reranker;
mod worker;

pub use directory::{LoadError, ModelDirectory};
pub use embedder::{ChunkSettings, LocalEmbedder};
pub use prefixes::Prefixes;
pub use reranker::LocalReranker;
