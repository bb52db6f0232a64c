//! The command line.

use std::path::PathBuf;

use clap::Parser;

use crate::backend::Transport;
use crate::set::Half;

/// Measures how many of the relevant entries each search finds.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// The entries and questions, as JSON lines; a directory stands for the sets in it, and several sets give a summary
    #[arg(value_name = "SET", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/data/long-chats.jsonl"))]
    pub sets: Vec<PathBuf>,
    /// Use one half of each set's questions: tune defaults on one, and check them once on the other
    #[arg(long, value_enum, default_value = "all")]
    pub half: Half,
    /// Print the summary also for one set
    #[arg(long)]
    pub summary: bool,
    /// Measure relevance instead: whether it tells answerable questions from questions about other topics
    #[arg(long)]
    pub relevance: bool,
    /// With --relevance: write the values from which each relevance is computed to a file, for fit_relevance.py
    #[arg(long, value_name = "FILE", requires = "relevance")]
    pub features: Option<PathBuf>,
    /// Measure evidence instead: whether results of long texts show the answer, for questions that name it
    #[arg(long, conflicts_with = "relevance")]
    pub evidence: bool,
    /// With --evidence: print the questions whose answer is not shown
    #[arg(long)]
    pub misses: bool,
    /// The directory of the embedding model
    #[arg(long, env = "EMBEDDING_MODEL_PATH")]
    pub model: Option<PathBuf>,
    /// Where to run the searches; the results are the same everywhere
    #[arg(long, value_enum, default_value = "in-process")]
    pub over: Transport,
    /// In the table of one set: skip searches with reranking, which take the longest
    #[arg(long)]
    pub without_reranking: bool,
    /// In the table of one set: run only the searches with this text in their name; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Same as the service's setting RERANK_BUDGET_MS, but high enough by default that every candidate is encoded
    #[arg(long, default_value_t = 60_000)]
    pub rerank_budget_ms: u32,
    /// Same as the service's setting RERANK_CACHE_MB; each search of the table begins with an empty cache
    #[arg(long, default_value_t = 64)]
    pub rerank_cache_mb: u32,
    /// Same as the service's setting RERANK_STORE_TOKENS
    #[arg(long)]
    pub store_tokens: bool,
    /// An empty PostgreSQL database to use instead of an SQLite file; the entries stay in it
    #[arg(long, value_name = "URL")]
    pub postgres: Option<String>,
    /// In the table of one set and in the summary: search all threads, even when a question names one
    #[arg(long)]
    pub all_threads: bool,
    /// Same as the service's setting
    #[arg(long, env = "HYBRID_RRF_K")]
    pub hybrid_rrf_k: Option<u32>,
    /// Same as the service's setting
    #[arg(long, env = "HYBRID_RANK_WINDOW")]
    pub hybrid_rank_window: Option<u32>,
    /// Same as the service's setting
    #[arg(long, env = "HYBRID_CONTEXT_WEIGHT")]
    pub hybrid_context_weight: Option<f64>,
    /// Same as the service's setting
    #[arg(long, env = "RERANK_CONTEXT_WEIGHT")]
    pub rerank_context_weight: Option<f64>,
    /// Same as the service's setting
    #[arg(long, env = "CONTEXT_NEIGHBOURS")]
    pub context_neighbours: Option<u32>,
    /// Same as the service's setting
    #[arg(long, env = "CONTEXT_GAP_MINUTES")]
    pub context_gap_minutes: Option<u64>,
}
