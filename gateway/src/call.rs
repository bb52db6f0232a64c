//! Each tool is one operation of the context service, and each call of it one gRPC request.

use std::sync::Arc;
use std::time::Duration;

use context_model as model;
use context_model::{DeadlineClass, Error, JsonObject, Operation, Reason, Resource};
use context_proto::v1 as pb;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::backend::{Backend, silence};
use crate::limits::{BATCH_DEADLINE, READ_DEADLINE, WRITE_DEADLINE};
use crate::memory::Lease;
use crate::reply::Reply;

/// Pauses before a read is tried again while no service answers: a restart takes less than a second.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(600)];

/// The operation behind the tool with this name. API keys have no tools.
#[must_use]
pub fn tool_operation(name: &str) -> Option<Operation> {
    Operation::parse(name).filter(|operation| operation.resource() != Resource::ApiKey)
}

/// The key under which the reply holds the bare list that the tool is documented to return.
#[must_use]
pub fn list_key(operation: Operation) -> Option<&'static str> {
    matches!(
        operation,
        Operation::GetContextByIds | Operation::ListArtifacts | Operation::SearchArtifacts
    )
    .then_some("result")
}

/// How long a call may take.
#[must_use]
pub const fn deadline(operation: Operation) -> Duration {
    match operation.deadline_class() {
        DeadlineClass::Read => READ_DEADLINE,
        DeadlineClass::Write => WRITE_DEADLINE,
        DeadlineClass::Batch => BATCH_DEADLINE,
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
    /// The memory of the request, of which its reply takes some too.
    pub lease: Option<Arc<Lease>>,
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
                        (Err(status), Some(pause)) if silence(&status).is_some() && self.refusal().is_none() => tokio::time::sleep(pause).await,
                        (outcome, _) => break outcome,
                    }
                };
                self.reply::<model::$reply, _>(reply)
            }};
        }
        match self.operation {
            Operation::StoreContext => write!(
                StoreContextRequest,
                contexts.store_context,
                StoreContextReply
            ),
            Operation::StoreContextBatch => write!(
                StoreContextBatchRequest,
                contexts.store_context_batch,
                BatchReply
            ),
            Operation::GetContextByIds => read!(
                GetContextByIdsRequest,
                contexts.get_context_by_ids,
                GetContextByIdsReply
            ),
            Operation::UpdateContext => write!(
                UpdateContextRequest,
                contexts.update_context,
                UpdateContextReply
            ),
            Operation::UpdateContextBatch => write!(
                UpdateContextBatchRequest,
                contexts.update_context_batch,
                BatchReply
            ),
            Operation::DeleteContext => write!(
                DeleteContextRequest,
                contexts.delete_context,
                DeleteContextReply
            ),
            Operation::DeleteContextBatch => {
                write!(
                    DeleteContextBatchRequest,
                    contexts.delete_context_batch,
                    DeleteContextBatchReply
                )
            }
            Operation::SearchContext => read!(
                SearchContextRequest,
                contexts.search_context,
                SearchContextReply
            ),
            Operation::SemanticSearchContext => {
                read!(
                    SemanticSearchContextRequest,
                    contexts.semantic_search_context,
                    SemanticSearchContextReply
                )
            }
            Operation::FtsSearchContext => {
                read!(
                    FtsSearchContextRequest,
                    contexts.fts_search_context,
                    FtsSearchContextReply
                )
            }
            Operation::HybridSearchContext => {
                read!(
                    HybridSearchContextRequest,
                    contexts.hybrid_search_context,
                    HybridSearchContextReply
                )
            }
            Operation::ListThreads => {
                read!(ListThreadsRequest, contexts.list_threads, ListThreadsReply)
            }
            Operation::GetStatistics => {
                read!(request: pb::GetStatisticsRequest::default(), contexts.get_statistics, Statistics)
            }
            Operation::CreateArtifact => write!(
                CreateArtifactRequest,
                artifacts.create_artifact,
                CreateArtifactReply
            ),
            Operation::ListArtifacts => read!(
                ListArtifactsRequest,
                artifacts.list_artifacts,
                ListArtifactsReply
            ),
            Operation::SearchArtifacts => read!(
                SearchArtifactsRequest,
                artifacts.search_artifacts,
                SearchArtifactsReply
            ),
            Operation::GetArtifact => {
                read!(GetArtifactRequest, artifacts.get_artifact, GetArtifactReply)
            }
            Operation::UpdateArtifact => write!(
                UpdateArtifactRequest,
                artifacts.update_artifact,
                UpdateArtifactReply
            ),
            Operation::DeleteArtifact => write!(
                DeleteArtifactRequest,
                artifacts.delete_artifact,
                DeleteArtifactReply
            ),
            Operation::ListArtifactVersions => {
                read!(
                    ListArtifactVersionsRequest,
                    artifacts.list_artifact_versions,
                    ListArtifactVersionsReply
                )
            }
            Operation::GetArtifactVersion => read!(
                GetArtifactVersionRequest,
                artifacts.get_artifact_version,
                GetArtifactVersionReply
            ),
            Operation::RestoreArtifactVersion => {
                write!(
                    RestoreArtifactVersionRequest,
                    artifacts.restore_artifact_version,
                    RestoreArtifactVersionReply
                )
            }
            Operation::DiffArtifactVersions => {
                read!(
                    DiffArtifactVersionsRequest,
                    artifacts.diff_artifact_versions,
                    DiffArtifactVersionsReply
                )
            }
            Operation::CreateApiKey
            | Operation::ListApiKeys
            | Operation::GetApiKey
            | Operation::UpdateApiKey
            | Operation::DeactivateApiKey
            | Operation::GetCaller => Err(Error::new(
                Reason::NotFound,
                format!("there is no tool {}", self.operation.as_str()),
            )),
        }
    }

    fn request<M: DeserializeOwned, P: From<M>>(&self, arguments: JsonObject) -> model::Result<P> {
        Ok(P::from(model::decode::<M>(Value::Object(arguments))?))
    }

    fn envelope<P>(&self, message: P) -> Request<P> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request.set_timeout(deadline(self.operation));
        if let Some(lease) = &self.lease {
            request.extensions_mut().insert(lease.clone());
        }
        request
    }

    /// Why there was no room for the reply.
    fn refusal(&self) -> Option<Error> {
        self.lease.as_ref()?.refusal()
    }

    fn reply<M, P>(&self, reply: Result<Response<P>, Status>) -> model::Result<Reply>
    where
        M: TryFrom<P> + Serialize,
        M::Error: IntoError,
    {
        let failure = |status| {
            self.refusal()
                .unwrap_or_else(|| self.backend.error(&status, self.operation.is_write()))
        };
        let message = reply.map_err(failure)?.into_inner();
        let structured = serde_json::to_value(M::try_from(message).map_err(IntoError::into_error)?)
            .map_err(Error::internal)?;
        Ok(Reply {
            structured,
            text_key: list_key(self.operation),
        })
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
            operation.as_str(),
            deadline(operation).as_secs()
        ),
    )
}
