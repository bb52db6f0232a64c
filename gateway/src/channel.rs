//! The HTTP/2 connections to the service, and the memory accounting of replies.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// of requests, and thus of connections. Of those without requests one stays open, for the next request.
///
/// If a request carries a [`Lease`], its reply is refused unless there is memory for everything that is built from it.
/// A reply larger than `max_message_bytes` takes no memory: the clients refuse it.
#[derive(Clone)]
pub struct Connections {
    connect: Arc<dyn Fn() -> Channel + Send + Sync>,
    open: Arc<Open>,
    max_message_bytes: usize,
}

type Open = Mutex<Vec<Connection>>;

#[derive(Debug)]
struct Connection {
    channel: Channel,
    free: Arc<Semaphore>,
}

/// One request of a connection. It counts until it is dropped.
#[derive(Debug)]
struct Slot {
    /// `None` only while this is dropped.
    permit: Option<OwnedSemaphorePermit>,
    open: Arc<Open>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut unused = 0;
        locked(&self.open).retain(|connection| {
            let is_unused = connection.free.available_permits() == MAX_REQUESTS;
            unused += usize::from(is_unused);
            !is_unused || unused == 1
        });
    }
}

fn locked(open: &Open) -> MutexGuard<'_, Vec<Connection>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connections {
    /// Connections that `connect` makes, each at its first request. A request must be sent inside a Tokio runtime.
    #[must_use]
    pub fn new(connect: Box<dyn Fn() -> Channel + Send + Sync>, max_message_bytes: usize) -> Self {
        Self {
            connect: connect.into(),
            open: Arc::default(),
            max_message_bytes,
        }
    }

    /// A connection for one more request, which holds the slot until it has ended.
    fn one_with_room(&self) -> (Channel, Slot) {
        let mut open = locked(&self.open);
        loop {
            let with_room = open.iter().find_map(|connection| {
                let permit = connection.free.clone().try_acquire_owned().ok()?;
                Some((connection.channel.clone(), permit))
            });
            if let Some((channel, permit)) = with_room {
                let slot = Slot {
                    permit: Some(permit),
                    open: self.open.clone(),
                };
                return (channel, slot);
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
        let (mut channel, slot) = self.one_with_room();
        let max_message_bytes = self.max_message_bytes;
        Box::pin(async move {
            std::future::poll_fn(|context| channel.poll_ready(context)).await?;
            Ok(channel.call(request).await?.map(|inner| CountedBody {
                inner,
                lease,
                max_message_bytes,
                prefix: Vec::new(),
                _slot: slot,
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
    max_message_bytes: usize,
    /// The message's prefix as received so far: one flag byte and four bytes of length.
    prefix: Vec<u8>,
    _slot: Slot,
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
        if length > self.max_message_bytes {
            // The client refuses the message when it has read this prefix.
            return Ok(());
        }
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

#[cfg(test)]
mod tests {
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test]
    async fn connections_that_streams_no_longer_need_are_closed_but_one() {
        let connect = Box::new(|| Endpoint::from_static("http://127.0.0.1:1").connect_lazy());
        let connections = Connections::new(connect, 1024);
        let number = || locked(&connections.open).len();
        let mut slots: Vec<Slot> = (0..=2 * MAX_REQUESTS)
            .map(|_| connections.one_with_room().1)
            .collect();
        assert_eq!(number(), 3);
        // The last slot is alone on its connection, which stays for the next request.
        slots.truncate(2 * MAX_REQUESTS);
        assert_eq!(number(), 3);
        // Without its streams, the second connection is one more than that.
        slots.truncate(MAX_REQUESTS);
        assert_eq!(number(), 2);
        slots.clear();
        assert_eq!(number(), 1);
        drop(connections.one_with_room());
        assert_eq!(number(), 1);
    }
}
