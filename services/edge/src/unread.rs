//! The rest of a request body that its handler did not read. On HTTP/1.1, hyper then closes the connection, but often
//! finds out only after it has sent the head of the reply. A client that is not told would send its next request into
//! the closing connection.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Version, header};
use http_body::{Frame, SizeHint};
use tokio::sync::oneshot;

/// The largest rest that is read and dropped, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// How long a rest is read at most. The reply waits for it.
const MAX_TIME: Duration = Duration::from_millis(100);

/// Handles a request. On HTTP/1.1, what the handler leaves of the body is read and dropped. If it is too large or comes
/// too slowly, the reply says that the connection closes.
///
/// # Errors
/// Those of `handle`, which has none.
pub async fn respond<F>(
    request: Request,
    handle: impl FnOnce(Request) -> F,
) -> Result<Response, Infallible>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
        return handle(request).await;
    }
    // Reading would ask such a client for its body.
    let waits_to_send = request.headers().contains_key(header::EXPECT);
    let (sender, rest) = oneshot::channel();
    let mut handling = pin!(handle(request.map(|body| {
        Body::new(Watched {
            body,
            rest: Some(sender),
        })
    })));
    let mut reading = pin!(comes_to_end(rest, waits_to_send));
    let (response, at_end) = tokio::select! {
        response = &mut handling => {
            let at_end = tokio::time::timeout(MAX_TIME, reading).await;
            (response, at_end.unwrap_or(false))
        }
        // The handler dropped the body early. Its rest must not stay in memory until the handler responds.
        at_end = &mut reading => (handling.await, at_end),
    };
    let mut response = response?;
    if !at_end {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    Ok(response)
}

/// Whether the body comes to its end: the handler reads all of it, or its rest is small and arrives soon.
async fn comes_to_end(rest: oneshot::Receiver<Option<Body>>, waits_to_send: bool) -> bool {
    let body = match rest.await {
        Ok(Some(body)) => body,
        Ok(None) => return false,
        // It was read to its end.
        Err(_) => return true,
    };
    if waits_to_send || body.size_hint().lower() > MAX_BYTES as u64 {
        return false;
    }
    let mut pieces = body.into_data_stream();
    let reading = async {
        let mut bytes = 0;
        while let Some(piece) = pieces.next().await {
            let Ok(piece) = piece else { return false };
            bytes += piece.len();
            if bytes > MAX_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(MAX_TIME, reading)
        .await
        .unwrap_or(false)
}

/// A body that is sent to `rest` if it is dropped before its end.
struct Watched {
    body: Body,
    /// `None` after the end. A broken body has no rest.
    rest: Option<oneshot::Sender<Option<Body>>>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => {}
            Some(Err(_)) => {
                if let Some(rest) = this.rest.take() {
                    // It fails if no one waits for the reply any more.
                    let _ = rest.send(None);
                }
            }
            None => this.rest = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.body.is_end_stream()
            && let Some(rest) = self.rest.take()
        {
            let _ = rest.send(Some(std::mem::take(&mut self.body)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn done() -> Result<Response, Infallible> {
        Ok(Response::default())
    }

    fn is_closing(response: &Response) -> bool {
        response.headers().contains_key(header::CONNECTION)
    }

    /// Whether the reply closes the connection when the handler reads nothing of this body.
    async fn closes(head: http::request::Builder, body: Body) -> bool {
        let request = head.body(body).unwrap();
        is_closing(&respond(request, |_| done()).await.unwrap())
    }

    fn pieces(count: usize) -> Body {
        let pieces = std::iter::repeat_n(Bytes::from(vec![0; 1024]), count);
        Body::from_stream(futures::stream::iter(pieces.map(Ok::<_, axum::Error>)))
    }

    fn endless() -> Body {
        Body::from_stream(futures::stream::pending::<Result<Bytes, axum::Error>>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_rest_is_dropped_and_after_any_other_the_connection_closes() {
        let head = http::Request::builder;
        assert!(!closes(head(), Body::empty()).await);
        assert!(!closes(head(), Body::from("small")).await);
        assert!(!closes(head(), pieces(64)).await);
        assert!(closes(head(), pieces(65)).await);
        assert!(closes(head(), Body::from(vec![0; MAX_BYTES + 1])).await);
        assert!(closes(head(), endless()).await);
        let cut = Err::<Bytes, _>(std::io::Error::other("cut"));
        let cut = Body::from_stream(futures::stream::iter([cut]));
        assert!(closes(head(), cut).await);
        let expecting = head().header(header::EXPECT, "100-continue");
        assert!(closes(expecting, Body::from("small")).await);
        // HTTP/2 ends only the stream.
        assert!(!closes(head().version(Version::HTTP_2), endless()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_the_handler_reads_to_its_end_may_be_large() {
        let read = respond(Request::new(pieces(100)), |request: Request| async move {
            let mut pieces = request.into_body().into_data_stream();
            while pieces.next().await.is_some() {}
            done().await
        });
        assert!(!is_closing(&read.await.unwrap()));
    }

    #[tokio::test(start_paused = true)]
    async fn no_reply_waits_for_a_body_that_the_handler_passed_on() {
        let mut passed_on = None;
        let reply = respond(Request::new(endless()), |request: Request| {
            passed_on = Some(request.into_body());
            done()
        })
        .await;
        assert!(is_closing(&reply.unwrap()));
        drop(passed_on);
    }
}
