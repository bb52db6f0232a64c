//! Counts the memory of gRPC request messages as they arrive, and passes them to tonic when they
//! are complete.
//!
//! tonic reserves the announced length of a message, decompresses messages of any size, and reads
//! any number of messages before a method sees the first. So a message is passed on only when it
//! has arrived completely, is decompressed, and is counted on the request's lease. A unary method
//! gets exactly one message.

use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use bytes::{Buf as _, Bytes};
use context_model::{Error, Result};
use flate2::read::GzDecoder;
use futures::TryStreamExt as _;
use http::{HeaderMap, HeaderValue};

use super::fields::{self, Pieces};
use crate::app::App;
use crate::body::{FRAME_BYTES, Pace};
use crate::error_codes;
use crate::memory::{Lease, too_large};
use crate::request_context;

/// Bytes before a message: a compression flag and the length
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, Length-Prefixed-Message).
const PREFIX_BYTES: usize = 5;
/// Largest request for health or reflection, which consists of a few names.
const PUBLIC_MESSAGE_BYTES: usize = 64 * 1024;
/// Messages up to this size are copied into one piece, which is cheaper for tonic than two.
const SMALL_BYTES: u32 = 4 * 1024;
/// How many bytes are decompressed before the task yields to others. It takes about a millisecond or less.
const UNPACK_BYTES: usize = 256 * 1024;

/// Wraps the request's body so that its messages are counted.
///
/// # Errors
/// `INTERNAL` if the edge attached no lease: a bug.
pub fn counted(app: &App, request: Request) -> Result<Request> {
    let lease = request_context::lease(request.extensions())?;
    let path = request.uri().path().to_owned();
    let limit = if crate::route::is_guarded(&path) {
        app.limits.max_message_bytes()
    } else {
        PUBLIC_MESSAGE_BYTES
    };
    let takes_stream = path.starts_with("/grpc.reflection.");
    let encoding = Encoding::of(request.headers());
    let rules = Rules {
        path,
        limit,
        takes_stream,
        encoding,
    };
    Ok(request.map(|body| messages(body, lease, rules)))
}

/// The compression of a request's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    None,
    Gzip,
    /// Left to tonic, which refuses it and lists the supported encodings.
    Other,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Self {
        match headers.get("grpc-encoding").map(HeaderValue::as_bytes) {
            None | Some(b"identity") => Self::None,
            Some(b"gzip") => Self::Gzip,
            Some(_) => Self::Other,
        }
    }
}

/// What a request may send.
#[derive(Debug, Clone)]
struct Rules {
    /// The path of the method.
    path: String,
    /// Largest message in bytes, decompressed.
    limit: usize,
    /// Whether several messages are allowed.
    takes_stream: bool,
    encoding: Encoding,
}

/// The messages of a request body in the form that tonic reads: each with its prefix and all of its
/// bytes.
fn messages(body: Body, lease: Arc<Lease>, rules: Rules) -> Body {
    let reader = Reader {
        body,
        lease,
        rules,
        pace: Pace::default(),
        input: Bytes::new(),
        frames: 0,
        previous_bytes: 0,
    };
    let pieces = futures::stream::try_unfold(reader, |mut reader| async move {
        match reader.message().await {
            Ok(message) => Ok(message.map(|message| (message, reader))),
            // tonic recognizes a status by its type.
            Err(error) => Err(error_codes::status(&error)),
        }
    });
    Body::from_stream(
        pieces
            .map_ok(|pieces| futures::stream::iter(pieces.into_iter().map(Ok::<_, tonic::Status>)))
            .try_flatten(),
    )
}

/// Reads messages from a body.
struct Reader {
    body: Body,
    lease: Arc<Lease>,
    rules: Rules,
    pace: Pace,
    /// Bytes that were received and not read yet.
    input: Bytes,
    /// Frames that are counted and not given back yet.
    frames: usize,
    /// Bytes counted for the previous message of a stream. They are given back before the next message is read.
    previous_bytes: usize,
}

impl Reader {
    /// The next message, decompressed: a prefix and the pieces of its data, which tonic reads one
    /// by one. `None` at the end.
    async fn message(&mut self) -> Result<Option<Vec<Bytes>>> {
        self.lease.shrink(std::mem::take(&mut self.previous_bytes));
        let Some(prefix) = self.prefix().await? else {
            return Ok(None);
        };
        let [flag, a, b, c, d] = prefix;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.rules.limit {
            return Err(too_large("message", self.rules.limit));
        }
        let mut pieces = self.payload(length).await?;
        if flag == 1 && self.rules.encoding == Encoding::Gzip {
            pieces = self.unpack(pieces, length).await?;
        } else if flag != 0 {
            // tonic reports what is wrong.
            pieces.insert(0, Bytes::copy_from_slice(&prefix));
            return Ok(Some(pieces));
        }
        if !self.rules.takes_stream && (!self.input.is_empty() || self.frame(true).await?.is_some())
        {
            return Err(Error::invalid(
                "request",
                "the `request` has more than one message; this method takes one",
            ));
        }
        let length: usize = pieces.iter().map(Bytes::len).sum();
        // Memory of the decoded message: its strings and bytes once more, and its fields.
        let decoded = length.saturating_add(
            fields::count(&self.rules.path, &pieces).saturating_mul(fields::BYTES_PER_FIELD),
        );
        self.lease.grow(decoded)?;
        if self.rules.takes_stream {
            // The frame whose rest is not read yet stays counted.
            let read = self.frames - usize::from(!self.input.is_empty());
            self.frames -= read;
            self.previous_bytes = length + decoded + read * FRAME_BYTES;
        }
        let mut prefix = [0; PREFIX_BYTES];
        let length = u32::try_from(length).map_err(|_| too_large("message", self.rules.limit))?;
        prefix[1..].copy_from_slice(&length.to_be_bytes());
        pieces.insert(0, Bytes::copy_from_slice(&prefix));
        if length <= SMALL_BYTES {
            pieces = vec![pieces.concat().into()];
        }
        Ok(Some(pieces))
    }

    async fn prefix(&mut self) -> Result<Option<[u8; PREFIX_BYTES]>> {
        let mut prefix = [0; PREFIX_BYTES];
        let mut filled = 0;
        while filled < PREFIX_BYTES {
            if self.input.is_empty() {
                // A stream may pause between messages.
                match self.frame(filled > 0 || !self.rules.takes_stream).await? {
                    Some(data) => self.input = data,
                    None if filled == 0 => return Ok(None),
                    None => return Err(incomplete()),
                }
            }
            let taken = self.input.len().min(PREFIX_BYTES - filled);
            self.input
                .copy_to_slice(&mut prefix[filled..filled + taken]);
            filled += taken;
        }
        // The prefix was counted with its frame. From here on only the message is counted.
        self.lease.shrink(PREFIX_BYTES);
        Ok(Some(prefix))
    }

    async fn payload(&mut self, length: usize) -> Result<Vec<Bytes>> {
        let mut pieces = Vec::new();
        let mut missing = length;
        while missing > 0 {
            if self.input.is_empty() {
                self.input = self.frame(true).await?.ok_or_else(incomplete)?;
            }
            let piece = self.input.split_to(self.input.len().min(missing));
            missing -= piece.len();
            pieces.push(piece);
        }
        Ok(pieces)
    }

    async fn unpack(&mut self, packed: Vec<Bytes>, packed_bytes: usize) -> Result<Vec<Bytes>> {
        let mut decoder = GzDecoder::new(Pieces::new(&packed));
        let mut pieces = Vec::new();
        let mut unpacked = 0;
        loop {
            self.lease.grow(UNPACK_BYTES)?;
            let mut piece = Vec::with_capacity(UNPACK_BYTES);
            let unreadable = |_| {
                Error::invalid(
                    "request",
                    "the `request` cannot be read: it is not valid gzip",
                )
            };
            decoder
                .by_ref()
                .take(UNPACK_BYTES as u64)
                .read_to_end(&mut piece)
                .map_err(unreadable)?;
            unpacked += piece.len();
            if unpacked > self.rules.limit {
                return Err(too_large("unpacked message", self.rules.limit));
            }
            let is_last = piece.len() < UNPACK_BYTES;
            piece.shrink_to_fit();
            self.lease.shrink(UNPACK_BYTES - piece.len());
            pieces.push(Bytes::from(piece));
            if is_last {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.lease.shrink(packed_bytes);
        Ok(pieces)
    }

    /// The next data of the body, counted; `None` at its end. With `hurry`, data must keep
    /// arriving.
    async fn frame(&mut self, hurry: bool) -> Result<Option<Bytes>> {
        if !hurry {
            self.pace.stop();
        }
        loop {
            let next = std::future::poll_fn(|cx| match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending if hurry => Poll::Ready(Err(ready!(self.pace.poll_late(cx)))),
                Poll::Pending => Poll::Pending,
            });
            let Some(frame) = next.await? else {
                return Ok(None);
            };
            let Ok(data) = frame.map_err(|_| incomplete())?.into_data() else {
                continue;
            };
            if data.is_empty() {
                continue;
            }
            self.pace.received(data.len());
            self.lease.grow(data.len() + FRAME_BYTES)?;
            self.frames += 1;
            // A copy, because a small frame can keep a large buffer of the connection in memory.
            return Ok(Some(Bytes::copy_from_slice(&data)));
        }
    }
}

fn incomplete() -> Error {
    Error::invalid(
        "request",
        "the `request` ended before its message was complete",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use context_model::Reason;
    use context_store::OwnerId;
    use futures::StreamExt as _;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::memory::{Budget, Payer};

    const MIB: usize = 1024 * 1024;
    const UNARY: Rules = Rules {
        path: String::new(),
        limit: 16 * MIB,
        takes_stream: false,
        encoding: Encoding::None,
    };

    fn lease() -> (Arc<Budget>, Arc<Lease>) {
        let budget = Arc::new(Budget::new(64 * MIB, 16 * MIB, false));
        let lease = Arc::new(Lease::new(&budget, &Payer::Owner(OwnerId::default())));
        (budget, lease)
    }

    fn framed(flag: u8, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).unwrap();
        [&[flag][..], &length.to_be_bytes(), data].concat()
    }

    fn gzip(data: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(data).unwrap();
        encoder.finish().unwrap()
    }

    /// What tonic receives, or the reason and message of the refusal.
    async fn read(
        body: Body,
        rules: Rules,
        lease: Arc<Lease>,
    ) -> std::result::Result<Vec<u8>, (Reason, String)> {
        match messages(body, lease, rules).collect().await {
            Ok(collected) => Ok(collected.to_bytes().to_vec()),
            Err(error) => {
                let mut cause: &(dyn std::error::Error + 'static) = &error;
                while let Some(source) = cause.source() {
                    if cause.is::<tonic::Status>() {
                        break;
                    }
                    cause = source;
                }
                let error =
                    context_proto::error_from_status(cause.downcast_ref().expect("a status"));
                Err((error.reason, error.message))
            }
        }
    }

    fn pieces(data: Vec<u8>, size: usize) -> Body {
        let pieces: Vec<_> = data
            .chunks(size)
            .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
            .collect();
        Body::from_stream(futures::stream::iter(pieces))
    }

    #[tokio::test]
    async fn a_message_comes_whole_however_it_was_cut_and_counts_until_the_lease_ends() {
        let data: Vec<u8> = (0..100_000u32).map(|n| (n % 251) as u8).collect();
        let framed = framed(0, &data);
        for size in [1, 4, 5, 7, 1000, 65_536, 200_000] {
            let (budget, lease) = lease();
            let read = read(pieces(framed.clone(), size), UNARY, lease.clone())
                .await
                .unwrap();
            assert!(read == framed, "in pieces of {size}");
            let used = budget.used();
            let frames = framed.len().div_ceil(size) * FRAME_BYTES;
            assert!(
                (2 * data.len()..2 * data.len() + frames + 100).contains(&used),
                "{used} for pieces of {size}"
            );
            drop(lease);
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn what_is_announced_and_does_not_come_counts_nothing() {
        let (budget, lease) = lease();
        let start = Bytes::from_static(&[0, 0, 64, 0, 0, 7]);
        let silent = futures::stream::iter([Ok::<_, std::io::Error>(start)])
            .chain(futures::stream::pending());
        let mut body = messages(Body::from_stream(silent), lease, UNARY);
        assert!(futures::FutureExt::now_or_never(body.frame()).is_none());
        assert!(budget.used() < 200, "{}", budget.used());
    }

    #[tokio::test]
    async fn a_unary_method_takes_one_message() {
        let two = [framed(0, b"one"), framed(0, b"two")].concat();
        for size in [1, 8, 9, 100] {
            let (reason, message) = read(pieces(two.clone(), size), UNARY, lease().1)
                .await
                .unwrap_err();
            assert_eq!(reason, Reason::InvalidArgument);
            assert!(message.contains("more than one message"), "{message}");
        }
        let stream = Rules {
            takes_stream: true,
            ..UNARY
        };
        let (budget, lease) = lease();
        assert_eq!(
            read(pieces(two.clone(), 3), stream, lease.clone())
                .await
                .unwrap(),
            two
        );
        assert_eq!(
            budget.used(),
            0,
            "a stream still counts messages and frames that it handed on"
        );
    }

    #[tokio::test]
    async fn a_compressed_message_is_unpacked_within_the_limit_and_the_budget() {
        let rules = Rules {
            encoding: Encoding::Gzip,
            ..UNARY
        };
        let text = vec![b'x'; 3 * MIB];
        let read_gzip = |data: Vec<u8>, lease| {
            read(pieces(framed(1, &gzip(&data)), 1000), rules.clone(), lease)
        };
        assert!(read_gzip(text.clone(), lease().1).await.unwrap() == framed(0, &text));
        let (reason, message) = read_gzip(vec![0; 17 * MIB], lease().1).await.unwrap_err();
        assert_eq!(
            (reason, message.contains("unpacked")),
            (Reason::RequestTooLarge, true),
            "{message}"
        );
        let (_, small) = lease();
        small.grow(55 * MIB).unwrap();
        assert_eq!(
            read_gzip(vec![0; 15 * MIB], small).await.unwrap_err().0,
            Reason::Overloaded
        );
        let broken = read(Body::from(framed(1, b"no gzip")), rules, lease().1)
            .await
            .unwrap_err();
        assert_eq!(broken.0, Reason::InvalidArgument);
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_or_ends_early_is_refused() {
        let (reason, _) = read(Body::from(vec![0, 1, 0, 0, 1]), UNARY, lease().1)
            .await
            .unwrap_err();
        assert_eq!(reason, Reason::RequestTooLarge);
        for incomplete in [vec![0, 0], framed(0, b"abc")[..6].to_vec()] {
            let (reason, message) = read(Body::from(incomplete), UNARY, lease().1)
                .await
                .unwrap_err();
            assert_eq!(
                (reason, message.contains("ended before")),
                (Reason::InvalidArgument, true),
                "{message}"
            );
        }
        assert!(
            read(Body::empty(), UNARY, lease().1)
                .await
                .unwrap()
                .is_empty()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_trickles_is_given_up_and_a_resting_stream_is_not() {
        let trickle = || {
            let byte = |_| async {
                tokio::time::sleep(std::time::Duration::from_secs(20)).await;
                Some((Ok::<_, std::io::Error>(Bytes::from_static(&[0])), ()))
            };
            Body::from_stream(futures::stream::unfold((), byte))
        };
        assert_eq!(
            read(trickle(), UNARY, lease().1).await.unwrap_err().0,
            Reason::DeadlineExceeded
        );
        let resting = async {
            tokio::time::sleep(std::time::Duration::from_secs(600)).await;
            Ok::<_, std::io::Error>(Bytes::from(framed(0, b"late")))
        };
        let stream = Rules {
            takes_stream: true,
            ..UNARY
        };
        let body = Body::from_stream(futures::stream::once(resting));
        assert_eq!(
            read(body, stream, lease().1).await.unwrap(),
            framed(0, b"late")
        );
    }
}
