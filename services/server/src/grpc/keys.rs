//! `context.v1.ApiKeyService`. Each method converts the request, calls the engine, and converts the reply. Only
//! `get_caller` does not: it returns what the edge determined.

use context_model::{Operation, ThreadSet};
use context_proto::v1 as pb;
use context_proto::v1::api_key_service_server::ApiKeyService;
use tonic::{Request, Response};

use super::calls::{Calls, Reply};
use crate::error_codes::status;
use crate::request_context::RequestContext;

/// The API key service.
pub struct ApiKeys {
    calls: Calls,
}

impl ApiKeys {
    /// A service that runs its operations through `calls`.
    #[must_use]
    pub const fn new(calls: Calls) -> Self {
        Self { calls }
    }
}

#[tonic::async_trait]
impl ApiKeyService for ApiKeys {
    async fn create_api_key(
        &self,
        request: Request<pb::CreateApiKeyRequest>,
    ) -> Reply<pb::CreateApiKeyResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .access
                .create_api_key(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::CreateApiKey, request, work).await
    }

    async fn list_api_keys(
        &self,
        request: Request<pb::ListApiKeysRequest>,
    ) -> Reply<pb::ListApiKeysResponse> {
        let work = |ctx: RequestContext, _: pb::ListApiKeysRequest| async move {
            self.calls.engine().access.list_api_keys(ctx.caller()).await
        };
        self.calls.run(Operation::ListApiKeys, request, work).await
    }

    async fn get_api_key(
        &self,
        request: Request<pb::GetApiKeyRequest>,
    ) -> Reply<pb::GetApiKeyResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .access
                .get_api_key(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::GetApiKey, request, work).await
    }

    async fn update_api_key(
        &self,
        request: Request<pb::UpdateApiKeyRequest>,
    ) -> Reply<pb::UpdateApiKeyResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .access
                .update_api_key(ctx.caller(), request)
                .await
        };
        self.calls.run(Operation::UpdateApiKey, request, work).await
    }

    async fn deactivate_api_key(
        &self,
        request: Request<pb::DeactivateApiKeyRequest>,
    ) -> Reply<pb::DeactivateApiKeyResponse> {
        let work = |ctx: RequestContext, request| async move {
            self.calls
                .engine()
                .access
                .deactivate_api_key(ctx.caller(), request)
                .await
        };
        self.calls
            .run(Operation::DeactivateApiKey, request, work)
            .await
    }

    async fn get_caller(
        &self,
        request: Request<pb::GetCallerRequest>,
    ) -> Reply<pb::GetCallerResponse> {
        let ctx = RequestContext::of(request.extensions()).map_err(|error| status(&error))?;
        let caller = ctx.caller();
        let scopes = caller
            .scopes
            .iter()
            .map(|scope| scope.as_str().to_owned())
            .collect();
        let threads = caller.within().map(ThreadSet::shown).unwrap_or_default();
        Ok(Response::new(pb::GetCallerResponse {
            scopes,
            only: caller.reach.as_str().map(str::to_owned),
            threads,
        }))
    }
}
