//! `context.v1.ChangeService`: the stream of changes, and the list of changes, which can wait for the next one.
//!
//! Both hold a slot only while they read, not while they wait. They therefore do not use [`Calls::run`].

use std::pin::Pin;

use context_model::{Error, ListChangesRequest, WatchEvent, WatchRequest};
use context_proto::v1 as pb;
use context_proto::v1::change_service_server::ChangeService;
use futures::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::calls::{Calls, Reply};
use super::deadline::deadline;
use crate::authenticate::Credentials;
use crate::changes;
use crate::error_codes::status;
use crate::request_context::RequestContext;
use crate::transport::Transport;
use crate::watch;

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
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn watch(&self, request: Request<pb::WatchRequest>) -> Reply<Self::WatchStream> {
        let opening = async {
            let ctx = RequestContext::of(request.extensions())?;
            let credentials = Credentials::of(request.metadata().as_ref());
            let request: WatchRequest = request.into_inner().try_into()?;
            watch::open(self.calls.app(), ctx, credentials, Transport::Grpc, request).await
        };
        let frames = opening.await.map_err(|error: Error| status(&error))?;
        let frames = frames.map(|event: Result<WatchEvent, Error>| {
            event
                .and_then(TryInto::try_into)
                .map_err(|error| status(&error))
        });
        Ok(Response::new(Box::pin(frames)))
    }

    async fn list_changes(
        &self,
        request: Request<pb::ListChangesRequest>,
    ) -> Reply<pb::ListChangesResponse> {
        let ctx = RequestContext::of(request.extensions()).map_err(|error| status(&error))?;
        let poll = changes::LongPoll {
            app: self.calls.app(),
            ctx: &ctx,
            credentials: Credentials::of(request.metadata().as_ref()),
            transport: Transport::Grpc,
            deadline: deadline(request.metadata()),
        };
        let reply = async {
            let request: ListChangesRequest = request.into_inner().try_into()?;
            poll.list_changes(request).await
        };
        let reply = reply.await.map_err(|error: Error| status(&error))?;
        Calls::reply(&ctx, reply)
    }
}
