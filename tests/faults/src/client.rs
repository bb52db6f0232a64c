//! The operations that the tests use, over gRPC or directly on the engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use context_engine::{Caller, Engine, EngineConfig, SystemClock, WriteContext};
use context_model::{
    BatchReply, DeleteContextReply, DeleteContextRequest, Entry, Error, GetContextByIdsReply,
    GetContextByIdsRequest, ListThreadsReply, ListThreadsRequest, Result, SearchContextReply,
    SearchContextRequest, Statistics, StoreContextBatchRequest, StoreContextReply,
    StoreContextRequest, UpdateContextBatchRequest, UpdateContextReply, UpdateContextRequest,
};
use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::{error_from_status, v1 as pb};
use context_store_sqlite::{Config, OpenError, SqliteStore};
use context_test_support::{Home, grpc};
use tonic::transport::Channel;

/// A client of the service or of the engine.
#[async_trait]
pub trait Client: Send + Sync + 'static {
    /// Stores one entry.
    async fn store(&self, request: StoreContextRequest) -> Result<StoreContextReply>;
    /// Stores a batch.
    async fn store_batch(&self, request: StoreContextBatchRequest) -> Result<BatchReply>;
    /// Updates one entry.
    async fn update(&self, request: UpdateContextRequest) -> Result<UpdateContextReply>;
    /// Updates a batch.
    async fn update_batch(&self, request: UpdateContextBatchRequest) -> Result<BatchReply>;
    /// Deletes by ids or by thread.
    async fn delete(&self, request: DeleteContextRequest) -> Result<DeleteContextReply>;
    /// Fetches entries.
    async fn get(&self, request: GetContextByIdsRequest) -> Result<GetContextByIdsReply>;
    /// Finds entries by filters.
    async fn search(&self, request: SearchContextRequest) -> Result<SearchContextReply>;
    /// Lists threads.
    async fn threads(&self) -> Result<ListThreadsReply>;
    /// Reads the statistics.
    async fn statistics(&self) -> Result<Statistics>;

    /// All entries in full, by id.
    async fn everything(&self) -> Result<BTreeMap<i64, Entry>> {
        let (mut entries, mut offset) = (BTreeMap::new(), 0);
        loop {
            let page = self
                .search(SearchContextRequest {
                    limit: Some(100),
                    offset: Some(offset),
                    ..SearchContextRequest::default()
                })
                .await?;
            let ids: Vec<i64> = page.results.iter().map(|hit| hit.id).collect();
            let last = ids.len() < 100;
            offset += i64::try_from(ids.len()).unwrap_or(i64::MAX);
            if !ids.is_empty() {
                let request = GetContextByIdsRequest {
                    context_ids: ids,
                    include_images: Some(true),
                    min_revision: None,
                };
                entries.extend(
                    self.get(request)
                        .await?
                        .result
                        .into_iter()
                        .map(|entry| (entry.id, entry)),
                );
            }
            if last {
                return Ok(entries);
            }
        }
    }
}

/// A gRPC client of a running service.
#[derive(Debug, Clone)]
pub struct Grpc(ContextServiceClient<Channel>);

impl Grpc {
    /// A client that connects to this Unix socket on first use. Must be created inside a Tokio runtime.
    #[must_use]
    pub fn at(socket: &Path) -> Self {
        Self(grpc::contexts(grpc::at_socket(socket)))
    }

    /// A client of the service of this home, whichever process serves it.
    #[must_use]
    pub fn of(home: &Home) -> Self {
        Self::at(&home.socket())
    }

    /// The generated client, for calls that need more than the messages.
    #[must_use]
    pub fn generated(&self) -> ContextServiceClient<Channel> {
        self.0.clone()
    }
}

macro_rules! call {
    ($self:ident, $method:ident, $request:expr) => {
        $self
            .0
            .clone()
            .$method($request)
            .await
            .map(tonic::Response::into_inner)
            .map_err(|status| error_of(&status))
    };
}

/// Converts a status to an error, with its source when it comes from the connection.
fn error_of(status: &tonic::Status) -> Error {
    let mut error = error_from_status(status);
    let causes = std::iter::successors(std::error::Error::source(status), |cause| cause.source());
    causes.for_each(|cause| error.message.push_str(&format!(": {cause}")));
    error
}

#[async_trait]
impl Client for Grpc {
    async fn store(&self, request: StoreContextRequest) -> Result<StoreContextReply> {
        call!(self, store_context, pb::StoreContextRequest::from(request)).map(Into::into)
    }

    async fn store_batch(&self, request: StoreContextBatchRequest) -> Result<BatchReply> {
        call!(
            self,
            store_context_batch,
            pb::StoreContextBatchRequest::from(request)
        )
        .map(Into::into)
    }

    async fn update(&self, request: UpdateContextRequest) -> Result<UpdateContextReply> {
        call!(
            self,
            update_context,
            pb::UpdateContextRequest::from(request)
        )
        .map(Into::into)
    }

    async fn update_batch(&self, request: UpdateContextBatchRequest) -> Result<BatchReply> {
        call!(
            self,
            update_context_batch,
            pb::UpdateContextBatchRequest::from(request)
        )
        .map(Into::into)
    }

    async fn delete(&self, request: DeleteContextRequest) -> Result<DeleteContextReply> {
        call!(
            self,
            delete_context,
            pb::DeleteContextRequest::from(request)
        )
        .map(Into::into)
    }

    async fn get(&self, request: GetContextByIdsRequest) -> Result<GetContextByIdsReply> {
        call!(
            self,
            get_context_by_ids,
            pb::GetContextByIdsRequest::from(request)
        )?
        .try_into()
    }

    async fn search(&self, request: SearchContextRequest) -> Result<SearchContextReply> {
        call!(
            self,
            search_context,
            pb::SearchContextRequest::from(request)
        )?
        .try_into()
    }

    async fn threads(&self) -> Result<ListThreadsReply> {
        call!(
            self,
            list_threads,
            pb::ListThreadsRequest::from(ListThreadsRequest::default())
        )?
        .try_into()
    }

    async fn statistics(&self) -> Result<Statistics> {
        call!(
            self,
            get_statistics,
            pb::GetStatisticsRequest { min_revision: None }
        )?
        .try_into()
    }
}

/// The engine with an SQLite database in this process, so that a [`Disk`](crate::disk::Disk) can be placed under it.
#[derive(Clone)]
pub struct Embedded {
    engine: Arc<Engine>,
    caller: Caller,
}

impl Embedded {
    /// Opens this database.
    ///
    /// # Errors
    /// An error of the store.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let store = SqliteStore::open(config)?;
        let engine = Engine::new(
            Arc::new(store),
            EngineConfig::default(),
            Arc::new(SystemClock),
        )
        .expect("the defaults can work");
        Ok(Self {
            engine: Arc::new(engine),
            caller: Caller::local(),
        })
    }

    /// Closes the database.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

impl std::fmt::Debug for Embedded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedded").finish_non_exhaustive()
    }
}

#[async_trait]
impl Client for Embedded {
    async fn store(&self, request: StoreContextRequest) -> Result<StoreContextReply> {
        self.engine
            .contexts
            .store_context(&self.caller, request, WriteContext::default())
            .await
    }

    async fn store_batch(&self, request: StoreContextBatchRequest) -> Result<BatchReply> {
        self.engine
            .contexts
            .store_context_batch(&self.caller, request, WriteContext::default())
            .await
    }

    async fn update(&self, request: UpdateContextRequest) -> Result<UpdateContextReply> {
        self.engine
            .contexts
            .update_context(&self.caller, request, WriteContext::default())
            .await
    }

    async fn update_batch(&self, request: UpdateContextBatchRequest) -> Result<BatchReply> {
        self.engine
            .contexts
            .update_context_batch(&self.caller, request, WriteContext::default())
            .await
    }

    async fn delete(&self, request: DeleteContextRequest) -> Result<DeleteContextReply> {
        self.engine
            .contexts
            .delete_context(&self.caller, request, WriteContext::default())
            .await
    }

    async fn get(&self, request: GetContextByIdsRequest) -> Result<GetContextByIdsReply> {
        self.engine
            .contexts
            .get_context_by_ids(&self.caller, request)
            .await
    }

    async fn search(&self, request: SearchContextRequest) -> Result<SearchContextReply> {
        self.engine
            .retrieval
            .search_context(&self.caller, request)
            .await
    }

    async fn threads(&self) -> Result<ListThreadsReply> {
        self.engine
            .contexts
            .list_threads(&self.caller, ListThreadsRequest::default())
            .await
    }

    async fn statistics(&self) -> Result<Statistics> {
        self.engine.get_statistics(&self.caller, None).await
    }
}
