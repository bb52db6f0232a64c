//! Who makes embeddings, reranks results and writes summaries.
//!
//! [`Embedder`], [`Reranker`] and [`Summarizer`] are what the engine asks; [`local`] answers inside the service with a
//! model from a directory, [`http`](crate::http) asks a server. A provider knows nothing of entries, owners or databases, and holds no text longer than a
//! call.

mod embedder;
mod error;
pub mod fetch;
pub mod http;
pub mod local;
mod reranker;
mod summarizer;
mod token_codes;

pub use embedder::{Embedder, Model, QueryVectors, Role, TextVectors};
pub use error::ProviderError;
pub use reranker::Reranker;
pub use summarizer::Summarizer;
pub use token_codes::{MalformedCodes, TokenCodes, TokenVectors};
