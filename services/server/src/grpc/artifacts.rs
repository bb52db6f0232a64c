//! `context.v1.ArtifactService`: each method converts, calls the engine and converts back.

use context_proto::v1 as pb;
use context_proto::v1::artifact_service_server::ArtifactService;
use tonic::Request;

use super::contexts::{Contexts, Reply, write_context};
use crate::authenticate::Who;
use context_model::Operation;

#[tonic::async_trait]
impl ArtifactService for Contexts {
    async fn create_artifact(
        &self,
        request: Request<pb::CreateArtifactRequest>,
    ) -> Reply<pb::CreateArtifactResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .create_artifact(who.caller(), request, write?)
                .await
        };
        self.run(Operation::CreateArtifact, request, work).await
    }

    async fn list_artifacts(
        &self,
        request: Request<pb::ListArtifactsRequest>,
    ) -> Reply<pb::ListArtifactsResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.list_artifacts(who.caller(), request).await
        };
        self.run(Operation::ListArtifacts, request, work).await
    }

    async fn search_artifacts(
        &self,
        request: Request<pb::SearchArtifactsRequest>,
    ) -> Reply<pb::SearchArtifactsResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .search_artifacts(who.caller(), request)
                .await
        };
        self.run(Operation::SearchArtifacts, request, work).await
    }

    async fn get_artifact(
        &self,
        request: Request<pb::GetArtifactRequest>,
    ) -> Reply<pb::GetArtifactResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.get_artifact(who.caller(), request).await
        };
        self.run(Operation::GetArtifact, request, work).await
    }

    async fn update_artifact(
        &self,
        request: Request<pb::UpdateArtifactRequest>,
    ) -> Reply<pb::UpdateArtifactResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .update_artifact(who.caller(), request, write?)
                .await
        };
        self.run(Operation::UpdateArtifact, request, work).await
    }

    async fn delete_artifact(
        &self,
        request: Request<pb::DeleteArtifactRequest>,
    ) -> Reply<pb::DeleteArtifactResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .delete_artifact(who.caller(), request, write?)
                .await
        };
        self.run(Operation::DeleteArtifact, request, work).await
    }

    async fn list_artifact_versions(
        &self,
        request: Request<pb::ListArtifactVersionsRequest>,
    ) -> Reply<pb::ListArtifactVersionsResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .list_artifact_versions(who.caller(), request)
                .await
        };
        self.run(Operation::ListArtifactVersions, request, work)
            .await
    }

    async fn get_artifact_version(
        &self,
        request: Request<pb::GetArtifactVersionRequest>,
    ) -> Reply<pb::GetArtifactVersionResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .get_artifact_version(who.caller(), request)
                .await
        };
        self.run(Operation::GetArtifactVersion, request, work).await
    }

    async fn restore_artifact_version(
        &self,
        request: Request<pb::RestoreArtifactVersionRequest>,
    ) -> Reply<pb::RestoreArtifactVersionResponse> {
        let write = write_context(&request);
        let work = |who: Who, request| async move {
            self.app
                .engine
                .restore_artifact_version(who.caller(), request, write?)
                .await
        };
        self.run(Operation::RestoreArtifactVersion, request, work)
            .await
    }

    async fn diff_artifact_versions(
        &self,
        request: Request<pb::DiffArtifactVersionsRequest>,
    ) -> Reply<pb::DiffArtifactVersionsResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .diff_artifact_versions(who.caller(), request)
                .await
        };
        self.run(Operation::DiffArtifactVersions, request, work)
            .await
    }
}
