//! Connections whose peer stops reading are given up: a reply that nobody takes would be held for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A stream on which a write may be stuck for a limited time only.
pub struct Patience<Io> {
    io: Io,
    limit: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<Io> Patience<Io> {
    /// Waits at most so long for the peer to take something.
    pub const fn new(io: Io, limit: Duration) -> Self {
        Self { io, limit, stuck: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let limit = self.limit;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Patience<Io> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buffer)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for Patience<Io> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, data);
        this.watch(cx, written)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
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
        let mut ours = Patience::new(ours, Duration::from_secs(10));
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
}
