//! The HTTP/2 connections to the service, and the memory accounting of replies.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::transport::Channel;
use tower::Service;

use crate::memory::Lease;

/// Maximum number of requests on one connection. The service allows 128. One request beyond that would make all later
/// ones of the connection wait. The difference is for requests that have ended here but not yet in the service.
const MAX_REQUESTS: usize = 100;

/// The connections to the service, as one channel. Each carries at most `MAX_REQUESTS`; when all are full, another
/// one is opened. So streams and calls that wait for changes do not block other calls. The transports limit the number
/// of requests, and thus of connections.
///
/// If a request carries a [`Lease`], its reply is refused unless there is memory for everything that is built from it.
#[derive(Clone)]
pub struct Connections {
    connect: Arc<dyn Fn() -> Channel + Send + Sync>,
    open: Arc<Mutex<Vec<Connection>>>,
}

struct Connection {
    channel: Channel,
    free: Arc<Semaphore>,
}

impl Connections {
    /// Connections that `connect` makes, each at its first request. A request must be sent inside a Tokio runtime.
    #[must_use]
    pub fn new(connect: Box<dyn Fn() -> Channel + Send + Sync>) -> Self {
        Self {
            connect: connect.into(),
            open: Arc::default(),
        }
    }

    /// A connection for one more request, which holds the permit until it has ended.
    fn one_with_room(&self) -> (Channel, OwnedSemaphorePermit) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let with_room = open.iter().find_map(|connection| {
                let permit = connection.free.clone().try_acquire_owned().ok()?;
                Some((connection.channel.clone(), permit))
            });
            if let Some(found) = with_room {
                return found;
            }
            open.push(Connection {
                channel: (self.connect)(),
                free: Arc::new(Semaphore::new(MAX_REQUESTS)),
            });
        }
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Service<http::Request<tonic::body::Body>> for Connections {
    type Response = http::Response<CountedBody>;
    type Error = tonic::transport::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // Which connection must be ready is only known when the request is sent.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<tonic::body::Body>) -> Self::Future {
        let lease = request.extensions_mut().remove::<Arc<Lease>>();
        let (mut channel, permit) = self.one_with_room();
        Box::pin(async move {
            std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            Ok(channel.call(request).await?.map(|inner| CountedBody {
                inner,
                lease,
                prefix: Vec::new(),
                _permit: permit,
            }))
        })
    }
}

/// Bytes before a gRPC message
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, Length-Prefixed-Message).
const PREFIX_BYTES: usize = 5;

/// The body of a reply. If it has a lease, it holds exactly one message.
#[derive(Debug)]
pub struct CountedBody {
    inner: tonic::body::Body,
    lease: Option<Arc<Lease>>,
    /// The message's prefix as received so far: one flag byte and four bytes of length.
    prefix: Vec<u8>,
    _permit: OwnedSemaphorePermit,
}

impl CountedBody {
    /// Reserves memory for the message once its length is known. The service is trusted to send the
    /// length it announces.
    fn count(&mut self, data: &[u8]) -> Result<(), tonic::Status> {
        let Some(lease) = self
            .lease
            .as_ref()
            .filter(|_| self.prefix.len() < PREFIX_BYTES)
        else {
            return Ok(());
        };
        let missing = PREFIX_BYTES - self.prefix.len();
        self.prefix
            .extend_from_slice(&data[..missing.min(data.len())]);
        let &[_, a, b, c, d] = self.prefix.as_slice() else {
            return Ok(());
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        lease
            .admit_reply(length)
            .map_err(|error| tonic::Status::resource_exhausted(error.message))
    }
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, tonic::Status>>> {
        let this = self.get_mut();
        let frame = std::task::ready!(Pin::new(&mut this.inner).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(
                frame
                    .data_ref()
                    .map_or(Ok(()), |data| this.count(data))
                    .map(|()| frame),
            ),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
