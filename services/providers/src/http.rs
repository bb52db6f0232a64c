//! Models behind an HTTP API.

mod breaker;
mod client;
mod dialect;
mod embedder;
mod gather;
mod request;
mod reranker;
mod response;
mod retry;
mod summarizer;

pub use client::{Access, is_address};
pub use dialect::Dialect;
pub use embedder::{HttpEmbedder, RemoteModel};
pub use reranker::{HttpReranker, RerankDialect};
pub use summarizer::{HttpSummarizer, SummaryDialect};
