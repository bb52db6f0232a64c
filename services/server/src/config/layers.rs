//! Converts the settings to the configurations of the engine and of the databases.

use std::time::Duration;

use context_engine::{EmbeddingConfig, EngineConfig, RerankConfig, SearchConfig, SummaryConfig};
use context_store::ContextWindow;
use context_store_postgres::{Parts, SslMode, Target, TargetError};
use context_store_sqlite::{Started, VectorPrecision};

use super::{Auth, Config, OnFailure, VectorBits};

fn to_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Config {
    /// The configuration of the engine.
    #[must_use]
    pub fn engine(&self) -> EngineConfig {
        let search = &self.search;
        EngineConfig {
            auth: self.network.auth != Auth::Off,
            limits: self.limits.limits(),
            quotas: self.limits.quotas(),
            idempotency_bytes: self.limits.idempotency_mb.saturating_mul(1024 * 1024),
            search: SearchConfig {
                truncation_length: to_usize(search.search_truncation_length),
                fts: search.enable_fts,
                fts_language: search.fts_language.clone(),
                fts_ranking_cap: to_u32(search.fts_ranking_cap),
                hybrid: search.enable_hybrid_search,
                hybrid_rrf_k: to_u32(search.hybrid_rrf_k),
                hybrid_rank_window: to_u32(search.hybrid_rank_window),
                hybrid_context_weight: search.hybrid_context_weight,
            },
            rerank: RerankConfig {
                enabled: search.enable_reranking,
                timeout_ms: to_u32(search.rerank_timeout_ms),
                budget_ms: to_u32(search.rerank_budget_ms),
                cache_mb: to_u32(search.rerank_cache_mb),
                context_weight: search.rerank_context_weight,
                context_gap: self.context_window().gap,
                store_tokens: search.rerank_store_tokens,
            },
            embedding: EmbeddingConfig {
                enabled: search.enable_semantic_search,
                on_failure: match self.models.embedding_on_failure {
                    OnFailure::Degrade => context_engine::OnFailure::Degrade,
                    OnFailure::Fail => context_engine::OnFailure::Fail,
                },
            },
            summaries: SummaryConfig {
                enabled: self.models.enable_summary_generation,
                min_content_length: to_u32(self.models.summary_min_content_length),
            },
        }
    }

    /// The context window of hybrid search.
    fn context_window(&self) -> ContextWindow {
        let gap = Duration::from_secs(self.search.context_gap_minutes * 60);
        ContextWindow {
            entries: to_u32(self.search.context_neighbours),
            gap,
        }
    }

    /// The configuration of the SQLite database.
    #[must_use]
    pub fn sqlite(&self) -> context_store_sqlite::Config {
        let storage = &self.storage;
        let mut config = context_store_sqlite::Config::new(&storage.db_path);
        config.language = self.search.fts_language.clone();
        config.context_window = self.context_window();
        config.indexed_fields = storage.metadata_indexed_fields.0.clone();
        config.readers = storage.sqlite_readers.map_or(config.readers, to_usize);
        config.write_queue = to_usize(storage.sqlite_write_queue);
        config.busy_timeout = Duration::from_millis(storage.sqlite_busy_timeout_ms);
        config.vector_precision = match storage.sqlite_vector_bits {
            VectorBits::Four => VectorPrecision::FourBits,
            VectorBits::One => VectorPrecision::SignBits,
        };
        config.started = if self.auto_started {
            Started::Automatically
        } else {
            Started::ByHand
        };
        config
    }

    /// The configuration of the PostgreSQL database.
    ///
    /// # Errors
    /// What is wrong with the connection string. The message does not repeat it.
    pub fn postgres(&self) -> Result<context_store_postgres::Config, TargetError> {
        let settings = &self.postgres;
        let target = self.postgres_target()?;
        let target = if settings.postgresql_statement_cache {
            target
        } else {
            target.without_prepared_statements()
        };
        let mut config = context_store_postgres::Config::new(target);
        config.language = self.search.fts_language.clone();
        config.context_window = self.context_window();
        config.indexed_fields = self.storage.metadata_indexed_fields.0.clone();
        config.ef_search = to_u32(settings.postgresql_hnsw_ef_search);
        config.pool_size = to_usize(settings.postgresql_pool_size);
        config.queue = to_usize(settings.postgresql_queue);
        config.pool_timeout = Duration::from_millis(settings.postgresql_pool_timeout_ms);
        config.connect_timeout = Duration::from_millis(settings.postgresql_connect_timeout_ms);
        config.statement_timeout = Duration::from_millis(settings.postgresql_statement_timeout_ms);
        config.retries = to_u32(settings.postgresql_retries);
        config.breaker_failures = to_u32(settings.postgresql_circuit_breaker_failures);
        config.breaker_recovery =
            Duration::from_millis(settings.postgresql_circuit_breaker_recovery_ms);
        Ok(config)
    }

    fn postgres_target(&self) -> Result<Target, TargetError> {
        let settings = &self.postgres;
        match &settings.postgresql_connection_string {
            Some(string) => Target::parse_with(string.reveal(), settings.postgresql_ssl_mode),
            None => Ok(Target::from_parts(&Parts {
                host: &settings.postgresql_host,
                port: u16::try_from(settings.postgresql_port).unwrap_or(5432),
                user: &settings.postgresql_user,
                password: settings.postgresql_password.reveal(),
                database: &settings.postgresql_database,
                ssl_mode: settings.postgresql_ssl_mode.unwrap_or(SslMode::Prefer),
            })),
        }
    }
}
