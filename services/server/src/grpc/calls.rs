//! What all gRPC methods do: convert the request, run the operation, convert the reply.

use std::future::Future;
use std::sync::Arc;

use context_engine::{Engine, WriteContext};
use context_model::{Error, Operation};
use prost::Message;
use tonic::{Request, Response, Status};

use super::deadline::deadline;
use crate::app::App;
use crate::error_codes::status;
use crate::request_context::RequestContext;
use crate::transport::Transport;
use crate::write_context;

/// Replies smaller than this are not compressed.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// The reply of a method.
pub type Reply<T> = Result<Response<T>, Status>;

/// Runs the operations of one service.
#[derive(Clone)]
pub struct Calls {
    app: Arc<App>,
}

impl Calls {
    /// Runs operations on this shared state.
    #[must_use]
    pub const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// The engine, which has the operations.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.app.engine
    }

    /// The shared state.
    #[must_use]
    pub const fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Converts a request, runs the operation on it, and converts the reply.
    ///
    /// # Errors
    /// The status for the error of any of these steps.
    pub async fn run<P, M, T, R, F>(
        &self,
        operation: Operation,
        request: Request<P>,
        work: impl FnOnce(RequestContext, M) -> F,
    ) -> Result<Response<R>, Status>
    where
        P: Message,
        M: TryFrom<P, Error: Into<Error>>,
        F: Future<Output = Result<T, Error>>,
        R: TryFrom<T, Error: Into<Error>> + Message,
    {
        let ctx = RequestContext::of(request.extensions()).map_err(|error| status(&error))?;
        let deadline = deadline(request.metadata());
        let message = request.into_inner();
        let work = async {
            work(
                ctx.clone(),
                M::try_from(message).map_err(Into::<Error>::into)?,
            )
            .await
        };
        let reply = self
            .app
            .call(&ctx, operation, Transport::Grpc, deadline, work)
            .await
            .map_err(|error| status(&error))?;
        Self::reply(&ctx, reply)
    }

    /// Converts the reply of an operation.
    ///
    /// # Errors
    /// The status for a reply that cannot be converted, or for which there is no memory.
    pub fn reply<T, R>(ctx: &RequestContext, reply: T) -> Result<Response<R>, Status>
    where
        R: TryFrom<T, Error: Into<Error>> + Message,
    {
        let reply = R::try_from(reply).map_err(|error| status(&error.into()))?;
        let bytes = reply.encoded_len();
        // The size of the encoded reply, plus half of it for the growth of the buffer. With this factor the largest
        // entry still fits into an owner's share.
        ctx.count_reply(bytes.saturating_add(bytes / 2))
            .map_err(|error| status(&error))?;
        let mut response = Response::new(reply);
        if bytes < MIN_COMPRESSED_BYTES {
            response.disable_compression();
        }
        Ok(response)
    }
}

/// Reads the metadata of a write request: the idempotency key, if there is one.
///
/// # Errors
/// `INVALID_ARGUMENT` for a malformed idempotency key.
pub fn write_context<P>(request: &Request<P>) -> Result<WriteContext, Error> {
    write_context::write_context(request.metadata().as_ref())
}
