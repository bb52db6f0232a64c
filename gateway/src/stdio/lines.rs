//! JSON-RPC messages, one per line, with limits. A line that must not be parsed gets a response
//! without building its value. While the client leaves too much output unread, no further input is read.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, NumberOrString};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::envelope::{self, Envelope};
use crate::memory::{BYTES_PER_BYTE, BYTES_PER_VALUE, Budget, Caller, Lease};
use crate::scan::Scan;

/// Limit on unread output in bytes; beyond it no further requests are read.
const MAX_WAITING: usize = 8 * 1024 * 1024;
/// Requests that are running or whose reply is not written yet; further ones wait in the pipe.
const MAX_IN_FLIGHT: usize = 256;
/// A line's memory grows in steps of this many bytes.
const STEP: usize = 64 * 1024;
/// Buffer capacity in bytes that is reused for the next line.
const REUSED_CAPACITY: usize = 1024 * 1024;
const UTF8_BOM: &[u8] = b"\xEF\xBB\xBF";

/// The transport.
pub struct Lines<R, W> {
    reader: BufReader<R>,
    max_line_bytes: usize,
    budget: Arc<Budget>,
    /// The line that is being read. All of its state is here, because `receive` may be dropped at
    /// any await.
    line: Line,
    output: Output<W>,
    /// Responses to unreadable lines that are being written.
    answers: JoinSet<io::Result<()>>,
}

/// The line read so far.
struct Line {
    bytes: Vec<u8>,
    scan: Scan,
    lease: Option<Arc<Lease>>,
    leased: usize,
    complete: bool,
}

impl Line {
    fn new(max_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            scan: Scan::new(max_bytes),
            lease: None,
            leased: 0,
            complete: false,
        }
    }

    /// Starts the next line and reuses this line's buffer, up to `REUSED_CAPACITY`.
    fn next(&mut self, max_bytes: usize) -> Self {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.shrink_to(REUSED_CAPACITY);
        Self {
            bytes,
            ..Self::new(max_bytes)
        }
    }
}

/// The writer, and the messages that are not written yet.
struct Output<W> {
    writer: Arc<tokio::sync::Mutex<Option<W>>>,
    waiting: Arc<watch::Sender<Waiting>>,
    /// The memory of each request until its reply is written.
    in_flight: Arc<Mutex<HashMap<NumberOrString, Arc<Lease>>>>,
}

impl<W> Clone for Output<W> {
    fn clone(&self) -> Self {
        Self {
            writer: self.writer.clone(),
            waiting: self.waiting.clone(),
            in_flight: self.in_flight.clone(),
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Waiting {
    bytes: usize,
    messages: usize,
    in_flight: usize,
}

/// A message that is being written. It counts as waiting until it is written or dropped.
struct Outgoing {
    bytes: Vec<u8>,
    waiting: Arc<watch::Sender<Waiting>>,
    _lease: Option<Arc<Lease>>,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.waiting.send_modify(|waiting| {
            waiting.bytes -= self.bytes.len();
            waiting.messages -= 1;
        });
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Output<W> {
    fn requests(&self) -> MutexGuard<'_, HashMap<NumberOrString, Arc<Lease>>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, id: NumberOrString, lease: Arc<Lease>) {
        let mut requests = self.requests();
        requests.insert(id, lease);
        self.waiting
            .send_modify(|waiting| waiting.in_flight = requests.len());
    }

    fn end(&self, id: &NumberOrString) -> Option<Arc<Lease>> {
        let mut requests = self.requests();
        let lease = requests.remove(id);
        self.waiting
            .send_modify(|waiting| waiting.in_flight = requests.len());
        lease
    }

    fn queue<T: serde::Serialize>(
        &self,
        message: T,
        lease: Option<Arc<Lease>>,
    ) -> io::Result<Outgoing> {
        let mut bytes = serde_json::to_vec(&message)?;
        drop(message);
        bytes.push(b'\n');
        if let Some(lease) = &lease {
            lease.settle(bytes.len());
        }
        self.waiting.send_modify(|waiting| {
            waiting.bytes += bytes.len();
            waiting.messages += 1;
        });
        Ok(Outgoing {
            bytes,
            waiting: self.waiting.clone(),
            _lease: lease,
        })
    }

    async fn write(self, outgoing: io::Result<Outgoing>) -> io::Result<()> {
        let outgoing = outgoing?;
        let mut writer = self.writer.lock().await;
        let Some(writer) = writer.as_mut() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        writer.write_all(&outgoing.bytes).await?;
        writer.flush().await
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    /// A transport over these streams for messages of up to `max_line_bytes`.
    pub fn new(reader: R, writer: W, max_line_bytes: usize, budget: Arc<Budget>) -> Self {
        let output = Output {
            writer: Arc::new(tokio::sync::Mutex::new(Some(writer))),
            waiting: Arc::new(watch::Sender::default()),
            in_flight: Arc::default(),
        };
        Self {
            reader: BufReader::new(reader),
            max_line_bytes,
            budget,
            line: Line::new(max_line_bytes),
            output,
            answers: JoinSet::new(),
        }
    }

    /// Reads to the end of the line. A refused line is read but not stored. `false` at the end of
    /// the input.
    async fn read_line(&mut self) -> io::Result<bool> {
        let line = &mut self.line;
        if line.lease.is_none() {
            line.lease = Some(Arc::new(self.budget.enter_when_free(Caller::Anyone).await));
        }
        while !line.complete {
            if let Some(lease) = &line.lease
                && line.bytes.len() + STEP > line.leased
            {
                let wanted = line.leased.max(line.bytes.len()) + STEP;
                lease.grow_to(wanted).await.map_err(io::Error::other)?;
                line.leased = wanted;
            }
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                return Ok(false);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let piece = &available[..end.map_or(available.len(), |end| end + 1)];
            let taken = piece.len();
            line.scan.feed(piece);
            if line.scan.refusal().is_some() {
                line.bytes = Vec::new();
            } else {
                line.bytes.extend_from_slice(piece);
            }
            line.complete = end.is_some();
            self.reader.consume(taken);
        }
        Ok(true)
    }

    /// The message of a complete line; `Err` is the response to an unreadable one.
    async fn parse(&mut self) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Value> {
        if let Some(why) = self.line.scan.refusal() {
            // Without an id it gets no response.
            return self
                .line
                .scan
                .id()
                .map_or(Ok(None), |id| Err(envelope::error(&id, -32600, &why)));
        }
        if let Some(lease) = &self.line.lease {
            let bytes =
                self.line.bytes.len() * BYTES_PER_BYTE + self.line.scan.values() * BYTES_PER_VALUE;
            if let Err(error) = lease.grow_to(bytes).await {
                return self.line.scan.id().map_or(Ok(None), |id| {
                    Err(envelope::error(&id, -32600, &error.message))
                });
            }
            lease.settle(bytes);
        }
        let line = self
            .line
            .bytes
            .strip_prefix(UTF8_BOM)
            .unwrap_or(&self.line.bytes)
            .trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let mut message = match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(line) {
            Ok(message) => message,
            Err(complaint) => return unreadable(line, &complaint),
        };
        match &message {
            JsonRpcMessage::Request(request) => {
                if let Some(lease) = &self.line.lease {
                    let (id, lease) = (request.id.clone(), lease.clone());
                    message.insert_extension(lease.clone());
                    self.output.begin(id, lease);
                }
            }
            // A cancelled request gets no response.
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    drop(self.output.end(id));
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Ok(Some(message))
    }
}

/// The outcome of a line that is not an MCP message.
fn unreadable(
    line: &[u8],
    complaint: &serde_json::Error,
) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Value> {
    match Envelope::read(line) {
        Some(envelope) if envelope.is_notification() => Ok(None),
        Some(envelope) if envelope.id.is_some() => Err(envelope.unreadable(&complaint.to_string())),
        _ if complaint.classify() == Category::Data => Err(envelope::error(
            &Value::Null,
            -32600,
            "Invalid Request: not a JSON-RPC message",
        )),
        // Responding to non-JSON input could loop forever with a peer that echoes it.
        _ => Ok(None),
    }
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer>
    for Lines<R, W>
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let lease = id.and_then(|id| self.output.end(id));
        let outgoing = self.output.queue(message, lease);
        self.output.clone().write(outgoing)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.answers.try_join_next().is_some() {}
            let mut waiting = self.output.waiting.subscribe();
            waiting
                .wait_for(|waiting| {
                    waiting.bytes < MAX_WAITING
                        && waiting.in_flight + waiting.messages < MAX_IN_FLIGHT
                })
                .await
                .ok()?;
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => {
                    while self.answers.join_next().await.is_some() {}
                    return None;
                }
                Err(error) => {
                    tracing::error!(%error, "Could not read stdin");
                    return None;
                }
            }
            let parsed = self.parse().await;
            let next = self.line.next(self.max_line_bytes);
            let lease = std::mem::replace(&mut self.line, next).lease;
            match parsed {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(answer) => {
                    // Spawned and not awaited: `receive` may be dropped at an await, and the
                    // response with it.
                    let outgoing = self.output.queue(answer, lease);
                    self.answers.spawn(self.output.clone().write(outgoing));
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.writer.lock().await.take());
        Ok(())
    }
}
