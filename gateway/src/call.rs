//! Runs a tool call. Each tool is one operation of the context service, and each call is one gRPC request,
//! which is repeated only for a read whose connection failed.
//!
//! [`Call::run`] decodes the arguments to a request of `context-model`, converts it to a gRPC message, sends it, and
//! converts the response to JSON for the client.

use std::sync::Arc;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use context_model as model;
use context_model::{DeadlineClass, Error, JsonObject, Operation, Reason};
use context_proto::v1 as pb;
use serde::Serialize;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use crate::backend::{Backend, ConnectionFailure, OUTCOME_UNKNOWN, connection_failure, timed_out};
use crate::brief;
use crate::limits::{BATCH_DEADLINE, READ_DEADLINE, WRITE_DEADLINE};
use crate::memory::Lease;
use crate::reply::Reply;

/// Pauses before a read is sent again after its connection failed: 100 ms and 600 ms. A restart of the service takes
/// less than a second.
const RETRY_PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(100))
    .with_factor(6.0)
    .with_max_times(2);

/// Characters of each text that `ListChanges` (the tool `changes_since`) shows unless the call says otherwise.
const DEFAULT_PREVIEW_CHARS: i64 = 120;
/// Number of threads that list_threads returns by default. The default of the service is 1 000, which take 200 kB.
const DEFAULT_THREADS: i64 = 50;

/// The operation behind the tool with this name. `None` for operations that are not tools.
#[must_use]
pub fn tool_operation(name: &str) -> Option<Operation> {
    Operation::parse(name).filter(|operation| operation.is_tool())
}

/// Maximum duration of a call of this operation.
#[must_use]
pub const fn deadline(operation: Operation) -> Duration {
    match operation.deadline_class() {
        DeadlineClass::Read => READ_DEADLINE,
        DeadlineClass::Write => WRITE_DEADLINE,
        DeadlineClass::Batch => BATCH_DEADLINE,
    }
}

/// The error of a call that reached its deadline. A write that has begun runs to its end in the service.
#[must_use]
pub fn too_late(operation: Operation) -> Error {
    let advice = if operation.is_write() {
        OUTCOME_UNKNOWN
    } else {
        "request less (a smaller limit, a narrower filter), or try again"
    };
    Error::new(
        Reason::DeadlineExceeded,
        format!(
            "{} took longer than {} seconds; {advice}",
            operation.as_str(),
            deadline(operation).as_secs()
        ),
    )
}

/// The field of the reply that has the list, for operations whose tool is documented to return only a list. The text
/// of such a result is this list. Its structured content is the whole reply. `None` for all other operations.
#[must_use]
pub fn text_field(operation: Operation) -> Option<&'static str> {
    matches!(
        operation,
        Operation::GetContextByIds | Operation::ListArtifacts | Operation::SearchArtifacts
    )
    .then_some("result")
}

/// One call of an operation.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The context service.
    pub backend: &'a Backend,
    /// Authorization and trace context, sent with the request.
    pub metadata: MetadataMap,
    /// The operation to call.
    pub operation: Operation,
    /// Counts the memory of the request and of each reply that arrives. `None`: not counted.
    pub lease: Option<Arc<Lease>>,
}

impl Call<'_> {
    /// Runs the operation and returns its reply. The values of `arguments` must already have the declared types, and
    /// none may be null (`lenient::arguments` prepares them).
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for arguments that do not match the request, the service's error, or an error when the
    /// service is unreachable.
    pub async fn run(&self, mut arguments: JsonObject) -> model::Result<Reply> {
        if self.operation == Operation::ListChanges {
            // An agent should see what a change is about without a second call.
            arguments
                .entry("preview_chars")
                .or_insert_with(|| DEFAULT_PREVIEW_CHARS.into());
        }
        if self.operation == Operation::ListThreads {
            arguments.entry("limit").or_insert(DEFAULT_THREADS.into());
        }
        /// One line for each operation: `$service.$method(request) -> reply`. A request has the same name in the model
        /// and in the protocol.
        macro_rules! operations {
            ($($operation:ident: $service:ident.$method:ident($request:ident) -> $reply:ident,)*) => {
                match self.operation {
                    $(Operation::$operation => {
                        let request: model::$request = model::decode(Value::Object(arguments))?;
                        let sending = self.send(pb::$request::from(request), |request| {
                            let mut client = self.backend.$service();
                            async move { client.$method(request).await }
                        });
                        self.to_reply::<model::$reply, _>(sending.await)
                    })*
                    // Its request has no fields, so the arguments are ignored.
                    Operation::GetStatistics => {
                        let sending = self.send(pb::GetStatisticsRequest::default(), |request| {
                            let mut client = self.backend.contexts();
                            async move { client.get_statistics(request).await }
                        });
                        self.to_reply::<model::Statistics, _>(sending.await)
                    }
                    Operation::Watch
                    | Operation::GetThread
                    | Operation::ListTags
                    | Operation::MoveArtifacts
                    | Operation::DeleteArtifacts
                    | Operation::ListMetadataKeys
                    | Operation::ListMetadataValues
                    | Operation::ListDays
                    | Operation::CreateApiKey
                    | Operation::ListApiKeys
                    | Operation::GetApiKey
                    | Operation::UpdateApiKey
                    | Operation::DeactivateApiKey
                    | Operation::GetCaller => Err(Error::new(
                        Reason::NotFound,
                        format!("there is no tool {}", self.operation.as_str()),
                    )),
                }
            };
        }
        operations! {
            StoreContext: contexts.store_context(StoreContextRequest) -> StoreContextReply,
            StoreContextBatch: contexts.store_context_batch(StoreContextBatchRequest) -> BatchReply,
            GetContextByIds: contexts.get_context_by_ids(GetContextByIdsRequest) -> GetContextByIdsReply,
            UpdateContext: contexts.update_context(UpdateContextRequest) -> UpdateContextReply,
            UpdateContextBatch: contexts.update_context_batch(UpdateContextBatchRequest) -> BatchReply,
            DeleteContext: contexts.delete_context(DeleteContextRequest) -> DeleteContextReply,
            DeleteContextBatch: contexts.delete_context_batch(DeleteContextBatchRequest) -> DeleteContextBatchReply,
            SearchContext: contexts.search_context(SearchContextRequest) -> SearchContextReply,
            SemanticSearchContext: contexts.semantic_search_context(SemanticSearchContextRequest) -> SemanticSearchContextReply,
            FtsSearchContext: contexts.fts_search_context(FtsSearchContextRequest) -> FtsSearchContextReply,
            HybridSearchContext: contexts.hybrid_search_context(HybridSearchContextRequest) -> HybridSearchContextReply,
            ListThreads: contexts.list_threads(ListThreadsRequest) -> ListThreadsReply,
            ListChanges: changes.list_changes(ListChangesRequest) -> ListChangesReply,
            CreateArtifact: artifacts.create_artifact(CreateArtifactRequest) -> CreateArtifactReply,
            ListArtifacts: artifacts.list_artifacts(ListArtifactsRequest) -> ListArtifactsReply,
            SearchArtifacts: artifacts.search_artifacts(SearchArtifactsRequest) -> SearchArtifactsReply,
            GetArtifact: artifacts.get_artifact(GetArtifactRequest) -> GetArtifactReply,
            UpdateArtifact: artifacts.update_artifact(UpdateArtifactRequest) -> UpdateArtifactReply,
            DeleteArtifact: artifacts.delete_artifact(DeleteArtifactRequest) -> DeleteArtifactReply,
            ListArtifactVersions: artifacts.list_artifact_versions(ListArtifactVersionsRequest) -> ListArtifactVersionsReply,
            GetArtifactVersion: artifacts.get_artifact_version(GetArtifactVersionRequest) -> GetArtifactVersionReply,
            RestoreArtifactVersion: artifacts.restore_artifact_version(RestoreArtifactVersionRequest) -> RestoreArtifactVersionReply,
            DiffArtifactVersions: artifacts.diff_artifact_versions(DiffArtifactVersionsRequest) -> DiffArtifactVersionsReply,
        }
    }

    /// Sends the message. A read is sent again if the connection failed, but not if a retry would fail too
    /// ([`ConnectionFailure::Lasting`]), the service was too slow, or this gateway refused the reply. A write is sent
    /// once, even with an idempotency key: it may have been committed although the response was lost.
    async fn send<P, R, F>(
        &self,
        message: P,
        method: impl Fn(Request<P>) -> F,
    ) -> Result<Response<R>, Status>
    where
        P: Clone,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        if self.operation.is_write() {
            return method(self.request(message)).await;
        }
        let attempt = || method(self.request(message.clone()));
        // When the lease refuses a reply, its body fails, which looks like a broken connection.
        let may_retry = |status: &Status| {
            connection_failure(status).is_some_and(|failure| failure != ConnectionFailure::Lasting)
                && self.refusal().is_none()
        };
        attempt.retry(RETRY_PAUSES).when(may_retry).await
    }

    /// The request of one attempt: the message with the credentials, the deadline, and the lease that counts the reply.
    /// Each attempt gets the whole deadline; the caller of [`run`](Self::run) limits all attempts together.
    fn request<P>(&self, message: P) -> Request<P> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request.set_timeout(deadline(self.operation));
        if let Some(lease) = &self.lease {
            request.extensions_mut().insert(lease.clone());
        }
        request
    }

    /// Converts the response to JSON. The error is this gateway's refusal of the reply, or else the service's error.
    fn to_reply<M, P>(&self, response: Result<Response<P>, Status>) -> model::Result<Reply>
    where
        M: TryFrom<P, Error: Into<Error>> + Serialize,
    {
        let failure = |status| match self.refusal() {
            Some(refusal) => refusal,
            None if timed_out(&status) => too_late(self.operation),
            None => self.backend.error(&status, self.operation.is_write()),
        };
        let message = response.map_err(failure)?.into_inner();
        let reply = M::try_from(message).map_err(Into::<Error>::into)?;
        let mut structured = serde_json::to_value(reply).map_err(Error::internal)?;
        brief::shorten(self.operation, &mut structured);
        Ok(Reply {
            structured,
            text_field: text_field(self.operation),
        })
    }

    /// The error if this gateway refused the reply for lack of memory.
    fn refusal(&self) -> Option<Error> {
        self.lease.as_ref()?.refusal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Target;

    #[tokio::test]
    async fn a_write_that_was_too_slow_may_have_been_made() {
        let backend = Backend::new(Target::Unix("/nonexistent.sock".into()), 1024).unwrap();
        let error = |operation| {
            let call = Call {
                backend: &backend,
                metadata: MetadataMap::new(),
                operation,
                lease: None,
            };
            // The timer of tonic, which runs beside that of the caller.
            let status = Status::from_error(Box::new(tonic::TimeoutExpired(())));
            call.to_reply::<model::StoreContextReply, pb::StoreContextResponse>(Err(status))
                .unwrap_err()
        };
        let write = error(Operation::StoreContext);
        assert_eq!(write.reason, Reason::DeadlineExceeded);
        assert!(write.message.ends_with(OUTCOME_UNKNOWN), "{write}");
        let read = error(Operation::ListThreads);
        assert_eq!(read.reason, Reason::DeadlineExceeded);
        assert!(read.message.ends_with("or try again"), "{read}");
    }
}
