//! JSON request and reply bodies.

use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, OptionalFromRequest, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use context_model::{Error, Reason, decode_slice};
use futures::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::app::App;
use crate::body::CountedBody;
use crate::json_values::JsonValues;
use crate::memory::Lease;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Bodies of this size or more are parsed on a blocking thread.
const LARGE_BODY_BYTES: usize = 256 * 1024;
/// Replies beyond this size are serialized on a blocking thread.
const LARGE_REPLY_BYTES: usize = 1024 * 1024;
/// Initial buffer of a reply: an entry with one page of text.
const FIRST_BYTES: usize = 4 * 1024;
/// Size of the pieces of a large reply.
const PIECE_BYTES: usize = 64 * 1024;

/// A JSON request body. Unlike axum's extractor, it reports errors like every other transport.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        check_media_type(request.headers())?;
        let (bytes, lease) = whole(request, app).await?;
        Ok(Self(decoded(bytes, lease).await?))
    }
}

/// Without a body, or with `null`, there is no value.
impl<T: DeserializeOwned + Send + 'static> OptionalFromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Option<Self>, Problem> {
        let media_type = check_media_type(request.headers());
        let (bytes, lease) = whole(request, app).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        media_type?;
        let value: Option<T> = decoded(bytes, lease).await?;
        Ok(value.map(Self))
    }
}

/// The whole body, and the lease that counts it.
async fn whole(request: Request, app: &App) -> Result<(Bytes, Arc<Lease>), Error> {
    let lease = RequestContext::of(request.extensions())?.lease;
    let body = CountedBody::new(request.into_body(), lease.clone());
    Ok((body.whole(app.limits.max_message_bytes()).await?, lease))
}

async fn decoded<T: DeserializeOwned + Send + 'static>(
    bytes: Bytes,
    lease: Arc<Lease>,
) -> Result<T, Error> {
    let is_large = bytes.len() >= LARGE_BODY_BYTES;
    let decode = move || {
        // Memory of the decoded value: its strings once more, and its values.
        lease.grow(bytes.len().saturating_add(value_bytes(&bytes)))?;
        decode_slice(&bytes)
    };
    if is_large {
        tokio::task::spawn_blocking(decode)
            .await
            .map_err(Error::internal)?
    } else {
        decode()
    }
}

/// Estimates the memory of a JSON text's values besides their strings.
fn value_bytes(json: &[u8]) -> usize {
    const BYTES_PER_VALUE: usize = 128;
    let mut values = JsonValues::default();
    values.read(json);
    values.count().saturating_mul(BYTES_PER_VALUE)
}

/// Checks that a request has an uncompressed JSON body, by its headers.
///
/// # Errors
/// `UNSUPPORTED_MEDIA_TYPE`.
pub fn check_media_type(headers: &HeaderMap) -> Result<(), Error> {
    if headers
        .get(header::CONTENT_ENCODING)
        .is_some_and(|encoding| encoding != "identity")
    {
        return Err(Error::new(
            Reason::UnsupportedMediaType,
            "the body is compressed; send it without `Content-Encoding`",
        ));
    }
    let given = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    let json = essence.eq_ignore_ascii_case("application/json")
        || (essence.to_ascii_lowercase().starts_with("application/")
            && essence.to_ascii_lowercase().ends_with("+json"));
    if json {
        return Ok(());
    }
    // Browsers send some other media types, such as `text/plain`, across origins without a preflight.
    Err(Error::new(
        Reason::UnsupportedMediaType,
        "the body must be JSON with `Content-Type: application/json`",
    ))
}

/// A JSON reply. It is serialized completely before it is sent.
///
/// # Errors
/// `OVERLOADED` if there is no memory for it.
pub async fn json<T: Serialize + Send + 'static>(
    ctx: &RequestContext,
    status: StatusCode,
    value: T,
) -> Result<Response, Problem> {
    let mut whole = Bounded(Vec::with_capacity(FIRST_BYTES));
    // The data loaded for the reply is counted already and shows whether it can be small.
    let is_small = ctx.lease.bytes() <= LARGE_REPLY_BYTES;
    let written = is_small.then(|| serde_json::to_writer(&mut whole, &value));
    let body = match written {
        Some(Ok(())) => {
            ctx.count_reply(whole.0.len())?;
            Body::from(whole.0)
        }
        Some(Err(error)) if !error.is_io() => return Err(Error::internal(error).into()),
        Some(Err(_)) | None => {
            drop(whole);
            let ctx = ctx.clone();
            let pieces = tokio::task::spawn_blocking(move || in_pieces(&ctx, value))
                .await
                .map_err(Error::internal)??;
            let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
            Body::from_stream(stream::iter(pieces))
        }
    };
    let mut response = (status, body).into_response();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

/// A buffer for up to [`LARGE_REPLY_BYTES`].
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if self.0.len() + data.len() > LARGE_REPLY_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Serializes a large reply. Writing it while it is sent would keep the thread while the peer does not read.
/// Afterwards the lease counts the pieces instead of the value.
///
/// # Errors
/// `OVERLOADED` if there is no memory for the next piece.
fn in_pieces<T: Serialize>(ctx: &RequestContext, value: T) -> Result<Vec<Vec<u8>>, Error> {
    let counted = ctx.lease.bytes();
    let mut writer = Pieces {
        ctx,
        pieces: Vec::new(),
    };
    serde_json::to_writer(&mut writer, &value).map_err(|error| {
        io::Error::from(error)
            .downcast::<Error>()
            .unwrap_or_else(Error::internal)
    })?;
    drop(value);
    ctx.lease.shrink(counted);
    Ok(writer.pieces)
}

/// Collects in pieces what is written to it, and counts each piece.
struct Pieces<'a> {
    ctx: &'a RequestContext,
    pieces: Vec<Vec<u8>>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let mut piece = match self.pieces.pop_if(|piece| piece.len() < PIECE_BYTES) {
            Some(piece) => piece,
            None => {
                self.ctx
                    .count_reply(PIECE_BYTES)
                    .map_err(io::Error::other)?;
                Vec::with_capacity(PIECE_BYTES)
            }
        };
        // A string with an image may be written in one call.
        let taken = data.len().min(PIECE_BYTES - piece.len());
        piece.extend_from_slice(&data[..taken]);
        self.pieces.push(piece);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use context_store::OwnerId;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::memory::{Budget, Payer};

    const MIB: usize = 1024 * 1024;

    /// A request that has loaded this much.
    fn loaded(budget: &Arc<Budget>, bytes: usize) -> RequestContext {
        let lease = Lease::new(budget, &Payer::Owner(OwnerId::default()));
        lease.grow(bytes).unwrap();
        RequestContext::new(None, None, None, Arc::new(lease))
    }

    #[test]
    fn large_replies_that_are_not_read_keep_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let budget = Arc::new(Budget::new(64 * MIB, MIB, false));
            let text = "x".repeat(3 * MIB);
            let mut unread = Vec::new();
            for _ in 0..2 {
                let ctx = loaded(&budget, text.len());
                let reply = json(&ctx, StatusCode::OK, text.clone()).await.unwrap();
                unread.push((ctx, reply));
            }
            let on_the_thread = tokio::task::spawn_blocking(|| "free").await;
            assert_eq!(on_the_thread.unwrap(), "free");
            let one = (text.len() + 2).div_ceil(PIECE_BYTES) * PIECE_BYTES;
            assert_eq!(budget.used(), 2 * one, "the text is counted once");
            let (_ctx, reply) = unread.pop().unwrap();
            let body = reply.into_body().collect().await.unwrap().to_bytes();
            assert!(body == serde_json::to_vec(&text).unwrap(), "it is complete");
        });
    }

    #[tokio::test]
    async fn a_large_reply_without_memory_is_refused() {
        let budget = Arc::new(Budget::new(64 * MIB, MIB, false));
        let ctx = loaded(&budget, 58 * MIB);
        let refused = json(&ctx, StatusCode::OK, "x".repeat(3 * MIB)).await;
        let refused = refused.unwrap_err().into_response();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
