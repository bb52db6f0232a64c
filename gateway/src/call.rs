//! Each tool is one operation of the context service, and each call of it one gRPC request.

use std::time::Duration;

use context_model as model;
use context_model::{Error, JsonObject, Reason};
use context_proto::v1 as pb;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::backend::{Backend, silence};
use crate::limits::{BATCH_DEADLINE, READ_DEADLINE, WRITE_DEADLINE};
use crate::reply::Reply;

/// Pauses before a read is tried again while no service answers: a restart takes less than a second.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(600)];

/// An operation of the context service, by the name of its tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `store_context`
    StoreContext,
    /// `store_context_batch`
    StoreContextBatch,
    /// `get_context_by_ids`
    GetContextByIds,
    /// `update_context`
    UpdateContext,
    /// `update_context_batch`
    UpdateContextBatch,
    /// `delete_context`
    DeleteContext,
    /// `delete_context_batch`
    DeleteContextBatch,
    /// `search_context`
    SearchContext,
    /// `semantic_search_context`
    SemanticSearchContext,
    /// `fts_search_context`
    FtsSearchContext,
    /// `hybrid_search_context`
    HybridSearchContext,
    /// `list_threads`
    ListThreads,
    /// `get_statistics`
    GetStatistics,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 13] = [
        Self::StoreContext,
        Self::StoreContextBatch,
        Self::GetContextByIds,
        Self::UpdateContext,
        Self::UpdateContextBatch,
        Self::DeleteContext,
        Self::DeleteContextBatch,
        Self::SearchContext,
        Self::SemanticSearchContext,
        Self::FtsSearchContext,
        Self::HybridSearchContext,
        Self::ListThreads,
        Self::GetStatistics,
    ];

    /// The name of its tool.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreContext => "store_context",
            Self::StoreContextBatch => "store_context_batch",
            Self::GetContextByIds => "get_context_by_ids",
            Self::UpdateContext => "update_context",
            Self::UpdateContextBatch => "update_context_batch",
            Self::DeleteContext => "delete_context",
            Self::DeleteContextBatch => "delete_context_batch",
            Self::SearchContext => "search_context",
            Self::SemanticSearchContext => "semantic_search_context",
            Self::FtsSearchContext => "fts_search_context",
            Self::HybridSearchContext => "hybrid_search_context",
            Self::ListThreads => "list_threads",
            Self::GetStatistics => "get_statistics",
        }
    }

    /// The operation of the tool with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|operation| operation.name() == name)
    }

    /// Whether it changes what is stored.
    #[must_use]
    pub const fn changes(self) -> bool {
        match self {
            Self::StoreContext
            | Self::StoreContextBatch
            | Self::UpdateContext
            | Self::UpdateContextBatch
            | Self::DeleteContext
            | Self::DeleteContextBatch => true,
            Self::GetContextByIds
            | Self::SearchContext
            | Self::SemanticSearchContext
            | Self::FtsSearchContext
            | Self::HybridSearchContext
            | Self::ListThreads
            | Self::GetStatistics => false,
        }
    }

    /// How long a call may take.
    #[must_use]
    pub const fn deadline(self) -> Duration {
        match self {
            Self::StoreContextBatch | Self::UpdateContextBatch | Self::DeleteContextBatch => BATCH_DEADLINE,
            Self::StoreContext | Self::UpdateContext | Self::DeleteContext => WRITE_DEADLINE,
            Self::GetContextByIds
            | Self::SearchContext
            | Self::SemanticSearchContext
            | Self::FtsSearchContext
            | Self::HybridSearchContext
            | Self::ListThreads
            | Self::GetStatistics => READ_DEADLINE,
        }
    }
}

/// One call on its way: what is called, where, and with which credentials.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Where the service is.
    pub backend: &'a Backend,
    /// Authorization and trace context.
    pub metadata: MetadataMap,
    /// What is called.
    pub operation: Operation,
}

impl Call<'_> {
    /// Runs the operation with arguments that were already repaired after the tool's schema.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for arguments that do not fit, what the service answers, or that it cannot be reached.
    pub async fn run(&self, arguments: JsonObject) -> model::Result<Reply> {
        /// One write: the request type, the RPC, the reply type.
        macro_rules! write {
            ($request:ident, $rpc:ident, $reply:ident) => {{
                let request: pb::$request = self.request::<model::$request, _>(arguments)?;
                let mut client = self.backend.contexts();
                let reply = client.$rpc(self.envelope(request)).await;
                self.reply::<model::$reply, _>(reply)
            }};
        }
        /// One read, tried again when the service never saw it.
        macro_rules! read {
            ($request:ident, $rpc:ident, $reply:ident) => {{
                let request: pb::$request = self.request::<model::$request, _>(arguments)?;
                read!(request: request, $rpc, $reply)
            }};
            (request: $request:expr, $rpc:ident, $reply:ident) => {{
                let request = $request;
                let mut client = self.backend.contexts();
                let mut pauses = RETRY_PAUSES.into_iter();
                let reply = loop {
                    match (client.$rpc(self.envelope(request.clone())).await, pauses.next()) {
                        (Err(status), Some(pause)) if silence(&status).is_some() => tokio::time::sleep(pause).await,
                        (outcome, _) => break outcome,
                    }
                };
                self.reply::<model::$reply, _>(reply)
            }};
        }
        match self.operation {
            Operation::StoreContext => write!(StoreContextRequest, store_context, StoreContextReply),
            Operation::StoreContextBatch => write!(StoreContextBatchRequest, store_context_batch, BatchReply),
            Operation::GetContextByIds => {
                let mut reply = read!(GetContextByIdsRequest, get_context_by_ids, GetContextByIdsReply)?;
                reply.text_key = Some("result");
                Ok(reply)
            }
            Operation::UpdateContext => write!(UpdateContextRequest, update_context, UpdateContextReply),
            Operation::UpdateContextBatch => write!(UpdateContextBatchRequest, update_context_batch, BatchReply),
            Operation::DeleteContext => write!(DeleteContextRequest, delete_context, DeleteContextReply),
            Operation::DeleteContextBatch => {
                write!(DeleteContextBatchRequest, delete_context_batch, DeleteContextBatchReply)
            }
            Operation::SearchContext => read!(SearchContextRequest, search_context, SearchContextReply),
            Operation::SemanticSearchContext => {
                read!(SemanticSearchContextRequest, semantic_search_context, SemanticSearchContextReply)
            }
            Operation::FtsSearchContext => {
                read!(FtsSearchContextRequest, fts_search_context, FtsSearchContextReply)
            }
            Operation::HybridSearchContext => {
                read!(HybridSearchContextRequest, hybrid_search_context, HybridSearchContextReply)
            }
            Operation::ListThreads => read!(ListThreadsRequest, list_threads, ListThreadsReply),
            Operation::GetStatistics => {
                read!(request: pb::GetStatisticsRequest::default(), get_statistics, Statistics)
            }
        }
    }

    fn request<M: DeserializeOwned, P: From<M>>(&self, arguments: JsonObject) -> model::Result<P> {
        Ok(P::from(model::decode::<M>(Value::Object(arguments))?))
    }

    fn envelope<P>(&self, message: P) -> Request<P> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request.set_timeout(self.operation.deadline());
        request
    }

    fn reply<M, P>(&self, reply: Result<Response<P>, Status>) -> model::Result<Reply>
    where
        M: TryFrom<P> + Serialize,
        M::Error: IntoError,
    {
        let message = reply.map_err(|status| self.backend.error(&status, self.operation.changes()))?.into_inner();
        let structured = serde_json::to_value(M::try_from(message).map_err(IntoError::into_error)?).map_err(Error::internal)?;
        Ok(Reply { structured, text_key: None })
    }
}

/// What a conversion from the wire can fail with: some cannot.
trait IntoError {
    fn into_error(self) -> Error;
}

impl IntoError for Error {
    fn into_error(self) -> Error {
        self
    }
}

impl IntoError for std::convert::Infallible {
    fn into_error(self) -> Error {
        match self {}
    }
}

/// The error of a call that took too long.
#[must_use]
pub fn too_late(operation: Operation) -> Error {
    Error::new(
        Reason::DeadlineExceeded,
        format!(
            "{} took longer than {} seconds; ask for less (a smaller limit, a narrower filter), or try again",
            operation.name(),
            operation.deadline().as_secs()
        ),
    )
}
