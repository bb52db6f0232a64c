//! The state of the searches for `get_statistics`.

use std::sync::Arc;

use context_model::{
    ChunkingStatus, FtsStatus, HybridSearchStatus, RerankingStatus, Result, SemanticSearchStatus,
};
use context_store::StoreStatistics;
use context_text::Language;

use super::Retrieval;
use super::embedding::NO_TOKEN_VECTORS;
use crate::access::Caller;
use crate::config::Switch;
use crate::coverage::percentage;
use crate::error::store_error;

impl Retrieval {
    /// The language of full-text search, as replies name it: the configured one, or `unstemmed` if the database does
    /// not know it.
    pub(super) fn language(&self) -> &str {
        match self.analyzer.language() {
            // PostgreSQL does not start with a name that it does not know. Its server stems the languages that we
            // cannot stem.
            Language::Unstemmed if self.store.backend() == "postgresql" => {
                self.search.fts_language.trim()
            }
            language => language.name(),
        }
    }

    /// The state of full-text search, with its part of the counts.
    pub(crate) fn full_text_status(&self, counts: &StoreStatistics) -> FtsStatus {
        let is_on = self.search.fts_on();
        FtsStatus {
            enabled: is_on,
            available: is_on,
            reason: (!is_on).then(|| "switched off by ENABLE_FTS=false".to_owned()),
            language: self.language().to_owned(),
            backend: self.store.backend().to_owned(),
            engine: counts.fts_engine.to_owned(),
            indexed_entries: counts.indexed_entries,
            coverage_percentage: percentage(counts.indexed_entries, counts.total_entries),
        }
    }

    /// The state of hybrid search, which needs full-text search or semantic search.
    pub(crate) fn hybrid_status(
        &self,
        fts: &FtsStatus,
        semantic: &SemanticSearchStatus,
    ) -> HybridSearchStatus {
        let switched_off = self.search.hybrid == Switch::False;
        let available = !switched_off && (fts.available || semantic.available);
        let reason = if switched_off {
            Some("switched off by ENABLE_HYBRID_SEARCH=false".to_owned())
        } else if available {
            None
        } else {
            let reasons = [&fts.reason, &semantic.reason].into_iter().flatten();
            let reasons: Vec<&str> = reasons.map(String::as_str).collect();
            Some(format!("it has no search to run: {}", reasons.join("; ")))
        };
        HybridSearchStatus {
            enabled: !switched_off && (fts.enabled || semantic.enabled),
            available,
            reason,
        }
    }

    /// Number of entries and artifacts of all owners that wait for their vectors, and the estimated seconds until they
    /// have them. `None` while no model is in use.
    ///
    /// # Errors
    /// The store's errors.
    pub async fn waiting_entries(&self) -> Result<Option<(i64, Option<i64>)>> {
        let Ok(active) = self.embeddings.model() else {
            return Ok(None);
        };
        let waiting = self.store.vectors().unembedded_entries(&active.model);
        let waiting = waiting.await.map_err(store_error)?;
        Ok(Some((waiting, self.embeddings.progress.seconds(waiting))))
    }

    /// The state of semantic search, chunking and reranking, which need an embedding model.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn semantic_status(
        &self,
        caller: &Caller,
        total_entries: i64,
    ) -> Result<(SemanticSearchStatus, ChunkingStatus, RerankingStatus)> {
        let active = self.embeddings.model();
        let on = active.is_ok();
        let enabled = on || self.embeddings.is_awaited();
        let reason = active.as_ref().err().cloned();
        let embedding_count = match &active {
            Ok(active) => self
                .store
                .vectors()
                .embedded_entries(&caller.owner, &active.model, caller.within().cloned())
                .await
                .map_err(store_error)?,
            Err(_) => 0,
        };
        let pending_count = on.then(|| (total_entries - embedding_count).max(0));
        let embedder = active.ok().map(|active| Arc::clone(&active.embedder));
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
            pending_count,
            pending_seconds: pending_count
                .and_then(|pending| self.embeddings.progress.seconds(pending)),
        };
        let chunking = ChunkingStatus {
            enabled: on,
            available: on,
            reason: reason.clone(),
            chunk_size: sizes.map(|sizes| sizes.target as i64),
            chunk_overlap: sizes.map(|sizes| sizes.overlap as i64),
            aggregation: "max".to_owned(),
        };
        let (reranks, reranker) = (self.reranks(), self.reranker.get());
        let why_not = if reranks {
            None
        } else if self.reranking.enabled == Switch::False {
            Some("switched off by ENABLE_RERANKING=false".to_owned())
        } else {
            Some(reason.unwrap_or_else(|| format!("{NO_TOKEN_VECTORS}; set RERANK_PROVIDER")))
        };
        let reranking = RerankingStatus {
            enabled: reranks,
            available: reranks,
            reason: why_not,
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
