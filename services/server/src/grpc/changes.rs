//! `context.v1.ChangeService`.

use context_model::{Error, ListChangesRequest};
use context_proto::v1 as pb;
use context_proto::v1::change_service_server::ChangeService;
use tonic::Request;

use super::calls::{Calls, Reply};
use super::deadline::deadline;
use crate::authenticate::Credentials;
use crate::changes;
use crate::error_codes::status;
use crate::transport::Transport;
use crate::who::Who;

/// The service for changes.
pub struct Changes {
    calls: Calls,
}

impl Changes {
    /// A service that runs its operations through `calls`.
    #[must_use]
    pub const fn new(calls: Calls) -> Self {
        Self { calls }
    }
}

#[tonic::async_trait]
impl ChangeService for Changes {
    async fn list_changes(
        &self,
        request: Request<pb::ListChangesRequest>,
    ) -> Reply<pb::ListChangesResponse> {
        let who = Who::of(request.extensions()).map_err(|error| status(&error))?;
        let waiting = changes::Waiting {
            app: self.calls.app(),
            who: &who,
            credentials: Credentials::of(request.metadata().as_ref()),
            transport: Transport::Grpc,
            deadline: deadline(request.metadata()),
        };
        let reply = async {
            let request: ListChangesRequest = request.into_inner().try_into()?;
            waiting.list_changes(request).await
        };
        let reply = reply.await.map_err(|error: Error| status(&error))?;
        Calls::reply(&who, reply)
    }
}
