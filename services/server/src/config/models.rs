//! Which models make embeddings and summaries.

use std::path::PathBuf;

use clap::Args;
use context_engine::Switch;

use super::value::{Secret, Url, number, path, switch};

/// Who makes embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EmbeddingProvider {
    /// The first that works
    Auto,
    /// A model inside the service
    Local,
    /// Ollama
    Ollama,
    /// OpenAI, or a server that speaks like it
    Openai,
    /// Azure OpenAI
    Azure,
    /// Hugging Face text-embeddings-inference
    Tei,
    /// Voyage AI
    Voyage,
    /// Cohere
    Cohere,
    /// Nobody
    None,
}

/// Who writes summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SummaryProvider {
    /// Ollama, when a model is named
    Auto,
    /// Ollama
    Ollama,
    /// OpenAI, or a server that speaks like it
    Openai,
    /// Anthropic
    Anthropic,
    /// Nobody
    None,
}

/// What a store does when no embedding can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFailure {
    /// The entry is stored, its embedding follows later
    Degrade,
    /// The call fails
    Fail,
}

/// Settings of models.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Models")]
pub struct Models {
    /// Who makes embeddings: local (a model inside the service), ollama, openai (or a server that speaks like it), azure, tei,
    /// voyage, cohere, none; or auto: a model inside the service when there is one, else Ollama when OLLAMA_HOST or
    /// EMBEDDING_MODEL is set or ENABLE_SEMANTIC_SEARCH is true, else none.
    #[arg(
        long,
        env = "EMBEDDING_PROVIDER",
        value_name = "NAME",
        default_value = "auto",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub embedding_provider: EmbeddingProvider,

    /// Where Ollama answers. Default: http://localhost:11434.
    #[arg(long, env = "OLLAMA_HOST", value_name = "URL", global = true)]
    pub ollama_host: Option<Url>,

    /// Where the embedding provider answers, for those without an address of their own (azure, tei) or another one than
    /// usual: for openai the address up to and with /v1, for the others without a path.
    #[arg(long, env = "EMBEDDING_URL", value_name = "URL", global = true)]
    pub embedding_url: Option<Url>,

    /// The key of the embedding provider.
    #[arg(
        long,
        env = "EMBEDDING_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    pub embedding_api_key: Option<Secret>,

    /// Seconds an embedding provider may take for one answer, 1 to 600.
    #[arg(long, env = "EMBEDDING_TIMEOUT_SECONDS", value_name = "S", default_value = "30", value_parser = number(1, 600), global = true)]
    pub embedding_timeout_seconds: u64,

    /// The embedding model's name; for azure the deployment's. Default: embeddinggemma:latest with Ollama,
    /// text-embedding-3-small with OpenAI, the directory's name for a model inside the service.
    #[arg(long, env = "EMBEDDING_MODEL", value_name = "NAME", global = true)]
    pub embedding_model: Option<String>,

    /// The length of an embedding, 1 to 4096, to ask a provider for. Default: the model's own. A model inside the service
    /// has only its own.
    #[arg(long, env = "EMBEDDING_DIM", value_name = "N", value_parser = number(1, 4096), global = true)]
    pub embedding_dim: Option<u64>,

    /// A directory with a model that runs inside the service, laid out as sentence-transformers does it (config.json,
    /// tokenizer.json, model.safetensors). Default: all-MiniLM-L6-v2 in ~/.cache/context-service/models, if it is there.
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
    #[arg(
        long,
        env = "EMBEDDING_QUERY_PREFIX",
        value_name = "TEXT",
        global = true
    )]
    pub embedding_query_prefix: Option<String>,

    /// Text put before every entry that is embedded. Default: what the model wants.
    #[arg(
        long,
        env = "EMBEDDING_DOCUMENT_PREFIX",
        value_name = "TEXT",
        global = true
    )]
    pub embedding_document_prefix: Option<String>,

    /// Tokens of a chunk, 16 to 100 000; never more than the model reads. Default: four fifths of what it reads.
    #[arg(long, env = "CHUNK_SIZE", value_name = "N", value_parser = number(16, 100_000), global = true)]
    pub chunk_size: Option<u64>,

    /// Tokens that neighbouring chunks share, 0 to 50 000; at most half a chunk. Default: 12 % of a chunk.
    #[arg(long, env = "CHUNK_OVERLAP", value_name = "N", value_parser = number(0, 50_000), global = true)]
    pub chunk_overlap: Option<u64>,

    /// Generated summaries: true, false, or auto (on when SUMMARY_MODEL is set).
    #[arg(long, env = "ENABLE_SUMMARY_GENERATION", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_summary_generation: Switch,

    /// Who writes summaries: ollama, openai (or a server that speaks like it), anthropic, none; or auto: Ollama when
    /// SUMMARY_MODEL is set. The texts of entries go there.
    #[arg(
        long,
        env = "SUMMARY_PROVIDER",
        value_name = "NAME",
        default_value = "auto",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub summary_provider: SummaryProvider,

    /// The model that writes summaries.
    #[arg(long, env = "SUMMARY_MODEL", value_name = "NAME", global = true)]
    pub summary_model: Option<String>,

    /// Where it answers, when not at the provider's usual address (for ollama OLLAMA_HOST): for openai the address up to and
    /// with /v1, for the others without a path.
    #[arg(long, env = "SUMMARY_URL", value_name = "URL", global = true)]
    pub summary_url: Option<Url>,

    /// The key of the provider of summaries.
    #[arg(
        long,
        env = "SUMMARY_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    pub summary_api_key: Option<Secret>,

    /// Seconds a summary may take, 1 to 3600.
    #[arg(long, env = "SUMMARY_TIMEOUT_SECONDS", value_name = "S", default_value = "120", value_parser = number(1, 3_600), global = true)]
    pub summary_timeout_seconds: u64,

    /// Tokens of a summary at most, 1 to 100 000.
    #[arg(long, env = "SUMMARY_MAX_TOKENS", value_name = "N", default_value = "2000", value_parser = number(1, 100_000), global = true)]
    pub summary_max_tokens: u64,

    /// Characters below which a text gets no summary, 0 to 1 000 000.
    #[arg(long, env = "SUMMARY_MIN_CONTENT_LENGTH", value_name = "N", default_value = "500", value_parser = number(0, 1_000_000), global = true)]
    pub summary_min_content_length: u64,
}
