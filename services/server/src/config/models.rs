//! Which models make embeddings and summaries.

use std::path::PathBuf;

use clap::Args;
use context_engine::Switch;

use super::value::{number, path, switch};

/// What a store does when no embedding can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFailure {
    /// The entry is stored, its embedding follows later
    Degrade,
    /// The call fails
    Fail,
}

/// Settings of models. They are read and checked; of them this version uses ENABLE_SUMMARY_GENERATION and
/// SUMMARY_MIN_CONTENT_LENGTH only, because it has no model providers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Models (no providers in this version)")]
pub struct Models {
    /// Who makes embeddings: auto, or the name of a provider.
    #[arg(long, env = "EMBEDDING_PROVIDER", value_name = "NAME", default_value = "auto", global = true)]
    pub embedding_provider: String,

    /// Where Ollama answers.
    #[arg(long, env = "OLLAMA_HOST", value_name = "URL", default_value = "http://localhost:11434", global = true)]
    pub ollama_host: String,

    /// The embedding model. Default with Ollama: embeddinggemma:latest.
    #[arg(long, env = "EMBEDDING_MODEL", value_name = "NAME", global = true)]
    pub embedding_model: Option<String>,

    /// The length of an embedding, 1 to 4096. Default with Ollama: 768.
    #[arg(long, env = "EMBEDDING_DIM", value_name = "N", value_parser = number(1, 4096), global = true)]
    pub embedding_dim: Option<u64>,

    /// A directory with a model for the provider inside the service.
    #[arg(long, env = "EMBEDDING_MODEL_PATH", value_name = "PATH", value_parser = path, global = true)]
    pub embedding_model_path: Option<PathBuf>,

    /// What a store does when no embedding can be made: degrade (embed later) or fail.
    #[arg(
        long,
        env = "EMBEDDING_ON_FAILURE",
        value_name = "WHAT",
        default_value = "degrade",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub embedding_on_failure: OnFailure,

    /// Text put before every query that is embedded. Default: what the model wants.
    #[arg(long, env = "EMBEDDING_QUERY_PREFIX", value_name = "TEXT", global = true)]
    pub embedding_query_prefix: Option<String>,

    /// Text put before every entry that is embedded. Default: what the model wants.
    #[arg(long, env = "EMBEDDING_DOCUMENT_PREFIX", value_name = "TEXT", global = true)]
    pub embedding_document_prefix: Option<String>,

    /// Tokens of a chunk, 16 to 100 000. Default: what the model takes.
    #[arg(long, env = "CHUNK_SIZE", value_name = "N", value_parser = number(16, 100_000), global = true)]
    pub chunk_size: Option<u64>,

    /// Tokens that neighbouring chunks share, 0 to 50 000. Default: from the model.
    #[arg(long, env = "CHUNK_OVERLAP", value_name = "N", value_parser = number(0, 50_000), global = true)]
    pub chunk_overlap: Option<u64>,

    /// Generated summaries: true, false, or auto (on when a model can write them; this version has none).
    #[arg(long, env = "ENABLE_SUMMARY_GENERATION", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_summary_generation: Switch,

    /// Tokens of a summary at most, 1 to 100 000.
    #[arg(long, env = "SUMMARY_MAX_TOKENS", value_name = "N", default_value = "2000", value_parser = number(1, 100_000), global = true)]
    pub summary_max_tokens: u64,

    /// Characters below which a text gets no summary, 0 to 1 000 000.
    #[arg(long, env = "SUMMARY_MIN_CONTENT_LENGTH", value_name = "N", default_value = "500", value_parser = number(0, 1_000_000), global = true)]
    pub summary_min_content_length: u64,
}
