//! `context.v1.ArtifactService`: each method converts, calls the engine and converts back.

use context_proto::v1 as pb;
use context_proto::v1::artifact_service_server::ArtifactService;
use tonic::Request;

use super::contexts::{Contexts, Reply, write_context};
use crate::app::caller;
use crate::operation::Operation;

#[tonic::async_trait]
impl ArtifactService for Contexts {
    async fn create_artifact(&self, request: Request<pb::CreateArtifactRequest>) -> Reply<pb::CreateArtifactResponse> {
        let write = write_context(&request)?;
        self.run(Operation::CreateArtifact, request, |request| self.app.engine.create_artifact(caller(), request, write)).await
    }

    async fn list_artifacts(&self, request: Request<pb::ListArtifactsRequest>) -> Reply<pb::ListArtifactsResponse> {
        self.run(Operation::ListArtifacts, request, |request| self.app.engine.list_artifacts(caller(), request)).await
    }

    async fn search_artifacts(&self, request: Request<pb::SearchArtifactsRequest>) -> Reply<pb::SearchArtifactsResponse> {
        self.run(Operation::SearchArtifacts, request, |request| self.app.engine.search_artifacts(caller(), request)).await
    }

    async fn get_artifact(&self, request: Request<pb::GetArtifactRequest>) -> Reply<pb::GetArtifactResponse> {
        self.run(Operation::GetArtifact, request, |request| self.app.engine.get_artifact(caller(), request)).await
    }

    async fn update_artifact(&self, request: Request<pb::UpdateArtifactRequest>) -> Reply<pb::UpdateArtifactResponse> {
        let write = write_context(&request)?;
        self.run(Operation::UpdateArtifact, request, |request| self.app.engine.update_artifact(caller(), request, write)).await
    }

    async fn delete_artifact(&self, request: Request<pb::DeleteArtifactRequest>) -> Reply<pb::DeleteArtifactResponse> {
        let write = write_context(&request)?;
        self.run(Operation::DeleteArtifact, request, |request| self.app.engine.delete_artifact(caller(), request, write)).await
    }

    async fn list_artifact_versions(&self, request: Request<pb::ListArtifactVersionsRequest>) -> Reply<pb::ListArtifactVersionsResponse> {
        self.run(Operation::ListArtifactVersions, request, |request| self.app.engine.list_artifact_versions(caller(), request)).await
    }

    async fn get_artifact_version(&self, request: Request<pb::GetArtifactVersionRequest>) -> Reply<pb::GetArtifactVersionResponse> {
        self.run(Operation::GetArtifactVersion, request, |request| self.app.engine.get_artifact_version(caller(), request)).await
    }

    async fn restore_artifact_version(
        &self,
        request: Request<pb::RestoreArtifactVersionRequest>,
    ) -> Reply<pb::RestoreArtifactVersionResponse> {
        let write = write_context(&request)?;
        self.run(Operation::RestoreArtifactVersion, request, |request| self.app.engine.restore_artifact_version(caller(), request, write))
            .await
    }

    async fn diff_artifact_versions(&self, request: Request<pb::DiffArtifactVersionsRequest>) -> Reply<pb::DiffArtifactVersionsResponse> {
        self.run(Operation::DiffArtifactVersions, request, |request| self.app.engine.diff_artifact_versions(caller(), request)).await
    }
}
