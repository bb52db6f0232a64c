//! Settings of the models that make embeddings and summaries.

use std::path::PathBuf;

use clap::Args;
use context_engine::Switch;
use context_model::Secret;

use super::value::{Url, number, ollama_host, path, provider, switch};

/// The providers of embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EmbeddingProvider {
    /// Chosen by the other settings and the downloaded models
    Auto,
    /// A model inside the service
    Local,
    /// Ollama
    Ollama,
    /// OpenAI, or a compatible server
    Openai,
    /// Azure OpenAI
    Azure,
    /// Hugging Face text-embeddings-inference
    Tei,
    /// Voyage AI
    Voyage,
    /// Cohere
    Cohere,
    /// No provider
    None,
}

/// The providers of summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum SummaryProvider {
    /// Ollama, when a model is named or summaries are required
    Auto,
    /// Ollama
    Ollama,
    /// OpenAI, or a compatible server
    Openai,
    /// Anthropic
    Anthropic,
    /// No provider
    None,
}

/// What a store does when the text cannot be embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFailure {
    /// The entry is stored, and embedded later
    Degrade,
    /// The call fails
    Fail,
}

/// Settings of models.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Models")]
pub struct Models {
    /// The embedding provider: local, ollama, openai, azure, tei, voyage, cohere, none, or auto.
    ///
    /// local is a model inside the service. openai is OpenAI or a compatible server. auto is local when
    /// EMBEDDING_MODEL_PATH is set. Else it is ollama when OLLAMA_HOST is set, when EMBEDDING_DIM is set to a number
    /// other than 384, or when EMBEDDING_MODEL names a model that `fetch-model` did not download. Otherwise it is the
    /// model that EMBEDDING_MODEL names, or the one that `fetch-model` downloaded last. Without such a model it is
    /// ollama when ENABLE_SEMANTIC_SEARCH is true, and else none.
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

    /// Ollama's address. Default: http://localhost:11434.
    #[arg(long, env = "OLLAMA_HOST", value_name = "URL", value_parser = ollama_host, global = true)]
    pub ollama_host: Option<Url>,

    /// The embedding provider's address, if it is not the default one.
    ///
    /// azure and tei have no default address. For openai the address ends in /v1; for the others it has no path.
    #[arg(long, env = "EMBEDDING_URL", value_name = "URL", value_parser = provider, global = true)]
    pub embedding_url: Option<Url>,

    /// The API key for the embedding provider.
    #[arg(
        long,
        env = "EMBEDDING_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    pub embedding_api_key: Option<Secret>,

    /// Timeout for one response of the embedding provider in seconds, 1 to 600.
    #[arg(long, env = "EMBEDDING_TIMEOUT_SECONDS", value_name = "S", default_value = "30", value_parser = number(1, 600), global = true)]
    pub embedding_timeout_seconds: u64,

    /// The embedding model's name; for azure the deployment's name.
    ///
    /// Default: embeddinggemma:latest with Ollama, text-embedding-3-small with OpenAI, the directory's name for a model
    /// inside the service. The name of a model that `fetch-model` downloaded selects that model.
    #[arg(long, env = "EMBEDDING_MODEL", value_name = "NAME", global = true)]
    pub embedding_model: Option<String>,

    /// The dimensions of an embedding, 1 to 4096. Default: the model's own.
    ///
    /// The service requests this number from a provider. A model inside the service always has its own
    /// number, whatever this setting is.
    #[arg(long, env = "EMBEDDING_DIM", value_name = "N", value_parser = number(1, 4096), global = true)]
    pub embedding_dim: Option<u64>,

    /// A directory with an embedding model that runs inside the service.
    ///
    /// It has the layout of sentence-transformers (config.json, tokenizer.json, model.safetensors). Without it, auto
    /// and local use a model in ~/.cache/context-service/models (below `$XDG_CACHE_HOME` if that is set): the one that
    /// EMBEDDING_MODEL names, or the one that `fetch-model` downloaded last.
    #[arg(long, env = "EMBEDDING_MODEL_PATH", value_name = "PATH", value_parser = path, global = true)]
    pub embedding_model_path: Option<PathBuf>,

    /// What a store does when the text cannot be embedded: degrade (embed it later) or fail.
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

    /// Text before every query that is embedded. Default: the prefix of the model inside the service; none with a
    /// provider.
    #[arg(
        long,
        env = "EMBEDDING_QUERY_PREFIX",
        value_name = "TEXT",
        global = true
    )]
    pub embedding_query_prefix: Option<String>,

    /// Text before every entry that is embedded. Default: the prefix of the model inside the service; none with a
    /// provider.
    #[arg(
        long,
        env = "EMBEDDING_DOCUMENT_PREFIX",
        value_name = "TEXT",
        global = true
    )]
    pub embedding_document_prefix: Option<String>,

    /// Tokens of a chunk, 16 to 100 000, at most as many as the model can read. Default: four fifths of what a model
    /// inside the service can read; 400 with a provider.
    #[arg(long, env = "CHUNK_SIZE", value_name = "N", value_parser = number(16, 100_000), global = true)]
    pub chunk_size: Option<u64>,

    /// Tokens that two adjacent chunks share, 0 to 50 000, at most half a chunk. Default: 12 % of a chunk.
    ///
    /// With a larger number the service warns at its start, and chunks share half a chunk.
    #[arg(long, env = "CHUNK_OVERLAP", value_name = "N", value_parser = number(0, 50_000), global = true)]
    pub chunk_overlap: Option<u64>,

    /// Generated summaries: true, false, or auto (on when SUMMARY_MODEL or SUMMARY_PROVIDER is set).
    #[arg(long, env = "ENABLE_SUMMARY_GENERATION", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_summary_generation: Switch,

    /// The summary provider: ollama, openai, anthropic, none, or auto.
    ///
    /// openai is OpenAI or a compatible server. auto is ollama when SUMMARY_MODEL is set or ENABLE_SUMMARY_GENERATION
    /// is true. The texts of entries are sent to the provider.
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

    /// The model that writes summaries. Default: qwen3:0.6b with Ollama.
    #[arg(long, env = "SUMMARY_MODEL", value_name = "NAME", global = true)]
    pub summary_model: Option<String>,

    /// The summary provider's address, if it is not the default one.
    ///
    /// The default address of ollama is OLLAMA_HOST. For openai the address ends in /v1; for the others it has no path.
    #[arg(long, env = "SUMMARY_URL", value_name = "URL", value_parser = provider, global = true)]
    pub summary_url: Option<Url>,

    /// The API key for the summary provider.
    #[arg(
        long,
        env = "SUMMARY_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    pub summary_api_key: Option<Secret>,

    /// Timeout for one summary in seconds, 1 to 3600.
    #[arg(long, env = "SUMMARY_TIMEOUT_SECONDS", value_name = "S", default_value = "120", value_parser = number(1, 3_600), global = true)]
    pub summary_timeout_seconds: u64,

    /// Maximum number of tokens of a summary, 1 to 100 000.
    #[arg(long, env = "SUMMARY_MAX_TOKENS", value_name = "N", default_value = "2000", value_parser = number(1, 100_000), global = true)]
    pub summary_max_tokens: u64,

    /// Minimum number of characters of a text that gets a summary, 0 to 1 000 000.
    #[arg(long, env = "SUMMARY_MIN_CONTENT_LENGTH", value_name = "N", default_value = "500", value_parser = number(0, 1_000_000), global = true)]
    pub summary_min_content_length: u64,
}
