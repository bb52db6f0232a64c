//! A write timeout for connections: without it, a reply to a peer that stops reading would be held
//! forever. Also detects whether the peer has sent enough to recognise the HTTP version.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// How many bytes it takes to distinguish HTTP/2 from HTTP/1.1 (RFC 9113 §3.4).
const PREFACE_BYTES: usize = 24;

/// A stream whose writes fail if the peer accepts nothing for a time.
pub struct WriteTimeout<Io> {
    io: Io,
    limit: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
    preface_bytes_left: usize,
    begun: Arc<AtomicBool>,
}

impl<Io> WriteTimeout<Io> {
    /// Writes fail after `limit` without progress.
    pub fn new(io: Io, limit: Duration) -> Self {
        Self {
            io,
            limit,
            stuck: None,
            preface_bytes_left: PREFACE_BYTES,
            begun: Arc::default(),
        }
    }

    /// Becomes true once enough bytes have arrived to recognise the HTTP version.
    pub fn has_begun(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.begun)
    }

    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let limit = self.limit;
        let stuck = self
            .stuck
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer does not read",
        )))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for WriteTimeout<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        if this.preface_bytes_left > 0 {
            this.preface_bytes_left = this
                .preface_bytes_left
                .saturating_sub(buffer.filled().len() - before);
            if this.preface_bytes_left == 0 {
                this.begun.store(true, Ordering::Relaxed);
            }
        }
        read
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<Io> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, data);
        this.watch(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, data);
        this.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.watch(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.io).poll_shutdown(cx);
        this.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_waited_for_and_one_that_stops_is_not() {
        let (mut peer, ours) = tokio::io::duplex(4);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(10));
        let slow = async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_secs(9)).await;
                peer.read_exact(&mut [0; 4]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[7; 20]), slow);
        written.unwrap();
        let error = ours.write_all(&[7; 20]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_peer_has_begun_when_the_preface_of_http_2_could_have_come() {
        let (mut peer, ours) = tokio::io::duplex(64);
        let mut ours = WriteTimeout::new(ours, Duration::from_secs(10));
        let begun = ours.has_begun();
        for (bytes, expected) in [(23, false), (1, true), (1, true)] {
            peer.write_all(&vec![7; bytes]).await.unwrap();
            ours.read_exact(&mut vec![0; bytes]).await.unwrap();
            assert_eq!(begun.load(Ordering::Relaxed), expected);
        }
    }
}
