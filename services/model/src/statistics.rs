use serde::{Deserialize, Serialize};

use crate::SourceCounts;

/// The counts of an owner's entries and the state of every feature.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Statistics {
    /// Number of entries.
    pub total_entries: i64,
    /// Number of entries by source.
    pub by_source: SourceCounts,
    /// Number of entries by content type.
    pub by_content_type: ContentTypeCounts,
    /// Number of images.
    pub total_images: i64,
    /// Number of different tags in use.
    pub unique_tags: i64,
    /// Size in megabytes (1024 × 1024 bytes): of the database or, if authentication is on, of the owner's data.
    pub database_size_mb: f64,
    /// Usage of the database connections; null if authentication is on.
    #[schema(required)]
    pub connection_metrics: Option<ConnectionMetrics>,
    /// Semantic search.
    pub semantic_search: SemanticSearchStatus,
    /// Full-text search.
    pub fts: FtsStatus,
    /// Hybrid search.
    pub hybrid_search: HybridSearchStatus,
    /// Splitting of long texts for embedding.
    pub chunking: ChunkingStatus,
    /// Reranking of search results.
    pub reranking: RerankingStatus,
    /// Generated summaries.
    pub summary_generation: SummaryStatus,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// Entries by content type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ContentTypeCounts {
    /// Number of entries without images.
    pub text: i64,
    /// Number of entries with images.
    pub multimodal: i64,
}

/// How the service uses its database connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ConnectionMetrics {
    /// The database: `sqlite` or `postgresql`.
    pub backend: String,
    /// Number of connections for reads.
    pub reader_connections: i64,
    /// Number of connections for writes.
    pub writer_connections: i64,
    /// Number of writes that are waiting now.
    pub queued_writes: i64,
    /// Number of writes that may wait before new ones are refused.
    pub write_queue_limit: i64,
    /// Number of transactions committed since the service started; on PostgreSQL the same as `writes`.
    pub commits: i64,
    /// Number of writes that succeeded since the service started. One that is repeated with its idempotency key counts
    /// again. On SQLite one transaction can hold several.
    pub writes: i64,
}

/// The state of semantic search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SemanticSearchStatus {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it works now.
    pub available: bool,
    /// Why it does not work; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The embedding model.
    #[schema(required)]
    pub model: Option<String>,
    /// The number of dimensions of its vectors.
    #[schema(required)]
    pub dimensions: Option<i64>,
    /// Number of entries with an embedding.
    pub embedding_count: i64,
    /// Percentage of entries with an embedding, 0 to 100.
    pub coverage_percentage: f64,
    /// Number of entries that wait for an embedding; null while no model is in use.
    #[schema(required)]
    pub pending_count: Option<i64>,
    /// Estimated seconds until all of them have an embedding; null while no embeddings are computed, because the
    /// provider or the database is unavailable, the provider fails on entries, or the service has just started.
    #[schema(required)]
    pub pending_seconds: Option<i64>,
}

/// The state of full-text search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FtsStatus {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it works now.
    pub available: bool,
    /// Why it does not work; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// FTS_LANGUAGE; on SQLite `unstemmed` if words of that language are not stemmed.
    pub language: String,
    /// The database: `sqlite` or `postgresql`.
    pub backend: String,
    /// The engine: `fts5` or `tsvector`.
    pub engine: String,
    /// Number of entries in the index.
    pub indexed_entries: i64,
    /// Percentage of entries in the index, 0 to 100.
    pub coverage_percentage: f64,
}

/// The state of hybrid search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridSearchStatus {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it works now, with full-text search, semantic search or both.
    pub available: bool,
    /// Why it does not work; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How long texts are split for embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChunkingStatus {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it works now.
    pub available: bool,
    /// Why it does not work; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Size of a chunk, in tokens.
    #[schema(required)]
    pub chunk_size: Option<i64>,
    /// Number of tokens that adjacent chunks share.
    #[schema(required)]
    pub chunk_overlap: Option<i64>,
    /// How the scores of an entry's chunks are combined: `max`.
    pub aggregation: String,
}

/// The state of reranking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RerankingStatus {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it works now.
    pub available: bool,
    /// Why it does not work; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reranking provider.
    #[schema(required)]
    pub provider: Option<String>,
    /// The reranking model.
    #[schema(required)]
    pub model: Option<String>,
}

/// The state of summary generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SummaryStatus {
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it works now.
    pub available: bool,
    /// Why it does not work; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The summary provider.
    #[schema(required)]
    pub provider: Option<String>,
    /// The summary model.
    #[schema(required)]
    pub model: Option<String>,
    /// Number of entries with a summary.
    pub summary_count: i64,
    /// Percentage of entries with a summary, 0 to 100.
    pub coverage_percentage: f64,
    /// Texts with fewer characters get no summary.
    pub min_content_length: i64,
}
