//! BERT on the CPU: sentence embeddings, token vectors and cross-encoder scores from a directory as
//! sentence-transformers lays it out (`config.json`, `tokenizer.json`, `model.safetensors`, `1_Pooling/config.json`).
//!
//! - [`Model`] is the network. Nothing is padded: all tokens of a batch stand in one matrix for the linear layers, and
//!   attention runs for each sequence alone, so that a batch of short and long texts costs what its tokens cost.
//! - [`Tokens`] turns texts into token ids and tells where in the text each token begins.
//!
//! It is no general tensor library, has no gradients and no GPU. The linear layers have a kernel of their own, which
//! reads weights that were arranged for it when they were loaded; attention is computed by the `gemm` crate. Both choose
//! AVX-512 or AVX2 at run time, as the loops here do.
//!
//! ```no_run
//! use context_bert::{Model, Tokens};
//!
//! let directory = std::path::Path::new("models/all-MiniLM-L6-v2");
//! let (model, tokens) = (Model::load(directory)?, Tokens::load(directory)?);
//! let vectors = model.embed(&[tokens.encode("which database did we choose?")?])?;
//! assert_eq!(vectors[0].len(), model.dimensions());
//! # Ok::<(), context_bert::ModelError>(())
//! ```

mod attention;
mod config;
mod error;
mod kernel;
mod layer;
mod linear;
mod math;
mod model;
mod tensors;
mod tokens;

pub use config::Pooling;
pub use error::ModelError;
pub use model::{Model, TextAndTokens};
pub use tokens::{Encoded, Tokens};
