//! Configuration of the operations.

use std::time::Duration;

use context_model::Limits;

use crate::access::Quotas;

/// Whether a feature is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// Required: the service refuses to start if the feature cannot work. For reranking and summaries it only logs a
    /// warning.
    True,
    /// Off.
    False,
    /// On if the feature can work.
    #[default]
    Auto,
}

/// What a write does if its text cannot be embedded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The entry is stored and embedded later.
    #[default]
    Degrade,
    /// The call fails.
    Fail,
}

/// Configuration of the operations. Fields are named after the settings.
#[derive(Debug, Clone)]
pub struct EngineConfig {
    /// Whether callers need a key or token (`AUTH`).
    pub auth: bool,
    /// Limits on request sizes.
    pub limits: Limits,
    /// Quotas of each owner.
    pub quotas: Quotas,
    /// Quota of each owner's stored outcomes of requests with an idempotency key, in bytes
    /// (`CONTEXT_IDEMPOTENCY_MB`).
    pub idempotency_bytes: u64,
    /// The searches.
    pub search: SearchConfig,
    /// Reranking.
    pub rerank: RerankConfig,
    /// Embeddings.
    pub embedding: EmbeddingConfig,
    /// Summaries.
    pub summaries: SummaryConfig,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            auth: false,
            limits: Limits::default(),
            quotas: Quotas::default(),
            idempotency_bytes: 64 * 1024 * 1024,
            search: SearchConfig::default(),
            rerank: RerankConfig::default(),
            embedding: EmbeddingConfig::default(),
            summaries: SummaryConfig::default(),
        }
    }
}

/// How searches work.
#[derive(Debug, Clone)]
pub struct SearchConfig {
    /// Length of texts in search results, in characters (`SEARCH_TRUNCATION_LENGTH`).
    pub truncation_length: usize,
    /// `ENABLE_FTS`.
    pub fts: Switch,
    /// `FTS_LANGUAGE`.
    pub fts_language: String,
    /// Maximum number of matches that a full-text search ranks. The newest ones are ranked (`FTS_RANKING_CAP`).
    pub fts_ranking_cap: u32,
    /// `ENABLE_HYBRID_SEARCH`.
    pub hybrid: Switch,
    /// `HYBRID_RRF_K`, 1 to 1000.
    pub hybrid_rrf_k: u32,
    /// How many ranks of each retriever reciprocal rank fusion sums, 1 to 200
    /// (`HYBRID_RANK_WINDOW`).
    pub hybrid_rank_window: u32,
    /// Weight of the preceding entries' words in hybrid search, 0 to 1 (`HYBRID_CONTEXT_WEIGHT`).
    pub hybrid_context_weight: f64,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self {
            truncation_length: 300,
            fts: Switch::Auto,
            fts_language: "english".to_owned(),
            // Includes the deepest page of a ranked search: offset 10 000, 100 results.
            fts_ranking_cap: 10_100,
            hybrid: Switch::Auto,
            hybrid_rrf_k: 60,
            hybrid_rank_window: 15,
            hybrid_context_weight: 0.4,
        }
    }
}

impl SearchConfig {
    /// Whether full-text search is on; it can always work.
    #[must_use]
    pub fn fts_on(&self) -> bool {
        self.fts != Switch::False
    }
}

/// How search results are reranked.
#[derive(Debug, Clone, Copy)]
pub struct RerankConfig {
    /// `ENABLE_RERANKING`.
    pub enabled: Switch,
    /// Timeout in milliseconds, after which results are returned without reranking
    /// (`RERANK_TIMEOUT_MS`).
    pub timeout_ms: u32,
    /// Time in milliseconds for encoding candidates for late interaction (`RERANK_BUDGET_MS`). The scores of candidates
    /// that are not encoded within this time are estimated.
    pub budget_ms: u32,
    /// Memory in megabytes for token vectors of recent texts and vectors of recent sentences, which are not encoded
    /// again (`RERANK_CACHE_MB`). 0 disables the cache.
    pub cache_mb: u32,
    /// Weight of the preceding entry of the thread in an entry's late-interaction score, 0 to 1
    /// (`RERANK_CONTEXT_WEIGHT`). Each further step back multiplies it once more; a step is one entry id, whatever its
    /// thread. Only entries among the candidates of reranking count.
    pub context_weight: f64,
    /// Preceding entries count if they are at most this much older (`CONTEXT_GAP_MINUTES`).
    pub context_gap: Duration,
    /// Whether entries' token vectors are stored for reranking (`RERANK_STORE_TOKENS`).
    pub store_tokens: bool,
}

impl Default for RerankConfig {
    fn default() -> Self {
        Self {
            enabled: Switch::Auto,
            timeout_ms: 2_000,
            budget_ms: 100,
            cache_mb: 64,
            context_weight: 0.85,
            context_gap: Duration::from_secs(30 * 60),
            store_tokens: false,
        }
    }
}

/// How entries are embedded.
#[derive(Debug, Clone, Copy, Default)]
pub struct EmbeddingConfig {
    /// `ENABLE_SEMANTIC_SEARCH`.
    pub enabled: Switch,
    /// `EMBEDDING_ON_FAILURE`.
    pub on_failure: OnFailure,
}

/// How entries are summarized.
#[derive(Debug, Clone, Copy)]
pub struct SummaryConfig {
    /// `ENABLE_SUMMARY_GENERATION`.
    pub enabled: Switch,
    /// Shortest text that gets a summary, in characters (`SUMMARY_MIN_CONTENT_LENGTH`).
    pub min_content_length: u32,
}

impl Default for SummaryConfig {
    fn default() -> Self {
        Self {
            enabled: Switch::Auto,
            min_content_length: 500,
        }
    }
}

/// A switch requires a feature that the configuration rules out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting}=true, but {missing}; set it to auto or false")]
pub struct StartError {
    /// The setting.
    pub setting: &'static str,
    /// What is missing.
    pub missing: &'static str,
}

impl EngineConfig {
    /// Checks that no switch requires a feature that this configuration rules out.
    ///
    /// # Errors
    /// Names the switch and what is missing.
    pub fn check(&self) -> Result<(), StartError> {
        if self.search.hybrid == Switch::True
            && self.search.fts == Switch::False
            && self.embedding.enabled == Switch::False
        {
            return Err(StartError {
                setting: "ENABLE_HYBRID_SEARCH",
                missing: "full-text search and semantic search are off (ENABLE_FTS=false, ENABLE_SEMANTIC_SEARCH=false)",
            });
        }
        Ok(())
    }
}
