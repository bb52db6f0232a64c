//! BERT on the CPU: sentence embeddings, token vectors and cross-encoder scores. Loads a directory in the layout of
//! sentence-transformers: `config.json`, `tokenizer.json`, `model.safetensors`, and, if they exist, `modules.json`,
//! `1_Pooling/config.json`, `sentence_bert_config.json` and `tokenizer_config.json`.
//!
//! - [`Model`] is the network. Nothing is padded: the linear layers see all tokens of a batch as one matrix, and
//!   attention runs for each sequence separately. A batch of short and long texts therefore costs as much as its
//!   tokens.
//! - [`Tokens`] turns texts into token ids and returns the position of each token in the text.
//!
//! It is not a general tensor library and has no gradients and no GPU support. All matrix products use one kernel,
//! which reads weights that were rearranged when they were loaded. The kernel and the other loops select AVX-512 or
//! AVX2 at run time.
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
pub use tokens::{Encoded, Tokens, VocabularyFit};
