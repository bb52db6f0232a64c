//! How every method of the gRPC services runs its operation.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use context_engine::{Engine, WriteContext};
use context_model::{Error, Operation};
use prost::Message;
use tonic::{Request, Response, Status};

use super::deadline::deadline;
use crate::app::App;
use crate::transport::Transport;
use crate::who::Who;
use crate::wire::status;
use crate::write_context;

/// A reply smaller than this is not worth compressing.
const MIN_COMPRESSED_BYTES: usize = 1024;

/// The reply of a method.
pub type Reply<T> = Result<Response<T>, Status>;

/// Runs the operations of one application.
#[derive(Clone)]
pub struct Calls {
    app: Arc<App>,
}

impl Calls {
    /// The calls of this application.
    #[must_use]
    pub const fn new(app: Arc<App>) -> Self {
        Self { app }
    }

    /// The operations.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.app.engine
    }

    /// Converts a request, runs the operation on it, and converts the reply.
    ///
    /// # Errors
    /// The status of whatever failed.
    pub async fn run<P, M, T, R, F>(
        &self,
        operation: Operation,
        request: Request<P>,
        work: impl FnOnce(Who, M) -> F,
    ) -> Result<Response<R>, Status>
    where
        P: Message,
        M: TryFrom<P>,
        M::Error: Refusal,
        F: Future<Output = Result<T, Error>>,
        R: TryFrom<T> + Message,
        R::Error: Refusal,
    {
        let who = Who::of(request.extensions()).map_err(|error| status(&error))?;
        let deadline = deadline(request.metadata());
        let message = request.into_inner();
        let caller = who.clone();
        let work = async { work(caller, M::try_from(message).map_err(Refusal::into_error)?).await };
        let reply = self
            .app
            .call(&who, operation, Transport::Grpc, deadline, work)
            .await
            .map_err(|error| status(&error))?;
        let reply = R::try_from(reply).map_err(|error| status(&error.into_error()))?;
        let bytes = reply.encoded_len();
        // Its encoding, and half of that while the buffer grows. With it the largest entry still fits an owner's share.
        who.count_reply(bytes.saturating_add(bytes / 2))
            .map_err(|error| status(&error))?;
        let mut response = Response::new(reply);
        if bytes < MIN_COMPRESSED_BYTES {
            response.disable_compression();
        }
        Ok(response)
    }
}

/// Why a message could not become a request, or a reply a message.
pub trait Refusal {
    /// The error that says so.
    fn into_error(self) -> Error;
}

impl Refusal for Error {
    fn into_error(self) -> Error {
        self
    }
}

impl Refusal for Infallible {
    fn into_error(self) -> Error {
        match self {}
    }
}

/// What comes with a write beside its message.
///
/// # Errors
/// `INVALID_ARGUMENT` for a malformed idempotency key.
pub fn write_context<P>(request: &Request<P>) -> Result<WriteContext, Error> {
    write_context::write_context(request.metadata().as_ref())
}
