//! `context.v1.ContextService`. Each method converts the request, calls the engine, and converts
//! the reply.

use context_model::Operation;
use context_proto::v1 as pb;
use context_proto::v1::context_service_server::ContextService;
use tonic::Request;

use super::calls::{Calls, Reply, write_context};
use crate::request_context::RequestContext;

/// The service for context entries.
pub struct Contexts {
    calls: Calls,
}

impl Contexts {
    /// A service that runs its operations through `calls`.
    #[must_use]
    pub const fn new(calls: Calls) -> Self {
        Self { calls }
    }
}

#[tonic::async_trait]
impl ContextService for Contexts {
    async fn store_context(
        &self,
        request: Request<pb::StoreContextRequest>,
    ) -> Reply<pb::StoreContextResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .store_context(ctx.caller(), request, write?)
                .await
        };
        self.calls.run(Operation::StoreContext, request, work).await
    }

    async fn store_context_batch(
        &self,
        request: Request<pb::StoreContextBatchRequest>,
    ) -> Reply<pb::StoreContextBatchResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .store_context_batch(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::StoreContextBatch, request, work)
            .await
    }

    async fn get_context_by_ids(
        &self,
        request: Request<pb::GetContextByIdsRequest>,
    ) -> Reply<pb::GetContextByIdsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .get_context_by_ids(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::GetContextByIds, request, work)
            .await
    }

    async fn update_context(
        &self,
        request: Request<pb::UpdateContextRequest>,
    ) -> Reply<pb::UpdateContextResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .update_context(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::UpdateContext, request, work)
            .await
    }

    async fn update_context_batch(
        &self,
        request: Request<pb::UpdateContextBatchRequest>,
    ) -> Reply<pb::UpdateContextBatchResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .update_context_batch(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::UpdateContextBatch, request, work)
            .await
    }

    async fn delete_context(
        &self,
        request: Request<pb::DeleteContextRequest>,
    ) -> Reply<pb::DeleteContextResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .delete_context(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::DeleteContext, request, work)
            .await
    }

    async fn delete_context_batch(
        &self,
        request: Request<pb::DeleteContextBatchRequest>,
    ) -> Reply<pb::DeleteContextBatchResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .delete_context_batch(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::DeleteContextBatch, request, work)
            .await
    }

    async fn search_context(
        &self,
        request: Request<pb::SearchContextRequest>,
    ) -> Reply<pb::SearchContextResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .retrieval
                .search_context(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::SearchContext, request, work)
            .await
    }

    async fn semantic_search_context(
        &self,
        request: Request<pb::SemanticSearchContextRequest>,
    ) -> Reply<pb::SemanticSearchContextResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .retrieval
                .semantic_search_context(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::SemanticSearchContext, request, work)
            .await
    }

    async fn fts_search_context(
        &self,
        request: Request<pb::FtsSearchContextRequest>,
    ) -> Reply<pb::FtsSearchContextResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .retrieval
                .fts_search_context(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::FtsSearchContext, request, work)
            .await
    }

    async fn hybrid_search_context(
        &self,
        request: Request<pb::HybridSearchContextRequest>,
    ) -> Reply<pb::HybridSearchContextResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .retrieval
                .hybrid_search_context(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::HybridSearchContext, request, work)
            .await
    }

    async fn list_threads(
        &self,
        request: Request<pb::ListThreadsRequest>,
    ) -> Reply<pb::ListThreadsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .list_threads(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::ListThreads, request, work).await
    }

    async fn get_thread(
        &self,
        request: Request<pb::GetThreadRequest>,
    ) -> Reply<pb::GetThreadResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .get_thread(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::GetThread, request, work).await
    }

    async fn list_tags(
        &self,
        request: Request<pb::ListTagsRequest>,
    ) -> Reply<pb::ListTagsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .list_tags(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::ListTags, request, work).await
    }

    async fn list_metadata_keys(
        &self,
        request: Request<pb::ListMetadataKeysRequest>,
    ) -> Reply<pb::ListMetadataKeysResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .list_metadata_keys(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::ListMetadataKeys, request, work)
            .await
    }

    async fn list_metadata_values(
        &self,
        request: Request<pb::ListMetadataValuesRequest>,
    ) -> Reply<pb::ListMetadataValuesResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .list_metadata_values(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::ListMetadataValues, request, work)
            .await
    }

    async fn list_days(
        &self,
        request: Request<pb::ListDaysRequest>,
    ) -> Reply<pb::ListDaysResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .contexts
                .list_days(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::ListDays, request, work).await
    }

    async fn get_statistics(
        &self,
        request: Request<pb::GetStatisticsRequest>,
    ) -> Reply<pb::GetStatisticsResponse> {
        let work = |ctx: RequestContext, request: pb::GetStatisticsRequest| async move {
            let pb::GetStatisticsRequest { min_revision } = request;
            self.calls
                .engine()
                .get_statistics(ctx.caller(), min_revision)
                .await
        };
        self.calls
            .run(Operation::GetStatistics, request, work)
            .await
    }
}
