//! Counting entries and telling the state of every feature.

use context_model::{
    ChunkingStatus, FtsStatus, Operation, RerankingStatus, Result, SemanticSearchStatus,
    Statistics, Violations,
};

use crate::{Caller, Engine, Switch, validate};

impl Engine {
    /// The owner's counts and the state of every feature. Cheap whatever the number of entries.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn get_statistics(
        &self,
        caller: &Caller,
        min_revision: Option<i64>,
    ) -> Result<Statistics> {
        caller.require(Operation::GetStatistics)?;
        let mut violations = Violations::default();
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let read = Self::read(min_revision);
        let counts = match caller.within() {
            Some(threads) => {
                self.store
                    .statistics_within(&caller.owner, threads.clone(), read)
                    .await
            }
            None => self.store.statistics(&caller.owner, read).await,
        };
        let counts = counts.map_err(crate::store_error)?;
        // How large the whole database is would tell about others.
        let bytes = match caller.within() {
            None if !caller.operator => self.owners_bytes(&caller.owner).await?,
            _ => counts.database_bytes,
        };
        let config = &self.config;
        let (semantic, chunking, reranking) =
            self.meaning_status(caller, counts.total_entries).await?;
        Ok(Statistics {
            total_entries: counts.total_entries,
            by_source: counts.by_source,
            by_content_type: counts.by_content_type,
            total_images: counts.total_images,
            unique_tags: counts.unique_tags,
            database_size_mb: (bytes as f64 / (1024.0 * 1024.0) * 100.0).round() / 100.0,
            connection_metrics: caller.operator.then_some(counts.connections),
            semantic_search: semantic,
            fts: FtsStatus {
                enabled: config.fts_on(),
                available: config.fts_on(),
                reason: (!config.fts_on()).then(|| "switched off by ENABLE_FTS=false".to_owned()),
                language: self.analyzer.language().name().to_owned(),
                backend: self.store.backend().to_owned(),
                engine: counts.fts_engine.to_owned(),
                indexed_entries: counts.indexed_entries,
                coverage_percentage: percentage(counts.indexed_entries, counts.total_entries),
            },
            chunking,
            reranking,
            summary_generation: self.summary_status(caller, counts.total_entries).await?,
            revision: counts.revision,
        })
    }

    /// The state of what needs embeddings.
    async fn meaning_status(
        &self,
        caller: &Caller,
        total_entries: i64,
    ) -> Result<(SemanticSearchStatus, ChunkingStatus, RerankingStatus)> {
        let meaning = self.meaning();
        let on = meaning.is_ok();
        let enabled = on || self.awaits_meaning();
        let reason = meaning.as_ref().err().cloned();
        let embedding_count = match &meaning {
            Ok((ready, vectors)) => match caller.within() {
                Some(threads) => {
                    vectors
                        .embedded_entries_within(&caller.owner, &ready.model, threads.clone())
                        .await
                }
                None => vectors.embedded_entries(&caller.owner, &ready.model).await,
            }
            .map_err(crate::store_error)?,
            Err(_) => 0,
        };
        let embedder = meaning
            .ok()
            .map(|(ready, _)| std::sync::Arc::clone(&ready.embedder));
        let model = embedder.as_ref().map(|embedder| embedder.model().clone());
        let sizes = embedder.as_ref().map(|embedder| embedder.chunk_sizes());
        let semantic = SemanticSearchStatus {
            enabled,
            available: on,
            reason: reason.clone(),
            model: model.as_ref().map(|model| model.name.clone()),
            dimensions: model.as_ref().map(|model| model.dimensions as i64),
            embedding_count,
            coverage_percentage: if on {
                percentage(embedding_count, total_entries)
            } else {
                0.0
            },
        };
        let chunking = ChunkingStatus {
            enabled: on,
            available: on,
            reason: reason.clone(),
            chunk_size: sizes.map(|sizes| sizes.target as i64),
            chunk_overlap: sizes.map(|sizes| sizes.overlap as i64),
            aggregation: "max".to_owned(),
        };
        let (reranks, reranker) = (self.reranked() > 0, self.reranker());
        let why_not = match self.config.reranking {
            Switch::False => Some("switched off by ENABLE_RERANKING=false".to_owned()),
            Switch::True | Switch::Auto => Some(reason.unwrap_or_else(|| {
                "this embedding provider gives no vectors of tokens; set RERANK_PROVIDER".to_owned()
            })),
        };
        let reranking = RerankingStatus {
            enabled: reranks,
            available: reranks,
            reason: why_not.filter(|_| !reranks),
            provider: reranks.then(|| {
                reranker
                    .as_ref()
                    .map_or("late_interaction", |reranker| reranker.provider())
                    .to_owned()
            }),
            model: match &reranker {
                Some(reranker) if reranks => Some(reranker.model().to_owned()),
                _ => model.filter(|_| reranks).map(|model| model.name),
            },
        };
        Ok((semantic, chunking, reranking))
    }
}

/// 0 to 100, two decimals; nothing to cover is fully covered.
pub(crate) fn percentage(part: i64, whole: i64) -> f64 {
    if whole == 0 {
        100.0
    } else {
        (part as f64 / whole as f64 * 10_000.0).round() / 100.0
    }
}
