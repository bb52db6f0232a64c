use std::path::PathBuf;

/// Why a model cannot be loaded or used. Each message is a sentence for whoever configured it.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file is missing or cannot be read.
    #[error("the model file {} cannot be read: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else than what is expected.
    #[error("the model file {} is not usable: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The network is of a kind this crate does not compute.
    #[error("this model cannot be run inside the service: {0}")]
    Unsupported(String),
    /// A text that the tokenizer refuses.
    #[error("the text cannot be tokenized: {0}")]
    Tokenizer(String),
    /// Tokens that do not belong to this model.
    #[error(
        "a token is not in the model's vocabulary, or a text has more tokens than the model reads"
    )]
    Tokens,
}
