//! Who makes embeddings and reranks results.
//!
//! [`Embedder`] and [`Reranker`] are what the engine asks; [`local`] answers inside the service with a
//! model from a directory, [`http`](crate::http) asks a server. A provider knows nothing of entries, owners or databases, and holds no text longer than a
//! call.

mod embedder;
mod error;
pub mod fetch;
pub mod http;
pub mod local;
mod reranker;

pub use embedder::{Embedder, Model, Role, TokenVectors, best_similarities};
pub use error::ProviderError;
pub use reranker::Reranker;
