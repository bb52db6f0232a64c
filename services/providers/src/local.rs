//! Models that run inside the service.
//!
//! One thread with a queue takes all work for a model. It combines the texts of several callers and processes queries
//! before documents. Its matrix products use up to four threads, so two concurrent inferences would only compete for
//! the processor.

mod directory;
mod embedder;
mod prefixes;
mod reranker;
mod worker;

pub use directory::{LoadError, ModelDirectory};
pub use embedder::{ChunkSettings, LocalEmbedder};
pub use prefixes::Prefixes;
pub use reranker::LocalReranker;
