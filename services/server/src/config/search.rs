//! Settings of the searches and of their results.

use std::path::PathBuf;

use clap::Args;
use context_engine::Switch;
use context_model::Secret;

use super::value::{Url, boolean, fraction, number, path, provider, switch};

/// The rerankers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RerankProvider {
    /// A cross-encoder inside the service if one is configured, else late interaction
    Auto,
    /// A cross-encoder inside the service
    Local,
    /// Hugging Face text-embeddings-inference
    Tei,
    /// Cohere
    Cohere,
    /// Jina AI, or a compatible server
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

    /// The language of stemming.
    ///
    /// On SQLite, words of a language without a stemmer are compared unstemmed, and replies say `unstemmed`. On
    /// PostgreSQL any text search configuration of the server can be named; an unknown name stops the start.
    #[arg(
        long,
        env = "FTS_LANGUAGE",
        value_name = "NAME",
        default_value = "english",
        global = true
    )]
    pub fts_language: String,

    /// Maximum number of matches that a full-text search ranks, 100 to 1 000 000. The newest ones are ranked.
    ///
    /// The reply says when more entries matched.
    #[arg(long, env = "FTS_RANKING_CAP", value_name = "N", default_value = "10100", value_parser = number(100, 1_000_000), global = true)]
    pub fts_ranking_cap: u64,

    /// Hybrid search: true, false, or auto (on when full-text or semantic search works).
    #[arg(long, env = "ENABLE_HYBRID_SEARCH", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_hybrid_search: Switch,

    /// The constant k of reciprocal rank fusion, 1 to 1000. A larger k weighs ranks more evenly.
    #[arg(long, env = "HYBRID_RRF_K", value_name = "K", default_value = "60", value_parser = number(1, 1000), global = true)]
    pub hybrid_rrf_k: u64,

    /// Number of top ranks of each retriever that reciprocal rank fusion sums, 1 to 200.
    ///
    /// Larger values favour entries that both retrievers found over entries that one ranked high. An entry that is
    /// beyond this rank in both retrievers counts only with its better rank.
    #[arg(long, env = "HYBRID_RANK_WINDOW", value_name = "N", default_value = "15", value_parser = number(1, 200), global = true)]
    pub hybrid_rank_window: u64,

    /// Weight of the preceding entries' words in hybrid search, 0 to 1; 0 disables them.
    ///
    /// The weight is relative to the entry's own words, which weigh 1.
    #[arg(long, env = "HYBRID_CONTEXT_WEIGHT", value_name = "W", default_value = "0.4", value_parser = fraction, global = true)]
    pub hybrid_context_weight: f64,

    /// Number of preceding entries of the same thread in the context window of hybrid search, 0 to 8.
    ///
    /// A changed value makes the next start rebuild the full-text index.
    #[arg(long, env = "CONTEXT_NEIGHBOURS", value_name = "N", default_value = "2", value_parser = number(0, 8), global = true)]
    pub context_neighbours: u64,

    /// Minutes by which entries of the context window may be older than the entry itself, 1 to 100 000.
    ///
    /// A changed value makes the next start rebuild the full-text index.
    #[arg(long, env = "CONTEXT_GAP_MINUTES", value_name = "MIN", default_value = "30", value_parser = number(1, 100_000), global = true)]
    pub context_gap_minutes: u64,

    /// Semantic search: true, false, or auto (on when there is an embedding model).
    #[arg(long, env = "ENABLE_SEMANTIC_SEARCH", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_semantic_search: Switch,

    /// Reranking of full-text, semantic and hybrid results: true, false, or auto.
    ///
    /// auto is on when there is a reranker, or an embedding model inside the service. true without either is a warning,
    /// and results are not reranked.
    #[arg(long, env = "ENABLE_RERANKING", value_name = "SWITCH", default_value = "auto", value_parser = switch, global = true)]
    pub enable_reranking: Switch,

    /// The reranker: local, tei, cohere, jina, voyage, or auto.
    ///
    /// local is a cross-encoder inside the service. jina is Jina AI or a compatible server. auto is local when
    /// RERANK_MODEL_PATH is set, else late interaction with an embedding model inside the service. The best parts of
    /// the found entries are sent to the provider.
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

    /// The reranking provider's address without a path, if it is not the default one. tei has no default address.
    #[arg(long, env = "RERANK_URL", value_name = "URL", value_parser = provider, global = true)]
    pub rerank_url: Option<Url>,

    /// The reranking model's name. cohere, jina and voyage need it.
    #[arg(long, env = "RERANK_MODEL", value_name = "NAME", global = true)]
    pub rerank_model: Option<String>,

    /// The API key for the reranking provider.
    #[arg(
        long,
        env = "RERANK_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        global = true
    )]
    pub rerank_api_key: Option<Secret>,

    /// Milliseconds after which results are returned without reranking, 1 to 60 000.
    #[arg(long, env = "RERANK_TIMEOUT_MS", value_name = "MS", default_value = "2000", value_parser = number(1, 60_000), global = true)]
    pub rerank_timeout_ms: u64,

    /// Milliseconds for encoding candidates of reranking by late interaction, 1 to 60 000.
    ///
    /// The best candidates are encoded first, as many as this time allows. The scores of the others are estimated.
    /// Nothing is encoded for entries whose token vectors are in memory (RERANK_CACHE_MB) or stored
    /// (RERANK_STORE_TOKENS). A cross-encoder or a provider is limited by RERANK_TIMEOUT_MS alone. The same time
    /// is allowed for comparing sentences of long texts, to choose snippets.
    #[arg(long, env = "RERANK_BUDGET_MS", value_name = "MS", default_value = "100", value_parser = number(1, 60_000), global = true)]
    pub rerank_budget_ms: u64,

    /// Memory in megabytes for token vectors of texts that were stored or reranked recently, 0 to 65 536.
    ///
    /// Reranking by late interaction does not encode these texts again. 64 MB suffice for some 9 000 chat messages or
    /// 1 700 chunks of 200 tokens. The vectors of sentences that were compared for snippets are stored here too. The
    /// memory is empty after a start. 0 disables it.
    #[arg(long, env = "RERANK_CACHE_MB", value_name = "MB", default_value = "64", value_parser = number(0, 65_536), global = true)]
    pub rerank_cache_mb: u64,

    /// Weight of the preceding entry's words in reranking by late interaction, 0 to 1; 0 disables them.
    ///
    /// The weight is relative to the entry's own words, which weigh 1. An entry n steps back has the weight to the
    /// power of n, and is ignored below 0.1. Steps are counted in entry ids, so entries of other threads in between
    /// count too. Only candidates of the same thread within CONTEXT_GAP_MINUTES are included.
    #[arg(long, env = "RERANK_CONTEXT_WEIGHT", value_name = "W", default_value = "0.85", value_parser = fraction, global = true)]
    pub rerank_context_weight: f64,

    /// Whether token vectors are stored with each entry for reranking: true or false.
    ///
    /// Reranking then takes a few milliseconds, because only the query is encoded. On disk a token takes 200 bytes, a
    /// message of 37 tokens 8 kB. Entries that were stored before are encoded when a search reranks them, until their
    /// text changes. The setting has no effect with an embedding provider over HTTP, with a reranker, or when reranking
    /// is off.
    #[arg(long, env = "RERANK_STORE_TOKENS", value_name = "BOOL", value_parser = boolean, action = clap::ArgAction::Set, default_value = "false", global = true)]
    pub rerank_store_tokens: bool,

    /// Maximum number of characters of an entry's text in search results, 10 to 100 000. Longer texts are cut.
    #[arg(long, env = "SEARCH_TRUNCATION_LENGTH", value_name = "N", default_value = "300", value_parser = number(10, 100_000), global = true)]
    pub search_truncation_length: u64,
}
