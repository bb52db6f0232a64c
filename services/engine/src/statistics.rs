//! `get_statistics`: counts and the state of every feature. It needs several components, so it is an operation of
//! [`Engine`] itself.

use context_model::{Operation, Result, Statistics, Violations};

use crate::access::Caller;
use crate::error::store_error;
use crate::{Engine, read, validate};

impl Engine {
    /// The owner's counts and the state of every feature. Most counts are read from stored totals.
    /// These are computed, at a cost that grows with the number of entries: the number of summaries,
    /// the number of embeddings on PostgreSQL, the owner's bytes (at most once a minute), and all
    /// counts for a key that is narrowed to threads. On PostgreSQL the tags are counted too, at a
    /// cost that grows with the number of different tags.
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
        let counts = self
            .store
            .statistics(
                &caller.owner,
                caller.within().cloned(),
                read::at(min_revision),
            )
            .await
            .map_err(store_error)?;
        // An owner gets the size of its own data. The size of the whole database would reveal something about other
        // owners.
        let bytes = match caller.within() {
            None if !caller.operator => self.writes.owners_bytes(&caller.owner).await?,
            _ => counts.database_bytes,
        };
        let fts = self.retrieval.full_text_status(&counts);
        let (semantic_search, chunking, reranking) = self
            .retrieval
            .semantic_status(caller, counts.total_entries)
            .await?;
        let hybrid_search = self.retrieval.hybrid_status(&fts, &semantic_search);
        let summary_generation = self
            .background
            .summaries
            .status(
                &caller.owner,
                caller.within().cloned(),
                counts.total_entries,
            )
            .await?;
        Ok(Statistics {
            total_entries: counts.total_entries,
            by_source: counts.by_source,
            by_content_type: counts.by_content_type,
            total_images: counts.total_images,
            unique_tags: counts.unique_tags,
            database_size_mb: (bytes as f64 / (1024.0 * 1024.0) * 100.0).round() / 100.0,
            connection_metrics: caller.operator.then_some(counts.connections),
            semantic_search,
            fts,
            hybrid_search,
            chunking,
            reranking,
            summary_generation,
            revision: counts.revision,
        })
    }
}
