use std::path::PathBuf;

/// Why a model cannot be loaded or used. Each message is a sentence for the operator who configured the model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file is missing or cannot be read.
    #[error("the model file {} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A file does not have the expected content.
    #[error("the model file {} is not usable: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The network is of a kind that this crate does not implement.
    #[error("this model cannot be run inside the service: {0}")]
    Unsupported(String),
    /// The tokenizer rejected a text.
    #[error("the text cannot be tokenized: {0}")]
    Tokenizer(String),
    /// The tokens do not fit this model.
    #[error(
        "a token is not in the model's vocabulary, or a text has more tokens than the model reads"
    )]
    Tokens,
}
