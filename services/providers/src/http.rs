//! Models behind an HTTP API.

mod client;
mod dialect;
mod embedder;
mod retry;
mod summarizer;

pub(crate) use client::connector;
pub use client::{Access, Secret};
pub use dialect::Dialect;
pub use embedder::{HttpEmbedder, RemoteModel};
pub use summarizer::{HttpSummarizer, SummaryDialect};
