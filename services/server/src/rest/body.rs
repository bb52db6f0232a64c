//! JSON request and reply bodies.

use std::io::{self, Write};
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use context_model::{Error, Reason, decode_slice};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::App;
use crate::body::CountedBody;
use crate::memory::too_large;
use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Bodies of this size or more are parsed on a blocking thread.
const LARGE_BODY_BYTES: usize = 256 * 1024;
/// Replies beyond this size are serialized while they are sent.
const LARGE_REPLY_BYTES: usize = 1024 * 1024;
/// Initial buffer of a reply: an entry with one page of text.
const FIRST_BYTES: usize = 4 * 1024;
/// Size of the pieces of a large reply, and how many may wait for the peer.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES: usize = 2;

/// A JSON request body. Unlike axum's extractor, it reports errors like every other transport.
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        check_media_type(request.headers())?;
        let limit = app.limits.max_message_bytes();
        let lease = RequestContext::of(request.extensions())?.lease;
        let body = CountedBody::new(request.into_body(), lease.clone());
        if body.size_hint().lower() > limit as u64 {
            return Err(too_large("body", limit).into());
        }
        let bytes = Limited::new(body, limit)
            .collect()
            .await
            .map_err(|error| body_error(error.as_ref(), limit))?
            .to_bytes();
        let is_large = bytes.len() >= LARGE_BODY_BYTES;
        let decode = move || {
            // Memory of the decoded value: its strings once more, and its values.
            lease.grow(bytes.len().saturating_add(value_bytes(&bytes)))?;
            decode_slice(&bytes)
        };
        let value = if is_large {
            tokio::task::spawn_blocking(decode)
                .await
                .map_err(Error::internal)?
        } else {
            decode()
        };
        Ok(Self(value?))
    }
}

/// Estimates the memory of a JSON text's values besides their strings. A list of one-digit numbers
/// grows thirtyfold when it is parsed, and only then is it found to be too large for metadata.
fn value_bytes(json: &[u8]) -> usize {
    const BYTES_PER_VALUE: usize = 64;
    let (mut values, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => values += 1,
            _ => {}
        }
    }
    values.saturating_mul(BYTES_PER_VALUE)
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Error> {
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
    // Browsers send other media types across origins without a preflight.
    Err(Error::new(
        Reason::UnsupportedMediaType,
        "the body must be JSON with `Content-Type: application/json`",
    ))
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

/// A JSON reply. A large one is serialized while it is sent, so that only the value itself takes
/// memory.
///
/// # Errors
/// `OVERLOADED` if there is no memory for it.
pub fn json<T: Serialize + Send + 'static>(
    ctx: &RequestContext,
    status: StatusCode,
    value: T,
) -> Result<Response, Problem> {
    let mut whole = Bounded(Vec::with_capacity(FIRST_BYTES));
    // The data loaded for the reply is counted already and shows whether it can be small.
    let is_small = ctx.lease.bytes() <= LARGE_REPLY_BYTES;
    let body = match is_small.then(|| serde_json::to_writer(&mut whole, &value)) {
        Some(Ok(())) => {
            ctx.count_reply(whole.0.len())?;
            Body::from(whole.0)
        }
        Some(Err(error)) if !error.is_io() => return Err(Error::internal(error).into()),
        Some(Err(_)) | None => {
            drop(whole);
            ctx.count_reply(PIECES * PIECE_BYTES)?;
            written_as_sent(value)
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

/// A body that a thread serializes as fast as the peer receives it. If the peer disconnects, it
/// ends early with an error.
fn written_as_sent<T: Serialize + Send + 'static>(value: T) -> Body {
    let (sender, receiver) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let mut writer = Pieces {
            piece: Vec::with_capacity(PIECE_BYTES),
            sender,
        };
        let written = serde_json::to_writer(&mut writer, &value)
            .map_err(io::Error::from)
            .and_then(|()| writer.flush());
        if let Err(error) = written
            && !writer.sender.is_closed()
        {
            // The peer sees that the reply is truncated.
            let _ = writer.sender.blocking_send(Err(error));
        }
    });
    Body::from_stream(ReceiverStream::new(receiver))
}

/// Passes on in pieces what is written to it.
struct Pieces {
    piece: Vec<u8>,
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for Pieces {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        // A string with an image may be written in one call.
        let taken = data.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&data[..taken]);
        if self.piece.len() == PIECE_BYTES {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        self.sender
            .blocking_send(Ok(Bytes::from(piece)))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_what_is_inside_strings_is_not() {
        assert_eq!(value_bytes(br#"{"a": [1, 2, {"b": null}]}"#), 5 * 64);
        assert_eq!(value_bytes(br#""[,\"[,{""#), 0);
    }
}
