//! Request and reply bodies: their memory is counted, and bodies without progress are aborted.

#![expect(clippy::disallowed_methods, reason = "measures how long a body takes")]

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use context_model::{Error, Reason};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::{Instant, Sleep};

use crate::admission::Slot;
use crate::connection::{AuthenticatedRequest, Exchange};
use crate::memory::{Lease, too_large};

/// A body must deliver [`WINDOW_BYTES`] in each window of this length, or end.
const WINDOW: Duration = Duration::from_secs(30);
/// About 0.5 KiB per second: slower than any network in use, faster than a trickle that only ties
/// up memory.
const WINDOW_BYTES: usize = 16 * 1024;
/// Memory of a frame besides its data, in bytes.
pub const FRAME_BYTES: usize = 64;
/// Replies are handed to the connection in pieces of this size, so that little of a reply is in the connection's
/// buffers, and a peer that reads slowly is not taken for one that does not read.
const PIECE_BYTES: usize = WINDOW_BYTES;

/// Detects a body that arrives too slowly.
#[derive(Default)]
pub struct Pace {
    deadline: Option<Pin<Box<Sleep>>>,
    bytes: usize,
}

impl Pace {
    /// Records that bytes arrived.
    pub fn received(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= WINDOW_BYTES {
            self.stop();
        }
    }

    /// Stops the clock: no data is expected.
    pub fn stop(&mut self) {
        *self = Self::default();
    }

    /// Ready with the error once too little arrived in a window.
    pub fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + WINDOW)));
        ready!(deadline.as_mut().poll(cx));
        let sentence = format!(
            "the request's body arrived too slowly: less than {WINDOW_BYTES} bytes in {} seconds",
            WINDOW.as_secs()
        );
        Poll::Ready(Error::new(Reason::DeadlineExceeded, sentence))
    }
}

/// A REST request body whose bytes are counted as they arrive.
pub struct CountedBody {
    inner: Body,
    lease: Arc<Lease>,
    pace: Pace,
}

impl CountedBody {
    /// Counts this body on this lease.
    #[must_use]
    pub fn new(inner: Body, lease: Arc<Lease>) -> Self {
        Self {
            inner,
            lease,
            pace: Pace::default(),
        }
    }

    /// All bytes of the body, at most `limit`.
    ///
    /// # Errors
    /// `REQUEST_TOO_LARGE`, `DEADLINE_EXCEEDED`, `OVERLOADED`, or `INVALID_ARGUMENT` if the body ends early.
    pub async fn whole(self, limit: usize) -> Result<Bytes, Error> {
        if self.size_hint().lower() > limit as u64 {
            return Err(too_large("body", limit));
        }
        let collected = Limited::new(self, limit).collect().await;
        let body = collected.map_err(|error| body_error(error.as_ref(), limit))?;
        Ok(body.to_bytes())
    }
}

fn body_error(error: &(dyn std::error::Error + 'static), limit: usize) -> Error {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large("body", limit);
        }
        if let Some(error) = error.downcast_ref::<Error>() {
            return error.clone();
        }
        cause = error.source();
    }
    Error::invalid("body", "`body` ended before it was complete")
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                this.pace.received(bytes);
                if let Err(error) = this.lease.grow(bytes + FRAME_BYTES) {
                    return Poll::Ready(Some(Err(error.into())));
                }
                // A copy, because a small frame can keep a large buffer of the connection in memory.
                let frame = frame.map_data(|data| Bytes::copy_from_slice(&data));
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let error = ready!(this.pace.poll_late(cx));
                Poll::Ready(Some(Err(error.into())))
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

/// Resources of a request and its reply, held until the reply is sent or dropped.
#[derive(Clone)]
pub struct Held {
    _parts: Arc<(Arc<Lease>, Option<Slot>, Option<AuthenticatedRequest>)>,
}

impl Held {
    /// The memory, and the slot of a request without credentials.
    #[must_use]
    pub fn public(lease: Arc<Lease>, slot: Option<Slot>) -> Self {
        Self {
            _parts: Arc::new((lease, slot, None)),
        }
    }

    /// The memory and, if there is one, the connection of an authenticated caller.
    #[must_use]
    pub fn guarded(lease: Arc<Lease>, caller: Option<AuthenticatedRequest>) -> Self {
        Self {
            _parts: Arc::new((lease, None, caller)),
        }
    }
}

/// A reply body that is sent in small pieces. Each piece holds the reply's resources until it is
/// sent, and the connection counts the pieces that wait for the peer.
pub struct ReplyBody {
    inner: Body,
    rest: Bytes,
    reply: Arc<Reply>,
}

struct Reply {
    exchange: Exchange,
    _held: Option<Held>,
}

/// A piece that was handed to the connection and is not sent yet.
struct Unsent {
    data: Bytes,
    reply: Arc<Reply>,
}

impl Unsent {
    fn new(data: Bytes, reply: Arc<Reply>) -> Self {
        reply.exchange.offer();
        Self { data, reply }
    }
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.reply.exchange.taken();
    }
}

impl ReplyBody {
    /// Wraps a reply body.
    #[must_use]
    pub fn new(inner: Body, held: Option<Held>, exchange: Exchange) -> Self {
        Self {
            inner,
            rest: Bytes::new(),
            reply: Arc::new(Reply {
                exchange,
                _held: held,
            }),
        }
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut this.inner).poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) => this.rest = data,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Unsent::new(
            piece,
            this.reply.clone(),
        ))))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower().saturating_add(rest));
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use context_store::OwnerId;
    use futures::StreamExt as _;

    use super::*;
    use crate::memory::{Budget, Payer};

    fn lease() -> (Arc<Budget>, Arc<Lease>) {
        let budget = Arc::new(Budget::new(64 * 1024 * 1024, 1024 * 1024, false));
        let lease = Arc::new(Lease::new(&budget, &Payer::Owner(OwnerId::default())));
        (budget, lease)
    }

    #[tokio::test]
    async fn a_body_counts_until_its_lease_is_dropped() {
        let (budget, lease) = lease();
        let body = CountedBody::new(Body::from("12345678"), lease.clone());
        assert_eq!(body.collect().await.unwrap().to_bytes().len(), 8);
        assert_eq!(budget.used(), 8 + FRAME_BYTES);
        drop(lease);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_body_beyond_the_budget_is_refused() {
        let (_, lease) = lease();
        lease.grow(60 * 1024 * 1024).unwrap();
        let error = CountedBody::new(Body::from("1"), lease)
            .collect()
            .await
            .unwrap_err();
        assert_eq!(
            error.downcast_ref::<Error>().unwrap().reason,
            Reason::Overloaded
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stops_or_trickles_is_given_up_and_a_steady_one_is_not() {
        let bytes_every = |bytes: usize, pause: u64, times: usize| {
            let pieces = futures::stream::iter(0..times).then(move |_| async move {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                Ok::<_, axum::Error>(Bytes::from(vec![0; bytes]))
            });
            CountedBody::new(
                Body::from_stream(pieces.chain(futures::stream::pending())),
                lease().1,
            )
        };
        for body in [bytes_every(0, 1, 0), bytes_every(1, 20, 100)] {
            let started = Instant::now();
            let error = body.collect().await.unwrap_err();
            assert_eq!(
                error.downcast_ref::<Error>().unwrap().reason,
                Reason::DeadlineExceeded
            );
            assert!(
                started.elapsed() < 2 * WINDOW,
                "it is cut in its first window"
            );
        }
        let mut steady = bytes_every(WINDOW_BYTES, 29, 10);
        for _ in 0..10 {
            steady.frame().await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_reply_is_handed_out_in_small_pieces_and_is_complete() {
        let (budget, lease) = lease();
        lease.grow(5).unwrap();
        let body = Body::from(vec![7; 3 * PIECE_BYTES + 1]);
        let mut reply =
            ReplyBody::new(body, Some(Held::public(lease, None)), Exchange::unwatched());
        assert_eq!(reply.size_hint().exact(), Some(3 * PIECE_BYTES as u64 + 1));
        let mut pieces = Vec::new();
        while let Some(frame) = reply.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        let sizes: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 1]);
        drop(reply);
        assert_eq!(budget.used(), 5, "pieces that are not sent yet hold it");
        drop(pieces);
        assert_eq!(budget.used(), 0);
    }
}
