//! Bodies that hold a value until their last byte is sent or dropped.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::memory::Lease;

/// Largest piece that is handed to a connection, in bytes. Progress is measured in these pieces.
const STEP: usize = 64 * 1024;

/// A value that a body can hold. The body reports its progress to it.
pub trait Keep: Send + Sync + 'static {
    /// A part was handed to the connection.
    fn handed_over(&self) {}

    /// A part was sent or dropped.
    fn sent(&self) {}
}

impl Keep for Lease {}

/// The same body, which holds `held` until its last byte is written to the connection. The server
/// takes a whole frame out of a body long before a slow peer has received it.
pub fn until_sent<K: Keep>(body: Body, held: Arc<K>) -> Body {
    Body::new(Held {
        body,
        rest: Bytes::new(),
        held,
    })
}

struct Held<K> {
    body: Body,
    /// The rest of the current frame.
    rest: Bytes,
    held: Arc<K>,
}

/// A part of a frame, with a reference to the held value.
struct Part<K: Keep> {
    bytes: Bytes,
    held: Arc<K>,
}

impl<K: Keep> AsRef<[u8]> for Part<K> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<K: Keep> Drop for Part<K> {
    fn drop(&mut self) {
        self.held.sent();
    }
}

impl<K: Keep> HttpBody for Held<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let bytes = this.rest.split_to(this.rest.len().min(STEP));
        this.held.handed_over();
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(Part {
            bytes,
            held: this.held.clone(),
        })))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let inner = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use tokio::sync::{OwnedSemaphorePermit, Semaphore};

    use super::*;

    impl Keep for OwnedSemaphorePermit {}

    #[tokio::test]
    async fn what_is_held_lives_until_the_last_part_is_dropped() {
        let permits = Arc::new(Semaphore::new(1));
        let held = Arc::new(permits.clone().acquire_owned().await.unwrap());
        let body = until_sent(Body::from(vec![7; STEP + 1]), held);
        assert_eq!(body.size_hint().exact(), Some(STEP as u64 + 1));
        let mut stream = body.into_data_stream();
        let first = stream.next().await.unwrap().unwrap();
        let second = stream.next().await.unwrap().unwrap();
        assert_eq!((first.len(), second.len()), (STEP, 1));
        assert!(stream.next().await.is_none());
        drop((stream, first));
        assert_eq!(permits.available_permits(), 0);
        drop(second);
        assert_eq!(permits.available_permits(), 1);
    }
}
