use context_model::{Error, decode};
use context_proto::v1::artifact_service_client::ArtifactServiceClient;
use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::{error_from_status, v1 as pb};
use serde_json::{Value, json};
use tonic::metadata::AsciiMetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::Answer;
use crate::process::{Service, Storage};

/// The gRPC door.
pub struct Grpc {
    client: ContextServiceClient<Keyed>,
    artifacts: ArtifactServiceClient<Keyed>,
    service: Option<Service>,
}

type Keyed = InterceptedService<Channel, Key>;

/// The value of the `authorization` that goes with each call.
#[derive(Clone)]
struct Key(Option<AsciiMetadataValue>);

impl Interceptor for Key {
    fn call(
        &mut self,
        mut request: tonic::Request<()>,
    ) -> Result<tonic::Request<()>, tonic::Status> {
        if let Self(Some(value)) = self {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

fn failure(error: &Error) -> Answer {
    Answer::err(
        &error.message,
        error.reason.as_str(),
        json!(error.violations),
    )
}

/// Starts a service and waits until it answers: its port listens before its database is open.
pub(crate) async fn start_answering(settings: &[(&str, &str)]) -> Service {
    let service = Service::start_with(settings).await;
    let answer = Grpc::connect(&service.address, None)
        .await
        .call("get_statistics", &json!({}))
        .await;
    assert!(
        matches!(answer, Answer::Ok(_)),
        "the service does not answer: {answer:?}"
    );
    service
}

impl Grpc {
    pub(crate) async fn start(storage: Storage) -> Self {
        let service = Service::start(storage).await;
        let door = Self::connect(&service.address, None).await;
        Self {
            service: Some(service),
            ..door
        }
    }

    /// To a service with these settings.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let service = start_answering(settings).await;
        let door = Self::connect(&service.address, None).await;
        Self {
            service: Some(service),
            ..door
        }
    }

    /// Ends the service that was started with this door.
    pub(crate) async fn close(self) {
        if let Some(service) = self.service {
            service.stop().await;
        }
    }

    /// To a service that runs already.
    pub(crate) async fn connect(address: &str, key: Option<&str>) -> Self {
        let key = Key(key.map(|key| format!("Bearer {key}").parse().expect("a header")));
        let channel = Channel::from_shared(format!("http://{address}"))
            .expect("an address")
            .connect()
            .await
            .expect("a connection");
        let client = ContextServiceClient::with_interceptor(channel.clone(), key.clone());
        let artifacts = ArtifactServiceClient::with_interceptor(channel, key);
        Self {
            artifacts,
            client: client
                .max_decoding_message_size(256 << 20)
                .max_encoding_message_size(256 << 20),
            service: None,
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        /// JSON → model → message → RPC → message → model → JSON.
        macro_rules! rpc {
            ($method:ident, $request:ty, $message:ty, $reply:ty) => {
                rpc!(client.$method, $request, $message, $reply)
            };
            ($client:ident.$method:ident, $request:ty, $message:ty, $reply:ty) => {{
                let request: $request = match decode(arguments.clone()) {
                    Ok(request) => request,
                    Err(error) => return failure(&error),
                };
                match self.$client.$method(<$message>::from(request)).await {
                    Ok(response) => match <$reply>::try_from(response.into_inner()) {
                        Ok(reply) => serde_json::to_value(reply).expect("a reply is JSON"),
                        Err(error) => panic!("{tool}: the reply does not convert: {error:?}"),
                    },
                    Err(status) => return failure(&error_from_status(&status)),
                }
            }};
        }
        use context_model as m;
        let reply = match tool {
            "store_context" => rpc!(
                store_context,
                m::StoreContextRequest,
                pb::StoreContextRequest,
                m::StoreContextReply
            ),
            "store_context_batch" => rpc!(
                store_context_batch,
                m::StoreContextBatchRequest,
                pb::StoreContextBatchRequest,
                m::BatchReply
            ),
            "get_context_by_ids" => {
                rpc!(
                    get_context_by_ids,
                    m::GetContextByIdsRequest,
                    pb::GetContextByIdsRequest,
                    m::GetContextByIdsReply
                )
            }
            "update_context" => rpc!(
                update_context,
                m::UpdateContextRequest,
                pb::UpdateContextRequest,
                m::UpdateContextReply
            ),
            "update_context_batch" => {
                rpc!(
                    update_context_batch,
                    m::UpdateContextBatchRequest,
                    pb::UpdateContextBatchRequest,
                    m::BatchReply
                )
            }
            "delete_context" => rpc!(
                delete_context,
                m::DeleteContextRequest,
                pb::DeleteContextRequest,
                m::DeleteContextReply
            ),
            "delete_context_batch" => {
                rpc!(
                    delete_context_batch,
                    m::DeleteContextBatchRequest,
                    pb::DeleteContextBatchRequest,
                    m::DeleteContextBatchReply
                )
            }
            "search_context" => rpc!(
                search_context,
                m::SearchContextRequest,
                pb::SearchContextRequest,
                m::SearchContextReply
            ),
            "fts_search_context" => {
                rpc!(
                    fts_search_context,
                    m::FtsSearchContextRequest,
                    pb::FtsSearchContextRequest,
                    m::FtsSearchContextReply
                )
            }
            "semantic_search_context" => rpc!(
                semantic_search_context,
                m::SemanticSearchContextRequest,
                pb::SemanticSearchContextRequest,
                m::SemanticSearchContextReply
            ),
            "hybrid_search_context" => {
                rpc!(
                    hybrid_search_context,
                    m::HybridSearchContextRequest,
                    pb::HybridSearchContextRequest,
                    m::HybridSearchContextReply
                )
            }
            "list_threads" => rpc!(
                list_threads,
                m::ListThreadsRequest,
                pb::ListThreadsRequest,
                m::ListThreadsReply
            ),
            "get_statistics" => match self
                .client
                .get_statistics(pb::GetStatisticsRequest { min_revision: None })
                .await
            {
                Ok(response) => {
                    let statistics =
                        m::Statistics::try_from(response.into_inner()).expect("statistics convert");
                    serde_json::to_value(statistics).expect("a reply is JSON")
                }
                Err(status) => return failure(&error_from_status(&status)),
            },
            "create_artifact" => {
                rpc!(
                    artifacts.create_artifact,
                    m::CreateArtifactRequest,
                    pb::CreateArtifactRequest,
                    m::CreateArtifactReply
                )
            }
            "list_artifacts" => rpc!(
                artifacts.list_artifacts,
                m::ListArtifactsRequest,
                pb::ListArtifactsRequest,
                m::ListArtifactsReply
            ),
            "search_artifacts" => {
                rpc!(
                    artifacts.search_artifacts,
                    m::SearchArtifactsRequest,
                    pb::SearchArtifactsRequest,
                    m::SearchArtifactsReply
                )
            }
            "get_artifact" => rpc!(
                artifacts.get_artifact,
                m::GetArtifactRequest,
                pb::GetArtifactRequest,
                m::GetArtifactReply
            ),
            "update_artifact" => {
                rpc!(
                    artifacts.update_artifact,
                    m::UpdateArtifactRequest,
                    pb::UpdateArtifactRequest,
                    m::UpdateArtifactReply
                )
            }
            "delete_artifact" => {
                rpc!(
                    artifacts.delete_artifact,
                    m::DeleteArtifactRequest,
                    pb::DeleteArtifactRequest,
                    m::DeleteArtifactReply
                )
            }
            "list_artifact_versions" => rpc!(
                artifacts.list_artifact_versions,
                m::ListArtifactVersionsRequest,
                pb::ListArtifactVersionsRequest,
                m::ListArtifactVersionsReply
            ),
            "get_artifact_version" => rpc!(
                artifacts.get_artifact_version,
                m::GetArtifactVersionRequest,
                pb::GetArtifactVersionRequest,
                m::GetArtifactVersionReply
            ),
            "restore_artifact_version" => rpc!(
                artifacts.restore_artifact_version,
                m::RestoreArtifactVersionRequest,
                pb::RestoreArtifactVersionRequest,
                m::RestoreArtifactVersionReply
            ),
            "diff_artifact_versions" => rpc!(
                artifacts.diff_artifact_versions,
                m::DiffArtifactVersionsRequest,
                pb::DiffArtifactVersionsRequest,
                m::DiffArtifactVersionsReply
            ),
            other => panic!("no such operation: {other}"),
        };
        Answer::ok(reply)
    }
}
