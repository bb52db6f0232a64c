use std::net::SocketAddr;

use context_model::{Error, decode};
use context_proto::v1::artifact_service_client::ArtifactServiceClient;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::{error_from_status, v1 as pb};
use context_test_support::grpc::{Key, Keyed, LARGEST, at};
use serde_json::{Value, json};

use crate::Answer;
use crate::process::{Service, Storage};

/// The gRPC client.
pub struct Grpc {
    client: ContextServiceClient<Keyed>,
    artifacts: ArtifactServiceClient<Keyed>,
    changes: ChangeServiceClient<Keyed>,
    service: Option<Service>,
}

fn failure(error: &Error) -> Answer {
    Answer::err(
        &error.message,
        error.reason.as_str(),
        json!(error.violations),
    )
}

impl Grpc {
    pub(crate) async fn start(storage: Storage) -> Self {
        Self::to(Service::start(storage).await)
    }

    /// Starts a service with these settings and connects to it.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::to(Service::start_with(settings).await)
    }

    fn to(service: Service) -> Self {
        let client = Self::connect(service.address(), None);
        Self {
            service: Some(service),
            ..client
        }
    }

    /// Stops the service that was started with this client.
    pub(crate) fn close(self) {
        if let Some(service) = self.service {
            service.stop();
        }
    }

    /// Connects to a running service.
    pub(crate) fn connect(address: SocketAddr, key: Option<&str>) -> Self {
        let (channel, key) = (at(address), Key::new(key));
        let client = ContextServiceClient::with_interceptor(channel.clone(), key.clone());
        Self {
            artifacts: ArtifactServiceClient::with_interceptor(channel.clone(), key.clone()),
            changes: ChangeServiceClient::with_interceptor(channel, key),
            client: client
                .max_decoding_message_size(LARGEST)
                .max_encoding_message_size(LARGEST),
            service: None,
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        /// Makes a call by the conversions JSON → model → message → RPC → message → model → JSON.
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
            "get_thread" => rpc!(
                get_thread,
                m::GetThreadRequest,
                pb::GetThreadRequest,
                m::GetThreadReply
            ),
            "list_tags" => rpc!(
                list_tags,
                m::ListTagsRequest,
                pb::ListTagsRequest,
                m::ListTagsReply
            ),
            "list_metadata_keys" => rpc!(
                list_metadata_keys,
                m::ListMetadataKeysRequest,
                pb::ListMetadataKeysRequest,
                m::ListMetadataKeysReply
            ),
            "list_metadata_values" => rpc!(
                list_metadata_values,
                m::ListMetadataValuesRequest,
                pb::ListMetadataValuesRequest,
                m::ListMetadataValuesReply
            ),
            "list_days" => rpc!(
                list_days,
                m::ListDaysRequest,
                pb::ListDaysRequest,
                m::ListDaysReply
            ),
            "get_statistics" => match self
                .client
                .get_statistics(pb::GetStatisticsRequest {
                    min_revision: arguments["min_revision"].as_i64(),
                })
                .await
            {
                Ok(response) => {
                    let statistics =
                        m::Statistics::try_from(response.into_inner()).expect("statistics convert");
                    serde_json::to_value(statistics).expect("a reply is JSON")
                }
                Err(status) => return failure(&error_from_status(&status)),
            },
            "changes_since" => rpc!(
                changes.list_changes,
                m::ListChangesRequest,
                pb::ListChangesRequest,
                m::ListChangesReply
            ),
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
            "move_artifacts" => rpc!(
                artifacts.move_artifacts,
                m::MoveArtifactsRequest,
                pb::MoveArtifactsRequest,
                m::MoveArtifactsReply
            ),
            "delete_artifacts" => rpc!(
                artifacts.delete_artifacts,
                m::DeleteArtifactsRequest,
                pb::DeleteArtifactsRequest,
                m::DeleteArtifactsReply
            ),
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
