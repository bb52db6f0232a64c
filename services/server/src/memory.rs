//! The memory that request and reply bodies may take together, so that many large ones at once cannot exhaust it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use context_model::{Error, Reason};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::admission::overloaded;

/// A body that sends nothing for this long is given up.
const STALL: Duration = Duration::from_secs(30);

/// Bytes that are shared by everything in flight.
#[derive(Debug)]
pub struct Budget {
    total: usize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of this many bytes.
    #[must_use]
    pub const fn new(total: usize) -> Self {
        Self { total, used: AtomicUsize::new(0) }
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.total);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }
}

/// A share of the budget; it goes back when the lease is dropped.
#[derive(Debug)]
pub struct Lease {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Lease {
    /// A share that is empty yet.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: AtomicUsize::new(0) }
    }

    /// Makes the share larger.
    ///
    /// # Errors
    /// `OVERLOADED` when the budget is used up; `REQUEST_TOO_LARGE` when it could never be enough.
    pub fn grow(&self, bytes: usize) -> Result<(), Error> {
        if bytes > self.budget.total {
            return Err(Error::new(Reason::RequestTooLarge, "the request would take more memory than there is; split it"));
        }
        if !self.budget.take(bytes) {
            return Err(overloaded());
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// The lease for a reply's body, as an extension of the reply until [`HeldBody`] takes it over.
#[derive(Debug, Clone)]
pub struct ReplyLease(pub Arc<Lease>);

/// How the bytes of a request body are counted.
#[derive(Debug)]
pub enum Framing {
    /// As they come.
    Plain,
    /// By the length that a gRPC message announces, because tonic reserves that at once; what comes later is part of
    /// it. A length beyond `limit` is refused with our reason before tonic refuses it with none.
    Grpc {
        /// Bytes of one message, at most.
        limit: usize,
        /// The start of the message as far as it has come: a flag and four bytes of length.
        prefix: Vec<u8>,
    },
}

/// Bytes before a gRPC message
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, Length-Prefixed-Message).
const PREFIX_BYTES: usize = 5;

impl Framing {
    /// gRPC with this limit.
    #[must_use]
    pub const fn grpc(limit: usize) -> Self {
        Self::Grpc { limit, prefix: Vec::new() }
    }

    fn count(&mut self, data: &[u8], lease: &Lease) -> Result<(), Error> {
        match self {
            Self::Plain => lease.grow(data.len()),
            // All our methods take one message.
            Self::Grpc { prefix, .. } if prefix.len() == PREFIX_BYTES => Ok(()),
            Self::Grpc { limit, prefix } => {
                let missing = PREFIX_BYTES - prefix.len();
                prefix.extend_from_slice(&data[..missing.min(data.len())]);
                let &[_, a, b, c, d] = prefix.as_slice() else { return Ok(()) };
                let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                if length > *limit {
                    return Err(too_large("message", *limit));
                }
                lease.grow(length)
            }
        }
    }
}

/// The error of a request beyond the limit; `what` is the body or the message.
#[must_use]
pub fn too_large(what: &str, limit: usize) -> Error {
    Error::new(Reason::RequestTooLarge, format!("the {what} has more than {limit} bytes, the most that is accepted; split the batch"))
}

/// A request body that takes its bytes from a lease, and does not wait forever for the next ones.
pub struct LeasedBody {
    inner: Body,
    lease: Arc<Lease>,
    framing: Framing,
    stall: Option<Pin<Box<Sleep>>>,
}

impl LeasedBody {
    /// Wraps a body.
    #[must_use]
    pub const fn new(inner: Body, lease: Arc<Lease>, framing: Framing) -> Self {
        Self { inner, lease, framing, stall: None }
    }

    fn failure(&self, error: Error) -> axum::BoxError {
        match self.framing {
            Framing::Plain => error.into(),
            // gRPC tells a status from other errors by its type.
            Framing::Grpc { .. } => crate::wire::status(&error).into(),
        }
    }
}

impl HttpBody for LeasedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.stall = None;
                if let Some(data) = frame.data_ref()
                    && let Err(error) = this.framing.count(data, &this.lease)
                {
                    return Poll::Ready(Some(Err(this.failure(error))));
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let stall = this.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + STALL)));
                std::task::ready!(stall.as_mut().poll(cx));
                let error = Error::new(Reason::DeadlineExceeded, "the request's body stopped coming for 30 seconds");
                Poll::Ready(Some(Err(this.failure(error))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A reply body that holds a lease until it is sent or dropped.
pub struct HeldBody {
    inner: Body,
    _lease: Arc<Lease>,
}

impl HeldBody {
    /// Wraps a body.
    #[must_use]
    pub const fn new(inner: Body, lease: Arc<Lease>) -> Self {
        Self { inner, _lease: lease }
    }
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().inner).poll_frame(cx)
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
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn a_body_beyond_the_budget_is_refused_and_its_share_goes_back() {
        let budget = Arc::new(Budget::new(10));
        let first = Arc::new(Lease::new(budget.clone()));
        let body = LeasedBody::new(Body::from("12345678"), first.clone(), Framing::Plain);
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 8);
        let second = LeasedBody::new(Body::from("123"), Arc::new(Lease::new(budget.clone())), Framing::Plain);
        let error = second.collect().await.unwrap_err();
        assert_eq!(error.downcast_ref::<Error>().unwrap().reason, Reason::Overloaded);
        drop(first);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_grpc_message_counts_by_the_length_it_announces_however_it_is_cut() {
        let budget = Arc::new(Budget::new(1000));
        let lease = Lease::new(budget.clone());
        let mut framing = Framing::grpc(600);
        for byte in [0, 0, 0, 2] {
            framing.count(&[byte], &lease).unwrap();
        }
        assert_eq!(budget.used(), 0);
        framing.count(&[0, 7, 7], &lease).unwrap();
        framing.count(&[7; 100], &lease).unwrap();
        assert_eq!(budget.used(), 512);
        let error = Framing::grpc(600).count(&[0, 0, 0, 3, 0], &lease).unwrap_err();
        assert_eq!(error.reason, Reason::RequestTooLarge);
        let error = Framing::grpc(600).count(&[0, 0, 0, 2, 0], &lease).unwrap_err();
        assert_eq!(error.reason, Reason::Overloaded);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, axum::Error>>());
        let lease = Arc::new(Lease::new(Arc::new(Budget::new(10))));
        let error = LeasedBody::new(silent, lease, Framing::Plain).collect().await.unwrap_err();
        assert_eq!(error.downcast_ref::<Error>().unwrap().reason, Reason::DeadlineExceeded);
    }
}
