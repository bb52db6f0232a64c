//! `context.v1.ApiKeyService`: each method converts, calls the engine and converts back.

use context_proto::v1 as pb;
use context_proto::v1::api_key_service_server::ApiKeyService;
use tonic::{Request, Response};

use super::contexts::{Contexts, Reply};
use crate::authenticate::Who;
use crate::wire::status;
use context_model::Operation;

#[tonic::async_trait]
impl ApiKeyService for Contexts {
    async fn create_api_key(
        &self,
        request: Request<pb::CreateApiKeyRequest>,
    ) -> Reply<pb::CreateApiKeyResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.create_api_key(who.caller(), request).await
        };
        self.run(Operation::CreateApiKey, request, work).await
    }

    async fn list_api_keys(
        &self,
        request: Request<pb::ListApiKeysRequest>,
    ) -> Reply<pb::ListApiKeysResponse> {
        let work = |who: Who, _: pb::ListApiKeysRequest| async move {
            self.app.engine.list_api_keys(who.caller()).await
        };
        self.run(Operation::ListApiKeys, request, work).await
    }

    async fn get_api_key(
        &self,
        request: Request<pb::GetApiKeyRequest>,
    ) -> Reply<pb::GetApiKeyResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.get_api_key(who.caller(), request).await
        };
        self.run(Operation::GetApiKey, request, work).await
    }

    async fn update_api_key(
        &self,
        request: Request<pb::UpdateApiKeyRequest>,
    ) -> Reply<pb::UpdateApiKeyResponse> {
        let work = |who: Who, request| async move {
            self.app.engine.update_api_key(who.caller(), request).await
        };
        self.run(Operation::UpdateApiKey, request, work).await
    }

    async fn deactivate_api_key(
        &self,
        request: Request<pb::DeactivateApiKeyRequest>,
    ) -> Reply<pb::DeactivateApiKeyResponse> {
        let work = |who: Who, request| async move {
            self.app
                .engine
                .deactivate_api_key(who.caller(), request)
                .await
        };
        self.run(Operation::DeactivateApiKey, request, work).await
    }

    async fn get_caller(
        &self,
        request: Request<pb::GetCallerRequest>,
    ) -> Reply<pb::GetCallerResponse> {
        let who = Who::of(request.extensions()).map_err(|error| status(&error))?;
        let caller = who.caller();
        let scopes = caller
            .scopes
            .iter()
            .map(|scope| scope.as_str().to_owned())
            .collect();
        let threads = caller
            .within()
            .map(context_model::ThreadSet::shown)
            .unwrap_or_default();
        Ok(Response::new(pb::GetCallerResponse {
            scopes,
            only: caller.reach.as_str().map(str::to_owned),
            threads,
        }))
    }
}
