//! Each tool is one operation of the context service, and each call of it one gRPC request.

use std::time::Duration;

use context_model as model;
use context_model::{Error, JsonObject, Reason, Scope};
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
    /// `create_artifact`
    CreateArtifact,
    /// `list_artifacts`
    ListArtifacts,
    /// `search_artifacts`
    SearchArtifacts,
    /// `get_artifact`
    GetArtifact,
    /// `update_artifact`
    UpdateArtifact,
    /// `delete_artifact`
    DeleteArtifact,
    /// `list_artifact_versions`
    ListArtifactVersions,
    /// `get_artifact_version`
    GetArtifactVersion,
    /// `restore_artifact_version`
    RestoreArtifactVersion,
    /// `diff_artifact_versions`
    DiffArtifactVersions,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 23] = [
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
        Self::CreateArtifact,
        Self::ListArtifacts,
        Self::SearchArtifacts,
        Self::GetArtifact,
        Self::UpdateArtifact,
        Self::DeleteArtifact,
        Self::ListArtifactVersions,
        Self::GetArtifactVersion,
        Self::RestoreArtifactVersion,
        Self::DiffArtifactVersions,
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
            Self::CreateArtifact => "create_artifact",
            Self::ListArtifacts => "list_artifacts",
            Self::SearchArtifacts => "search_artifacts",
            Self::GetArtifact => "get_artifact",
            Self::UpdateArtifact => "update_artifact",
            Self::DeleteArtifact => "delete_artifact",
            Self::ListArtifactVersions => "list_artifact_versions",
            Self::GetArtifactVersion => "get_artifact_version",
            Self::RestoreArtifactVersion => "restore_artifact_version",
            Self::DiffArtifactVersions => "diff_artifact_versions",
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
            | Self::DeleteContextBatch
            | Self::CreateArtifact
            | Self::UpdateArtifact
            | Self::DeleteArtifact
            | Self::RestoreArtifactVersion => true,
            Self::GetContextByIds
            | Self::SearchContext
            | Self::SemanticSearchContext
            | Self::FtsSearchContext
            | Self::HybridSearchContext
            | Self::ListThreads
            | Self::GetStatistics
            | Self::ListArtifacts
            | Self::SearchArtifacts
            | Self::GetArtifact
            | Self::ListArtifactVersions
            | Self::GetArtifactVersion
            | Self::DiffArtifactVersions => false,
        }
    }

    /// The scope a caller needs for it.
    #[must_use]
    pub const fn scope(self) -> Scope {
        match self {
            Self::DeleteContext | Self::DeleteContextBatch | Self::DeleteArtifact => Scope::Delete,
            _ if self.changes() => Scope::Write,
            _ => Scope::Read,
        }
    }

    /// Whether it is about artifacts, whose documents have error texts of their own.
    #[must_use]
    pub const fn is_about_artifacts(self) -> bool {
        match self {
            Self::CreateArtifact
            | Self::ListArtifacts
            | Self::SearchArtifacts
            | Self::GetArtifact
            | Self::UpdateArtifact
            | Self::DeleteArtifact
            | Self::ListArtifactVersions
            | Self::GetArtifactVersion
            | Self::RestoreArtifactVersion
            | Self::DiffArtifactVersions => true,
            Self::StoreContext
            | Self::StoreContextBatch
            | Self::GetContextByIds
            | Self::UpdateContext
            | Self::UpdateContextBatch
            | Self::DeleteContext
            | Self::DeleteContextBatch
            | Self::SearchContext
            | Self::SemanticSearchContext
            | Self::FtsSearchContext
            | Self::HybridSearchContext
            | Self::ListThreads
            | Self::GetStatistics => false,
        }
    }

    /// The key under which the reply holds the bare list that the tool is documented to return.
    #[must_use]
    pub fn list_key(self) -> Option<&'static str> {
        matches!(self, Self::GetContextByIds | Self::ListArtifacts | Self::SearchArtifacts).then_some("result")
    }

    /// How long a call may take.
    #[must_use]
    pub const fn deadline(self) -> Duration {
        match self {
            Self::StoreContextBatch | Self::UpdateContextBatch | Self::DeleteContextBatch => BATCH_DEADLINE,
            Self::StoreContext
            | Self::UpdateContext
            | Self::DeleteContext
            | Self::CreateArtifact
            | Self::UpdateArtifact
            | Self::DeleteArtifact
            | Self::RestoreArtifactVersion => WRITE_DEADLINE,
            Self::GetContextByIds
            | Self::SearchContext
            | Self::SemanticSearchContext
            | Self::FtsSearchContext
            | Self::HybridSearchContext
            | Self::ListThreads
            | Self::GetStatistics
            | Self::ListArtifacts
            | Self::SearchArtifacts
            | Self::GetArtifact
            | Self::ListArtifactVersions
            | Self::GetArtifactVersion
            | Self::DiffArtifactVersions => READ_DEADLINE,
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
            ($request:ident, $client:ident.$rpc:ident, $reply:ident) => {{
                let request: pb::$request = self.request::<model::$request, _>(arguments)?;
                let mut client = self.backend.$client();
                let reply = client.$rpc(self.envelope(request)).await;
                self.reply::<model::$reply, _>(reply)
            }};
        }
        /// One read, tried again when the service never saw it.
        macro_rules! read {
            ($request:ident, $client:ident.$rpc:ident, $reply:ident) => {{
                let request: pb::$request = self.request::<model::$request, _>(arguments)?;
                read!(request: request, $client.$rpc, $reply)
            }};
            (request: $request:expr, $client:ident.$rpc:ident, $reply:ident) => {{
                let request = $request;
                let mut client = self.backend.$client();
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
            Operation::StoreContext => write!(StoreContextRequest, contexts.store_context, StoreContextReply),
            Operation::StoreContextBatch => write!(StoreContextBatchRequest, contexts.store_context_batch, BatchReply),
            Operation::GetContextByIds => read!(GetContextByIdsRequest, contexts.get_context_by_ids, GetContextByIdsReply),
            Operation::UpdateContext => write!(UpdateContextRequest, contexts.update_context, UpdateContextReply),
            Operation::UpdateContextBatch => write!(UpdateContextBatchRequest, contexts.update_context_batch, BatchReply),
            Operation::DeleteContext => write!(DeleteContextRequest, contexts.delete_context, DeleteContextReply),
            Operation::DeleteContextBatch => {
                write!(DeleteContextBatchRequest, contexts.delete_context_batch, DeleteContextBatchReply)
            }
            Operation::SearchContext => read!(SearchContextRequest, contexts.search_context, SearchContextReply),
            Operation::SemanticSearchContext => {
                read!(SemanticSearchContextRequest, contexts.semantic_search_context, SemanticSearchContextReply)
            }
            Operation::FtsSearchContext => {
                read!(FtsSearchContextRequest, contexts.fts_search_context, FtsSearchContextReply)
            }
            Operation::HybridSearchContext => {
                read!(HybridSearchContextRequest, contexts.hybrid_search_context, HybridSearchContextReply)
            }
            Operation::ListThreads => read!(ListThreadsRequest, contexts.list_threads, ListThreadsReply),
            Operation::GetStatistics => {
                read!(request: pb::GetStatisticsRequest::default(), contexts.get_statistics, Statistics)
            }
            Operation::CreateArtifact => write!(CreateArtifactRequest, artifacts.create_artifact, CreateArtifactReply),
            Operation::ListArtifacts => read!(ListArtifactsRequest, artifacts.list_artifacts, ListArtifactsReply),
            Operation::SearchArtifacts => read!(SearchArtifactsRequest, artifacts.search_artifacts, SearchArtifactsReply),
            Operation::GetArtifact => read!(GetArtifactRequest, artifacts.get_artifact, GetArtifactReply),
            Operation::UpdateArtifact => write!(UpdateArtifactRequest, artifacts.update_artifact, UpdateArtifactReply),
            Operation::DeleteArtifact => write!(DeleteArtifactRequest, artifacts.delete_artifact, DeleteArtifactReply),
            Operation::ListArtifactVersions => {
                read!(ListArtifactVersionsRequest, artifacts.list_artifact_versions, ListArtifactVersionsReply)
            }
            Operation::GetArtifactVersion => read!(GetArtifactVersionRequest, artifacts.get_artifact_version, GetArtifactVersionReply),
            Operation::RestoreArtifactVersion => {
                write!(RestoreArtifactVersionRequest, artifacts.restore_artifact_version, RestoreArtifactVersionReply)
            }
            Operation::DiffArtifactVersions => {
                read!(DiffArtifactVersionsRequest, artifacts.diff_artifact_versions, DiffArtifactVersionsReply)
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
        Ok(Reply { structured, text_key: self.operation.list_key() })
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
