//! `context.v1.ArtifactService`. Each method converts the request, calls the engine, and converts
//! the reply.

use context_model::Operation;
use context_proto::v1 as pb;
use context_proto::v1::artifact_service_server::ArtifactService;
use tonic::Request;

use super::calls::{Calls, Reply, write_context};
use crate::request_context::RequestContext;

/// The artifact service.
pub struct Artifacts {
    calls: Calls,
}

impl Artifacts {
    /// A service that runs its operations through `calls`.
    #[must_use]
    pub const fn new(calls: Calls) -> Self {
        Self { calls }
    }
}

#[tonic::async_trait]
impl ArtifactService for Artifacts {
    async fn create_artifact(
        &self,
        request: Request<pb::CreateArtifactRequest>,
    ) -> Reply<pb::CreateArtifactResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .create_artifact(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::CreateArtifact, request, work)
            .await
    }

    async fn list_artifacts(
        &self,
        request: Request<pb::ListArtifactsRequest>,
    ) -> Reply<pb::ListArtifactsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .list_artifacts(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::ListArtifacts, request, work)
            .await
    }

    async fn search_artifacts(
        &self,
        request: Request<pb::SearchArtifactsRequest>,
    ) -> Reply<pb::SearchArtifactsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .search_artifacts(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::SearchArtifacts, request, work)
            .await
    }

    async fn get_artifact(
        &self,
        request: Request<pb::GetArtifactRequest>,
    ) -> Reply<pb::GetArtifactResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .get_artifact(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::GetArtifact, request, work).await
    }

    async fn update_artifact(
        &self,
        request: Request<pb::UpdateArtifactRequest>,
    ) -> Reply<pb::UpdateArtifactResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .update_artifact(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::UpdateArtifact, request, work)
            .await
    }

    async fn delete_artifact(
        &self,
        request: Request<pb::DeleteArtifactRequest>,
    ) -> Reply<pb::DeleteArtifactResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .delete_artifact(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::DeleteArtifact, request, work)
            .await
    }

    async fn move_artifacts(
        &self,
        request: Request<pb::MoveArtifactsRequest>,
    ) -> Reply<pb::MoveArtifactsResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .move_artifacts(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::MoveArtifacts, request, work)
            .await
    }

    async fn delete_artifacts(
        &self,
        request: Request<pb::DeleteArtifactsRequest>,
    ) -> Reply<pb::DeleteArtifactsResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .delete_artifacts(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::DeleteArtifacts, request, work)
            .await
    }

    async fn list_artifact_versions(
        &self,
        request: Request<pb::ListArtifactVersionsRequest>,
    ) -> Reply<pb::ListArtifactVersionsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .list_artifact_versions(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::ListArtifactVersions, request, work)
            .await
    }

    async fn get_artifact_version(
        &self,
        request: Request<pb::GetArtifactVersionRequest>,
    ) -> Reply<pb::GetArtifactVersionResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .get_artifact_version(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::GetArtifactVersion, request, work)
            .await
    }

    async fn restore_artifact_version(
        &self,
        request: Request<pb::RestoreArtifactVersionRequest>,
    ) -> Reply<pb::RestoreArtifactVersionResponse> {
        let write = write_context(&request);
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .restore_artifact_version(ctx.caller(), request, write?)
                .await
        };
        self.calls
            .run(Operation::RestoreArtifactVersion, request, work)
            .await
    }

    async fn diff_artifact_versions(
        &self,
        request: Request<pb::DiffArtifactVersionsRequest>,
    ) -> Reply<pb::DiffArtifactVersionsResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .artifacts
                .diff_artifact_versions(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::DiffArtifactVersions, request, work)
            .await
    }
}
