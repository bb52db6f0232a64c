//! Conversions of replies: from the service's types, and back in a client such as the gateway.

use context_model::{
    ArtifactSearchHit, BatchReply, BatchResult, ChunkingStatus, ConnectionMetrics, ContentType,
    ContentTypeCounts, DeleteContextBatchReply, DeleteContextReply, Entry, Error, FtsScores,
    FtsSearchContextReply, FtsStatus, GetContextByIdsReply, GetThreadReply, GetThreadRequest,
    HybridHit, HybridScores, HybridSearchContextReply, HybridSearchStatus, ListTagsReply,
    ListTagsRequest, ListThreadsReply, QueryStats, Reason, RerankingStatus, Result, Scores,
    SearchContextReply, SearchHit, SemanticScores, SemanticSearchContextReply,
    SemanticSearchStatus, Source, SourceCounts, Statistics, StoreContextReply, SummaryStatus,
    TagCount, Thread, Timestamp, UpdateContextReply, Violations,
};

use crate::request::{images_from_pb, images_to_pb};
use crate::v1 as pb;
use crate::value::{text_from_pb, text_to_pb};

/// Converts between two structs with equal field names, in both directions.
macro_rules! same_fields {
    ($($model:ident = $pb:ident { $($field:ident),* $(,)? })*) => {$(
        impl From<$model> for pb::$pb {
            fn from(value: $model) -> Self {
                let $model { $($field),* } = value;
                Self { $($field),* }
            }
        }

        impl From<pb::$pb> for $model {
            fn from(value: pb::$pb) -> Self {
                let pb::$pb { $($field),* } = value;
                Self { $($field),* }
            }
        }
    )*};
}

same_fields! {
    TagCount = TagCount { tag, entry_count }
    GetThreadRequest = GetThreadRequest { thread_id, min_revision }
    ListTagsRequest = ListTagsRequest { thread_id, prefix, limit, offset, min_revision }
    StoreContextReply = StoreContextResponse { success, context_id, thread_id, message, version, revision, duplicate }
    UpdateContextReply = UpdateContextResponse { success, context_id, updated_fields, message, version, revision }
    DeleteContextReply = DeleteContextResponse { success, deleted_count, message, revision }
    DeleteContextBatchReply = DeleteContextBatchResponse { success, deleted_count, criteria_used, message, revision }
    SourceCounts = SourceCounts { user, agent }
    ContentTypeCounts = ContentTypeCounts { text, multimodal }
    HybridScores = HybridScores { rrf, fts_rank, semantic_rank, fts_score, semantic_distance, rerank_score }
    QueryStats = QueryStats { execution_time_ms, filters_applied, rows_returned, backend, query_plan, ranking_cap }
    ConnectionMetrics = ConnectionMetrics {
        backend, reader_connections, writer_connections, queued_writes, write_queue_limit, commits, writes,
    }
    SemanticSearchStatus = SemanticSearchStatus {
        enabled, available, reason, model, dimensions, embedding_count, coverage_percentage, pending_count, pending_seconds,
    }
    FtsStatus = FtsStatus { enabled, available, reason, language, backend, engine, indexed_entries, coverage_percentage }
    HybridSearchStatus = HybridSearchStatus { enabled, available, reason }
    ChunkingStatus = ChunkingStatus { enabled, available, reason, chunk_size, chunk_overlap, aggregation }
    RerankingStatus = RerankingStatus { enabled, available, reason, provider, model }
    SummaryStatus = SummaryStatus {
        enabled, available, reason, provider, model, summary_count, coverage_percentage, min_content_length,
    }
}

/// Converts the scores of a search that has `rerank_score` only while reranking is on, in both directions.
macro_rules! scores_with_reranking {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl From<$name> for pb::$name {
            fn from(scores: $name) -> Self {
                let $name { $($field,)* rerank_score } = scores;
                Self { $($field,)* reranking: rerank_score.is_some(), rerank_score: rerank_score.flatten() }
            }
        }

        impl From<pb::$name> for $name {
            fn from(scores: pb::$name) -> Self {
                let pb::$name { $($field,)* rerank_score, reranking } = scores;
                // Earlier versions of the service do not send `reranking`.
                let is_present = reranking || rerank_score.is_some();
                Self { $($field,)* rerank_score: is_present.then_some(rerank_score) }
            }
        }
    )*};
}

scores_with_reranking! {
    FtsScores { fts_score, fts_rank }
    SemanticScores { semantic_distance, semantic_rank }
}

/// The error for a reply in which a part is missing or malformed.
pub(crate) fn missing(what: &str) -> Error {
    Error::new(
        Reason::Internal,
        format!("the service's reply has no valid {what}"),
    )
}

pub(crate) fn timestamp_to_pb(timestamp: Timestamp) -> prost_types::Timestamp {
    let micros = timestamp.micros();
    prost_types::Timestamp {
        seconds: micros.div_euclid(1_000_000),
        nanos: (micros.rem_euclid(1_000_000) * 1000) as i32,
    }
}

pub(crate) fn timestamp_from_pb(timestamp: Option<prost_types::Timestamp>) -> Result<Timestamp> {
    let prost_types::Timestamp { seconds, nanos } =
        timestamp.ok_or_else(|| missing("timestamp"))?;
    let micros = seconds
        .checked_mul(1_000_000)
        .and_then(|m| m.checked_add(i64::from(nanos) / 1000));
    micros.map(Timestamp).ok_or_else(|| missing("timestamp"))
}

fn source_from_pb(source: &str) -> Result<Source> {
    Source::parse(source, "source", &mut Violations::default()).ok_or_else(|| missing("source"))
}

fn content_type_from_pb(content_type: &str) -> Result<ContentType> {
    ContentType::parse(content_type, "content_type", &mut Violations::default())
        .ok_or_else(|| missing("content_type"))
}

pub(crate) fn all<A, B: From<A>>(values: Vec<A>) -> Vec<B> {
    values.into_iter().map(Into::into).collect()
}

pub(crate) fn try_all<A, B: TryFrom<A, Error = Error>>(values: Vec<A>) -> Result<Vec<B>> {
    values.into_iter().map(TryInto::try_into).collect()
}

impl TryFrom<Entry> for pb::Context {
    type Error = Error;

    fn try_from(entry: Entry) -> Result<Self> {
        let Entry {
            id,
            thread_id,
            source,
            content_type,
            text_content,
            summary,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
        } = entry;
        Ok(Self {
            id,
            thread_id,
            source: source.as_str().to_owned(),
            content_type: content_type.as_str().to_owned(),
            text_content,
            summary,
            metadata: Some(text_to_pb(&metadata)?),
            tags,
            created_at: Some(timestamp_to_pb(created_at)),
            updated_at: Some(timestamp_to_pb(updated_at)),
            version,
            images: images.map(images_to_pb),
        })
    }
}

impl TryFrom<pb::Context> for Entry {
    type Error = Error;

    fn try_from(context: pb::Context) -> Result<Self> {
        let pb::Context {
            id,
            thread_id,
            source,
            content_type,
            text_content,
            summary,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
        } = context;
        Ok(Self {
            id,
            thread_id,
            source: source_from_pb(&source)?,
            content_type: content_type_from_pb(&content_type)?,
            text_content,
            summary,
            metadata: text_from_pb(metadata)?,
            tags,
            created_at: timestamp_from_pb(created_at)?,
            updated_at: timestamp_from_pb(updated_at)?,
            version,
            images: images.map(images_from_pb).transpose()?,
        })
    }
}

impl TryFrom<SearchHit> for pb::ContextHit {
    type Error = Error;

    fn try_from(hit: SearchHit) -> Result<Self> {
        let SearchHit {
            id,
            thread_id,
            source,
            content_type,
            text_content,
            summary,
            is_text_content_truncated,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
            scores,
            highlighted,
            relevance,
            snippet,
        } = hit;
        Ok(Self {
            id,
            thread_id,
            source: source.as_str().to_owned(),
            content_type: content_type.as_str().to_owned(),
            text_content,
            summary,
            is_text_content_truncated,
            metadata: Some(text_to_pb(&metadata)?),
            tags,
            created_at: Some(timestamp_to_pb(created_at)),
            updated_at: Some(timestamp_to_pb(updated_at)),
            version,
            images: images.map(images_to_pb),
            scores: scores.map(scores_to_pb),
            highlighted,
            relevance,
            snippet,
            artifact_id: None,
            title: None,
            path: None,
        })
    }
}

impl TryFrom<HybridHit> for pb::ContextHit {
    type Error = Error;

    fn try_from(hit: HybridHit) -> Result<Self> {
        let ArtifactSearchHit {
            artifact_id,
            title,
            path,
            text_content,
            is_text_content_truncated,
            metadata,
            created_at,
            updated_at,
            version,
            scores,
            relevance,
            highlighted,
            snippet,
        } = match hit {
            HybridHit::Context(hit) => return hit.try_into(),
            HybridHit::Artifact(hit) => hit,
        };
        Ok(Self {
            artifact_id: Some(artifact_id),
            title: Some(title),
            path,
            text_content,
            is_text_content_truncated,
            metadata: Some(text_to_pb(&metadata)?),
            created_at: Some(timestamp_to_pb(created_at)),
            updated_at: Some(timestamp_to_pb(updated_at)),
            version,
            scores: scores.map(scores_to_pb),
            relevance,
            highlighted,
            snippet,
            ..Self::default()
        })
    }
}

impl TryFrom<pb::ContextHit> for HybridHit {
    type Error = Error;

    fn try_from(hit: pb::ContextHit) -> Result<Self> {
        let Some(artifact_id) = hit.artifact_id else {
            return hit.try_into().map(Self::Context);
        };
        Ok(Self::Artifact(ArtifactSearchHit {
            artifact_id,
            title: hit.title.unwrap_or_default(),
            path: hit.path,
            text_content: hit.text_content,
            is_text_content_truncated: hit.is_text_content_truncated,
            metadata: text_from_pb(hit.metadata)?,
            created_at: timestamp_from_pb(hit.created_at)?,
            updated_at: timestamp_from_pb(hit.updated_at)?,
            version: hit.version,
            scores: hit.scores.map(scores_from_pb),
            relevance: hit.relevance,
            highlighted: hit.highlighted,
            snippet: hit.snippet,
        }))
    }
}

fn scores_to_pb(scores: Scores) -> pb::context_hit::Scores {
    match scores {
        Scores::Fts(scores) => pb::context_hit::Scores::FtsScores(scores.into()),
        Scores::Semantic(scores) => pb::context_hit::Scores::SemanticScores(scores.into()),
        Scores::Hybrid(scores) => pb::context_hit::Scores::HybridScores(scores.into()),
    }
}

fn scores_from_pb(scores: pb::context_hit::Scores) -> Scores {
    match scores {
        pb::context_hit::Scores::FtsScores(scores) => Scores::Fts(scores.into()),
        pb::context_hit::Scores::SemanticScores(scores) => Scores::Semantic(scores.into()),
        pb::context_hit::Scores::HybridScores(scores) => Scores::Hybrid(scores.into()),
    }
}

impl TryFrom<pb::ContextHit> for SearchHit {
    type Error = Error;

    fn try_from(hit: pb::ContextHit) -> Result<Self> {
        let pb::ContextHit {
            id,
            thread_id,
            source,
            content_type,
            text_content,
            summary,
            is_text_content_truncated,
            metadata,
            tags,
            created_at,
            updated_at,
            version,
            images,
            scores,
            highlighted,
            relevance,
            snippet,
            artifact_id: _,
            title: _,
            path: _,
        } = hit;
        Ok(Self {
            id,
            thread_id,
            source: source_from_pb(&source)?,
            content_type: content_type_from_pb(&content_type)?,
            text_content,
            summary,
            is_text_content_truncated,
            metadata: text_from_pb(metadata)?,
            tags,
            created_at: timestamp_from_pb(created_at)?,
            updated_at: timestamp_from_pb(updated_at)?,
            version,
            images: images.map(images_from_pb).transpose()?,
            scores: scores.map(scores_from_pb),
            highlighted,
            relevance,
            snippet,
        })
    }
}

impl From<BatchResult> for pb::BatchResult {
    fn from(result: BatchResult) -> Self {
        let BatchResult {
            index,
            success,
            context_id,
            error,
            updated_fields,
            duplicate,
        } = result;
        Self {
            index,
            success,
            context_id,
            error,
            updated_fields: updated_fields.map(|values| pb::StringList { values }),
            duplicate,
        }
    }
}

impl From<pb::BatchResult> for BatchResult {
    fn from(result: pb::BatchResult) -> Self {
        let pb::BatchResult {
            index,
            success,
            context_id,
            error,
            updated_fields,
            duplicate,
        } = result;
        Self {
            index,
            success,
            context_id,
            error,
            updated_fields: updated_fields.map(|list| list.values),
            duplicate,
        }
    }
}

/// Converts the replies of batches, in both directions. All have the same fields.
macro_rules! batch_reply {
    ($($pb:ident)*) => {$(
        impl From<BatchReply> for pb::$pb {
            fn from(reply: BatchReply) -> Self {
                let BatchReply { success, total, succeeded, failed, results, message, revision } = reply;
                Self { success, total, succeeded, failed, results: all(results), message, revision }
            }
        }

        impl From<pb::$pb> for BatchReply {
            fn from(reply: pb::$pb) -> Self {
                let pb::$pb { success, total, succeeded, failed, results, message, revision } = reply;
                Self { success, total, succeeded, failed, results: all(results), message, revision }
            }
        }
    )*};
}

batch_reply!(StoreContextBatchResponse UpdateContextBatchResponse);

impl TryFrom<GetContextByIdsReply> for pb::GetContextByIdsResponse {
    type Error = Error;

    fn try_from(reply: GetContextByIdsReply) -> Result<Self> {
        let GetContextByIdsReply { result, revision } = reply;
        Ok(Self {
            contexts: try_all(result)?,
            revision,
        })
    }
}

impl TryFrom<pb::GetContextByIdsResponse> for GetContextByIdsReply {
    type Error = Error;

    fn try_from(reply: pb::GetContextByIdsResponse) -> Result<Self> {
        let pb::GetContextByIdsResponse { contexts, revision } = reply;
        Ok(Self {
            result: try_all(contexts)?,
            revision,
        })
    }
}

/// Converts a search reply, in both directions: its own fields by name, then the fields that all search replies share.
macro_rules! search_reply {
    ($($model:ident = $pb:ident { $($field:ident),* })*) => {$(
        impl TryFrom<$model> for pb::$pb {
            type Error = Error;

            fn try_from(reply: $model) -> Result<Self> {
                let $model { $($field,)* results, count, has_more, stats, revision } = reply;
                let (results, stats) = (try_all(results)?, stats.map(Into::into));
                Ok(Self { $($field,)* results, count, has_more, stats, revision })
            }
        }

        impl TryFrom<pb::$pb> for $model {
            type Error = Error;

            fn try_from(reply: pb::$pb) -> Result<Self> {
                let pb::$pb { $($field,)* results, count, has_more, stats, revision } = reply;
                let (results, stats) = (try_all(results)?, stats.map(Into::into));
                Ok(Self { $($field,)* results, count, has_more, stats, revision })
            }
        }
    )*};
}

search_reply! {
    SearchContextReply = SearchContextResponse {}
    FtsSearchContextReply = FtsSearchContextResponse { query, mode, language, fts_available, warnings }
    SemanticSearchContextReply = SemanticSearchContextResponse { query, model, warnings }
    HybridSearchContextReply = HybridSearchContextResponse { query, fusion_method, search_modes_used, fts_count, semantic_count, warnings }
}

impl From<Thread> for pb::Thread {
    fn from(thread: Thread) -> Self {
        let Thread {
            thread_id,
            entry_count,
            source_types,
            sources,
            multimodal_count,
            first_entry,
            last_entry,
            last_id,
        } = thread;
        Self {
            thread_id,
            entry_count,
            source_types,
            sources: Some(sources.into()),
            multimodal_count,
            first_entry: Some(timestamp_to_pb(first_entry)),
            last_entry: Some(timestamp_to_pb(last_entry)),
            last_id,
        }
    }
}

impl TryFrom<pb::Thread> for Thread {
    type Error = Error;

    fn try_from(thread: pb::Thread) -> Result<Self> {
        let pb::Thread {
            thread_id,
            entry_count,
            source_types,
            sources,
            multimodal_count,
            first_entry,
            last_entry,
            last_id,
        } = thread;
        Ok(Self {
            thread_id,
            entry_count,
            source_types,
            sources: sources.unwrap_or_default().into(),
            multimodal_count,
            first_entry: timestamp_from_pb(first_entry)?,
            last_entry: timestamp_from_pb(last_entry)?,
            last_id,
        })
    }
}

impl From<ListThreadsReply> for pb::ListThreadsResponse {
    fn from(reply: ListThreadsReply) -> Self {
        let ListThreadsReply {
            threads,
            total_threads,
            has_more,
            revision,
        } = reply;
        Self {
            threads: all(threads),
            total_threads,
            has_more,
            revision,
        }
    }
}

impl TryFrom<pb::ListThreadsResponse> for ListThreadsReply {
    type Error = Error;

    fn try_from(reply: pb::ListThreadsResponse) -> Result<Self> {
        let pb::ListThreadsResponse {
            threads,
            total_threads,
            has_more,
            revision,
        } = reply;
        Ok(Self {
            threads: try_all(threads)?,
            total_threads,
            has_more,
            revision,
        })
    }
}

impl From<GetThreadReply> for pb::GetThreadResponse {
    fn from(reply: GetThreadReply) -> Self {
        let GetThreadReply { thread, revision } = reply;
        Self {
            thread: Some(thread.into()),
            revision,
        }
    }
}

impl TryFrom<pb::GetThreadResponse> for GetThreadReply {
    type Error = Error;

    fn try_from(reply: pb::GetThreadResponse) -> Result<Self> {
        let pb::GetThreadResponse { thread, revision } = reply;
        Ok(Self {
            thread: thread.ok_or_else(|| missing("thread"))?.try_into()?,
            revision,
        })
    }
}

impl From<ListTagsReply> for pb::ListTagsResponse {
    fn from(reply: ListTagsReply) -> Self {
        let ListTagsReply {
            tags,
            total,
            has_more,
            revision,
        } = reply;
        Self {
            tags: all(tags),
            total,
            has_more,
            revision,
        }
    }
}

impl From<pb::ListTagsResponse> for ListTagsReply {
    fn from(reply: pb::ListTagsResponse) -> Self {
        let pb::ListTagsResponse {
            tags,
            total,
            has_more,
            revision,
        } = reply;
        Self {
            tags: all(tags),
            total,
            has_more,
            revision,
        }
    }
}

impl From<Statistics> for pb::GetStatisticsResponse {
    fn from(statistics: Statistics) -> Self {
        let Statistics {
            total_entries,
            by_source,
            by_content_type,
            total_images,
            unique_tags,
            database_size_mb,
            connection_metrics,
            semantic_search,
            fts,
            hybrid_search,
            chunking,
            reranking,
            summary_generation,
            revision,
        } = statistics;
        Self {
            total_entries,
            by_source: Some(by_source.into()),
            by_content_type: Some(by_content_type.into()),
            total_images,
            unique_tags,
            database_size_mb,
            connection_metrics: connection_metrics.map(Into::into),
            semantic_search: Some(semantic_search.into()),
            fts: Some(fts.into()),
            hybrid_search: Some(hybrid_search.into()),
            chunking: Some(chunking.into()),
            reranking: Some(reranking.into()),
            summary_generation: Some(summary_generation.into()),
            revision,
        }
    }
}

impl TryFrom<pb::GetStatisticsResponse> for Statistics {
    type Error = Error;

    fn try_from(reply: pb::GetStatisticsResponse) -> Result<Self> {
        let pb::GetStatisticsResponse {
            total_entries,
            by_source,
            by_content_type,
            total_images,
            unique_tags,
            database_size_mb,
            connection_metrics,
            semantic_search,
            fts,
            hybrid_search,
            chunking,
            reranking,
            summary_generation,
            revision,
        } = reply;
        let semantic_search: SemanticSearchStatus = semantic_search
            .ok_or_else(|| missing("semantic_search"))?
            .into();
        let fts: FtsStatus = fts.ok_or_else(|| missing("fts"))?.into();
        // Earlier versions of the service do not send `hybrid_search`. They have no switch for it: hybrid search is on
        // if full-text or semantic search is.
        let hybrid_search = hybrid_search.map_or_else(
            || HybridSearchStatus {
                enabled: fts.enabled || semantic_search.enabled,
                available: fts.available || semantic_search.available,
                reason: None,
            },
            Into::into,
        );
        Ok(Self {
            total_entries,
            by_source: by_source.unwrap_or_default().into(),
            by_content_type: by_content_type.unwrap_or_default().into(),
            total_images,
            unique_tags,
            database_size_mb,
            connection_metrics: connection_metrics.map(Into::into),
            semantic_search,
            fts,
            hybrid_search,
            chunking: chunking.ok_or_else(|| missing("chunking"))?.into(),
            reranking: reranking.ok_or_else(|| missing("reranking"))?.into(),
            summary_generation: summary_generation
                .ok_or_else(|| missing("summary_generation"))?
                .into(),
            revision,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_keep_whether_reranking_is_on() {
        for rerank_score in [None, Some(None), Some(Some(0.5))] {
            let fts = FtsScores {
                fts_score: 1.5,
                fts_rank: None,
                rerank_score,
            };
            assert_eq!(FtsScores::from(pb::FtsScores::from(fts)), fts);
            let semantic = SemanticScores {
                semantic_distance: 0.5,
                semantic_rank: None,
                rerank_score,
            };
            let back = SemanticScores::from(pb::SemanticScores::from(semantic));
            assert_eq!(back, semantic);
        }
        let earlier = pb::FtsScores {
            rerank_score: Some(0.5),
            ..Default::default()
        };
        assert_eq!(FtsScores::from(earlier).rerank_score, Some(Some(0.5)));
    }

    #[test]
    fn a_service_that_does_not_report_hybrid_search_has_it_on_if_one_of_its_searches_is() {
        for (fts, semantic) in [(true, false), (false, true), (false, false)] {
            let reply = pb::GetStatisticsResponse {
                fts: Some(pb::FtsStatus {
                    enabled: fts,
                    ..Default::default()
                }),
                semantic_search: Some(pb::SemanticSearchStatus {
                    enabled: semantic,
                    ..Default::default()
                }),
                chunking: Some(pb::ChunkingStatus::default()),
                reranking: Some(pb::RerankingStatus::default()),
                summary_generation: Some(pb::SummaryStatus::default()),
                ..Default::default()
            };
            let statistics = Statistics::try_from(reply).unwrap();
            assert_eq!(statistics.hybrid_search.enabled, fts || semantic);
        }
    }
}
