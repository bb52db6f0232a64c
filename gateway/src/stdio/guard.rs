//! Keeps lines that must not be parsed from the MCP transport, and has them answered.
//!
//! A line is passed on as it arrives. When the scan refuses it, the part that was passed on is ended there, which the
//! transport drops as unfinished JSON; the rest is swallowed, and in its place comes a request of our own with the
//! line's id, which the handler answers with the reason. A client that sends too much is told so and does not wait.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};

use crate::scan::Scan;

/// The method of the request that stands in for a refused line.
pub const REFUSED: &str = "context-gateway/refused";

/// A reader that passes on the lines of another, except refused ones.
#[derive(Debug)]
pub struct Guard<R> {
    inner: R,
    max_line_bytes: usize,
    scan: Scan,
    /// Whether the current line was refused.
    swallowing: bool,
    chunk: Box<[u8]>,
    out: Vec<u8>,
    given: usize,
}

impl<R> Guard<R> {
    /// Guards lines of up to `max_line_bytes`.
    pub fn new(inner: R, max_line_bytes: usize) -> Self {
        Self {
            inner,
            max_line_bytes,
            scan: Scan::new(max_line_bytes),
            swallowing: false,
            chunk: vec![0; 16 * 1024].into_boxed_slice(),
            out: Vec::new(),
            given: 0,
        }
    }

    fn take(&mut self, length: usize) {
        let chunk = std::mem::take(&mut self.chunk);
        for piece in chunk[..length].split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            self.scan.feed(piece);
            if !self.swallowing && self.scan.refusal().is_some() {
                self.swallowing = true;
                self.out.push(b'\n');
            }
            if !self.swallowing {
                self.out.extend_from_slice(piece);
            }
            if ends {
                let scan = std::mem::replace(&mut self.scan, Scan::new(self.max_line_bytes));
                if std::mem::take(&mut self.swallowing) {
                    self.stand_in(&scan);
                }
            }
        }
        self.chunk = chunk;
    }

    /// Puts a request in the place of the refused line. It names a revision so that it is well-formed in every era.
    fn stand_in(&mut self, scan: &Scan) {
        let Some(id) = scan.id() else { return };
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": REFUSED, "params": {"_meta": meta, "why": scan.refusal()}});
        self.out.extend_from_slice(request.to_string().as_bytes());
        self.out.push(b'\n');
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Guard<R> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.given == this.out.len() {
            this.out.clear();
            this.given = 0;
            let mut chunk = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.inner).poll_read(context, &mut chunk))?;
            let length = chunk.filled().len();
            if length == 0 {
                return Poll::Ready(Ok(()));
            }
            this.take(length);
        }
        let length = buffer.remaining().min(this.out.len() - this.given);
        buffer.put_slice(&this.out[this.given..this.given + length]);
        this.given += length;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn guarded(input: &[u8], max: usize) -> String {
        let mut out = String::new();
        Guard::new(input, max).read_to_string(&mut out).await.unwrap();
        out
    }

    #[tokio::test]
    async fn ordinary_lines_pass_unchanged() {
        let input = "{\"id\":1}\n\n[\r\n{\"unfinished\":";
        assert_eq!(guarded(input.as_bytes(), 1000).await, input);
    }

    #[tokio::test]
    async fn a_refused_line_becomes_a_request_with_its_id_and_its_neighbours_pass() {
        let long = format!("{{\"method\":\"x\",\"params\":\"{}\",\"id\":\"a\"}}", "y".repeat(100_000));
        let out = guarded(format!("{{\"id\":1}}\n{long}\n{{\"id\":2}}\n").as_bytes(), 50_000).await;
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!((lines[0], *lines.last().unwrap()), ("{\"id\":1}", "{\"id\":2}"));
        assert!(serde_json::from_str::<serde_json::Value>(lines[1]).is_err(), "what was passed on is no JSON");
        let stand_in: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
        assert_eq!((stand_in["id"].as_str(), stand_in["method"].as_str()), (Some("a"), Some(REFUSED)));
        assert!(out.len() < 60_000);
    }

    #[tokio::test]
    async fn a_refused_line_without_an_id_disappears() {
        let out = guarded(format!("{{\"method\":\"{}\"}}\n{{\"id\":2}}\n", "y".repeat(1000)).as_bytes(), 100).await;
        assert_eq!(out, "\n{\"id\":2}\n");
    }
}
