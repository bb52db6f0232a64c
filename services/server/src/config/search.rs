//! What can be searched, and how results look.

use std::path::PathBuf;

use clap::Args;
use context_engine::Switch;

use super::value::{Secret, Url, boolean, fraction, number, path, switch};

/// Who reranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RerankProvider {
    /// A cross-encoder inside the service, when one is configured, else late interaction
    Auto,
    /// A cross-encoder inside the service
    Local,
    /// Hugging Face text-embeddings-inference
    Tei,
    /// Cohere
    Cohere,
    /// Jina AI, or a server that speaks like it
    Jina,
    /// Voyage AI
    Voyage,
}

/// Settings of search.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Search")]
pub struct Search {
    /// Full-text search: true, false, or auto (on).
    #[arg(long, env = "ENABLE_FTS", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_fts: Switch,

    /// The language of stemming. On SQLite, a language without a stemmer means that words are compared as they are; on
    /// PostgreSQL every text search configuration of the server will do, and another name stops the start.
    #[arg(
        long,
        env = "FTS_LANGUAGE",
        value_name = "NAME",
        default_value = "english",
        global = true
    )]
    pub fts_language: String,

    /// Newest matches that a ranked full-text search ranks at most, 100 to 1 000 000; the reply says when there were more.
    #[arg(long, env = "FTS_RANKING_CAP", value_name = "N", default_value = "10100", value_parser = number(100, 1_000_000), global = true)]
    pub fts_ranking_cap: u64,

    /// Full text and meaning together: true, false, or auto (on when at least one of the two works).
    #[arg(long, env = "ENABLE_HYBRID_SEARCH", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_hybrid_search: Switch,

    /// The constant k of reciprocal rank fusion, 1 to 1000. A larger one weighs ranks more evenly.
    #[arg(long, env = "HYBRID_RRF_K", value_name = "K", default_value = "60", value_parser = number(1, 1000), global = true)]
    pub hybrid_rrf_k: u64,

    /// The first places of each search that reciprocal rank fusion sums, 1 to 200. An entry beyond them in both counts with
    /// its better place alone. More weighs entries that both searches find somewhere over those that one finds early.
    #[arg(long, env = "HYBRID_RANK_WINDOW", value_name = "N", default_value = "15", value_parser = number(1, 200), global = true)]
    pub hybrid_rank_window: u64,

    /// What the words of the entries before an entry weigh when hybrid search looks for it, beside 1 for its own words, 0 to
    /// 1. 0: they are not looked at.
    #[arg(long, env = "HYBRID_CONTEXT_WEIGHT", value_name = "W", default_value = "0.4", value_parser = fraction, global = true)]
    pub hybrid_context_weight: f64,

    /// How many entries before an entry, in its thread, help hybrid search to find it, 0 to 8. Another number than before, or
    /// another gap, indexes everything anew at the start.
    #[arg(long, env = "CONTEXT_NEIGHBOURS", value_name = "N", default_value = "2", value_parser = number(0, 8), global = true)]
    pub context_neighbours: u64,

    /// How many minutes older than an entry they may be, 1 to 100 000.
    #[arg(long, env = "CONTEXT_GAP_MINUTES", value_name = "MIN", default_value = "30", value_parser = number(1, 100_000), global = true)]
    pub context_gap_minutes: u64,

    /// Search by meaning: true, false, or auto (on when there is an embedding model).
    #[arg(long, env = "ENABLE_SEMANTIC_SEARCH", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_semantic_search: Switch,

    /// Reranking of semantic and hybrid results: true, false, or auto (on when there is a reranker or an
    /// embedding model inside the service).
    #[arg(long, env = "ENABLE_RERANKING", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_reranking: Switch,

    /// Who reranks: local (a cross-encoder inside the service), tei, cohere, jina (or a server that speaks like it), voyage; or
    /// auto: local when RERANK_MODEL_PATH is set, else late interaction with the embedding model, where that runs inside the
    /// service. The best parts of the entries that are found go there.
    #[arg(
        long,
        env = "RERANK_PROVIDER",
        value_name = "NAME",
        default_value = "auto",
        hide_possible_values = true,
        ignore_case = true,
        global = true
    )]
    pub rerank_provider: RerankProvider,

    /// A directory with a cross-encoder (a BERT with one score) that reranks inside the service.
    #[arg(long, env = "RERANK_MODEL_PATH", value_name = "PATH", value_parser = path, global = true)]
    pub rerank_model_path: Option<PathBuf>,

    /// Where the reranking provider answers, when not at its usual address (tei has none), without a path.
    #[arg(long, env = "RERANK_URL", value_name = "URL", global = true)]
    pub rerank_url: Option<Url>,

    /// The reranking model's name; cohere, jina and voyage need it.
    #[arg(long, env = "RERANK_MODEL", value_name = "NAME", global = true)]
    pub rerank_model: Option<String>,

    /// The key of the reranking provider.
    #[arg(
        long,
        env = "RERANK_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    pub rerank_api_key: Option<Secret>,

    /// Milliseconds after which results are given without reranking, 1 to 60 000.
    #[arg(long, env = "RERANK_TIMEOUT_MS", value_name = "MS", default_value = "2000", value_parser = number(1, 60_000), global = true)]
    pub rerank_timeout_ms: u64,

    /// What the entry just before an entry, in its thread and within CONTEXT_GAP_MINUTES, lends it when reranking by late
    /// interaction looks for the words of the query, beside 1 for its own text, 0 to 1; for each further step back it counts
    /// once more. 0: each entry is judged by itself.
    #[arg(long, env = "RERANK_CONTEXT_WEIGHT", value_name = "W", default_value = "0.85", value_parser = fraction, global = true)]
    pub rerank_context_weight: f64,

    /// Whether entries are stored with the vectors of their tokens, so that reranking by late interaction need not encode them
    /// again: true or false. Reranking 50 chat messages then takes a twentieth of the time; it costs 200 bytes a token on disk,
    /// 8 kB for a message of 37. Entries that were stored without them are encoded again until their text changes. Without
    /// effect where an embedding provider gives no vectors of tokens, as those over HTTP do, and with RERANK_MODEL_PATH.
    #[arg(long, env = "RERANK_STORE_TOKENS", value_name = "BOOL", value_parser = boolean, action = clap::ArgAction::Set, default_value = "false", global = true)]
    pub rerank_store_tokens: bool,

    /// Characters of an entry's text in search results, 10 to 100 000; longer texts are cut there.
    #[arg(long, env = "SEARCH_TRUNCATION_LENGTH", value_name = "N", default_value = "300", value_parser = number(10, 100_000), global = true)]
    pub search_truncation_length: u64,
}
