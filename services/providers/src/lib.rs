//! Providers of embeddings, reranking and summaries.
//!
//! The engine uses the traits [`Embedder`], [`Reranker`] and [`Summarizer`]. [`local`] implements them with a model
//! that runs inside the service, [`http`](crate::http) with a model behind an HTTP API. A provider has no access to
//! entries, owners or databases, and holds a text only during a call.

mod embedder;
mod error;
pub mod fetch;
pub mod http;
pub mod local;
mod reranker;
mod summarizer;
mod token_codes;

pub use embedder::{Embedder, Model, QueryVectors, Reading, Role, TextVectors};
pub use error::ProviderError;
pub use reranker::Reranker;
pub use summarizer::Summarizer;
pub use token_codes::{MalformedCodes, TokenCodes, TokenVectors};
