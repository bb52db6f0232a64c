//! `context.v1.ContextService`: each method converts, calls the engine and converts back.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use context_engine::WriteContext;
use context_model::{Error, Operation};
use context_proto::v1 as pb;
use context_proto::v1::context_service_server::ContextService;
use prost::Message;
use tonic::{Request, Response, Status};

use super::metadata::{deadline, idempotency_key};
use crate::app::App;
use crate::authenticate::Who;
use crate::transport::Transport;
use crate::wire::status;

/// A reply smaller than this is not worth compressing.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// The service over one engine.
pub struct Contexts {
    pub(super) app: Arc<App>,
}

impl Contexts {
    /// The service of this application.
    #[must_use]
    pub const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// Converts a request, runs the operation on it, and converts the reply.
    pub(super) async fn run<P, M, T, R, F>(
        &self,
        operation: Operation,
        request: Request<P>,
        work: impl FnOnce(Who, M) -> F,
    ) -> Result<Response<R>, Status>
    where
        P: Message,
        M: TryFrom<P>,
        M::Error: Refusal,
        F: Future<Output = Result<T, Error>>,
        R: TryFrom<T> + Message,
        R::Error: Refusal,
    {
        let who = Who::of(request.extensions()).map_err(|error| status(&error))?;
        let deadline = deadline(request.metadata());
        let message = request.into_inner();
        let caller = who.clone();
        let work = async { work(caller, M::try_from(message).map_err(Refusal::into_error)?).await };
        let reply = self
            .app
            .call(&who, operation, Transport::Grpc, deadline, work)
            .await
            .map_err(|error| status(&error))?;
        let reply = R::try_from(reply).map_err(|error| status(&error.into_error()))?;
        let bytes = reply.encoded_len();
        // Its encoding, and half of that while the buffer grows. With it the largest entry still fits an owner's share.
        who.count_reply(bytes.saturating_add(bytes / 2))
            .map_err(|error| status(&error))?;
        let mut response = Response::new(reply);
        if bytes < MIN_COMPRESSED_BYTES {
            response.disable_compression();
        }
        Ok(response)
    }
}

/// Why a message could not become a request, or a reply a message.
pub(super) trait Refusal {
    fn into_error(self) -> Error;
}

impl Refusal for Error {
    fn into_error(self) -> Error {
        self
    }
}

impl Refusal for Infallible {
    fn into_error(self) -> Error {
        match self {}
    }
}

pub(super) fn write_context<P>(request: &Request<P>) -> Result<WriteContext, Error> {
    Ok(WriteContext {
        idempotency_key: idempotency_key(request.metadata())?,
    })
}

pub(super) type Reply<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl ContextService for Contexts {
    async fn store_context(
        &self,
        request: Request<pb::StoreContextRequest>,
    ) -> Reply<pb::StoreContextResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .store_context(who.caller(), request, write?)
                .await
        };
        self.run(Operation::StoreContext, request, work).await
    }

    async fn store_context_batch(
        &self,
        request: Request<pb::StoreContextBatchRequest>,
    ) -> Reply<pb::StoreContextBatchResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .store_context_batch(who.caller(), request, write?)
                .await
        };
        self.run(Operation::StoreContextBatch, request, work).await
    }

    async fn get_context_by_ids(
        &self,
        request: Request<pb::GetContextByIdsRequest>,
    ) -> Reply<pb::GetContextByIdsResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .get_context_by_ids(who.caller(), request)
                .await
        };
        self.run(Operation::GetContextByIds, request, work).await
    }

    async fn update_context(
        &self,
        request: Request<pb::UpdateContextRequest>,
    ) -> Reply<pb::UpdateContextResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .update_context(who.caller(), request, write?)
                .await
        };
        self.run(Operation::UpdateContext, request, work).await
    }

    async fn update_context_batch(
        &self,
        request: Request<pb::UpdateContextBatchRequest>,
    ) -> Reply<pb::UpdateContextBatchResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .update_context_batch(who.caller(), request, write?)
                .await
        };
        self.run(Operation::UpdateContextBatch, request, work).await
    }

    async fn delete_context(
        &self,
        request: Request<pb::DeleteContextRequest>,
    ) -> Reply<pb::DeleteContextResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .delete_context(who.caller(), request, write?)
                .await
        };
        self.run(Operation::DeleteContext, request, work).await
    }

    async fn delete_context_batch(
        &self,
        request: Request<pb::DeleteContextBatchRequest>,
    ) -> Reply<pb::DeleteContextBatchResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .delete_context_batch(who.caller(), request, write?)
                .await
        };
        self.run(Operation::DeleteContextBatch, request, work).await
    }

    async fn search_context(
        &self,
        request: Request<pb::SearchContextRequest>,
    ) -> Reply<pb::SearchContextResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.search_context(who.caller(), request).await
        };
        self.run(Operation::SearchContext, request, work).await
    }

    async fn semantic_search_context(
        &self,
        request: Request<pb::SemanticSearchContextRequest>,
    ) -> Reply<pb::SemanticSearchContextResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .semantic_search_context(who.caller(), request)
                .await
        };
        self.run(Operation::SemanticSearchContext, request, work)
            .await
    }

    async fn fts_search_context(
        &self,
        request: Request<pb::FtsSearchContextRequest>,
    ) -> Reply<pb::FtsSearchContextResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .fts_search_context(who.caller(), request)
                .await
        };
        self.run(Operation::FtsSearchContext, request, work).await
    }

    async fn hybrid_search_context(
        &self,
        request: Request<pb::HybridSearchContextRequest>,
    ) -> Reply<pb::HybridSearchContextResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .hybrid_search_context(who.caller(), request)
                .await
        };
        self.run(Operation::HybridSearchContext, request, work)
            .await
    }

    async fn list_threads(
        &self,
        request: Request<pb::ListThreadsRequest>,
    ) -> Reply<pb::ListThreadsResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.list_threads(who.caller(), request).await
        };
        self.run(Operation::ListThreads, request, work).await
    }

    async fn get_statistics(
        &self,
        request: Request<pb::GetStatisticsRequest>,
    ) -> Reply<pb::GetStatisticsResponse> {
        let work = |who: Who, request: pb::GetStatisticsRequest| async move {
            let pb::GetStatisticsRequest { min_revision } = request;
            self.app
                .engine
                .get_statistics(who.caller(), min_revision)
                .await
        };
        self.run(Operation::GetStatistics, request, work).await
    }
}
