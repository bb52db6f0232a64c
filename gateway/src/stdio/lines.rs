//! JSON-RPC messages and batches, one per line, with limits. A line beyond a limit is refused without being parsed.
//! While the client leaves too much output unread, no further input is read.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, JsonRpcMessage, NumberOrString, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use serde_json::error::Category;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::batch;
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

/// An MCP transport over two byte streams, such as stdin and stdout.
pub struct Lines<R, W> {
    reader: BufReader<R>,
    max_line_bytes: usize,
    budget: Arc<Budget>,
    /// The line that is being read. All of its state is here, because `receive` may be dropped at
    /// any await.
    line: Line,
    output: Output<W>,
    /// Whether the client's protocol revision has batches.
    has_batches: bool,
    /// Messages of a batch that are not handed over yet. They are handed over before the next line is read.
    queued: VecDeque<Queued>,
    /// Responses that are being written and do not come from the MCP server: to unreadable lines, to batches without a
    /// readable request, and to batches whose last missing request was cancelled.
    own_responses: JoinSet<io::Result<()>>,
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

/// What a line holds.
enum Parsed {
    Message(Box<RxJsonRpcMessage<RoleServer>>),
    Batch(Batch, VecDeque<Queued>),
    /// Nothing that expects a response.
    Nothing,
    /// The response to a line that cannot be read.
    Response(Value),
}

/// A message of a batch that is not handed over to the MCP server yet.
struct Queued {
    message: RxJsonRpcMessage<RoleServer>,
    slot: Slot,
}

/// The place of a response among those of its batch.
#[derive(Clone)]
struct Slot {
    batch: Batch,
    index: usize,
}

/// A batch until its responses are written.
#[derive(Clone)]
struct Batch(Arc<BatchState>);

struct BatchState {
    /// The memory of the line, then of the array of responses.
    lease: Option<Arc<Lease>>,
    responses: Mutex<Responses>,
}

#[derive(Default)]
struct Responses {
    /// Number of responses that are still to come.
    missing: usize,
    /// The responses in the order of the requests.
    collected: Vec<Option<Collected>>,
}

/// A response as JSON, with its memory.
type Collected = (Vec<u8>, Option<Arc<Lease>>);

impl Batch {
    fn responses(&self) -> MutexGuard<'_, Responses> {
        self.0
            .responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The array of responses, if none is missing and there are any.
    fn array(&self) -> Option<Vec<u8>> {
        let mut responses = self.responses();
        if responses.missing > 0 {
            return None;
        }
        let (texts, _leases): (Vec<_>, Vec<_>) = std::mem::take(&mut responses.collected)
            .into_iter()
            .flatten()
            .unzip();
        (!texts.is_empty()).then(|| batch::array(&texts))
    }
}

impl Slot {
    /// Ends the request of this slot, with its response or without one. Returns the array of responses when the batch
    /// is complete and has any.
    fn end(&self, response: Option<Collected>) -> Option<Vec<u8>> {
        {
            let mut responses = self.batch.responses();
            responses.missing = responses.missing.saturating_sub(1);
            if let Some(slot) = responses.collected.get_mut(self.index) {
                *slot = response;
            }
        }
        self.batch.array()
    }
}

/// A request that is running.
struct Running {
    lease: Arc<Lease>,
    /// Where its response goes; `None` if it was sent alone.
    slot: Option<Slot>,
}

/// The writer, and the messages that are not written yet.
struct Output<W> {
    writer: Arc<tokio::sync::Mutex<Option<W>>>,
    waiting: Arc<watch::Sender<Waiting>>,
    /// The running requests, until their replies are queued.
    in_flight: Arc<Mutex<HashMap<NumberOrString, Running>>>,
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

/// What limits the reading of further input.
#[derive(Debug, Default, Clone, Copy)]
struct Waiting {
    /// Bytes of the messages that are not written yet.
    bytes: usize,
    /// Number of messages that are not written yet.
    messages: usize,
    /// Number of running requests.
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
    fn requests(&self) -> MutexGuard<'_, HashMap<NumberOrString, Running>> {
        self.in_flight
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a running request. Returns an earlier one with the same id: rmcp sends one response for both, which
    /// goes where the later one's would.
    fn begin(&self, id: NumberOrString, request: Running) -> Option<Running> {
        let mut requests = self.requests();
        let replaced = requests.insert(id, request);
        self.waiting
            .send_modify(|waiting| waiting.in_flight = requests.len());
        replaced
    }

    fn end(&self, id: &NumberOrString) -> Option<Running> {
        let mut requests = self.requests();
        let ended = requests.remove(id);
        self.waiting
            .send_modify(|waiting| waiting.in_flight = requests.len());
        ended
    }

    /// Queues a message. The response to a request of a batch is stored, and `None` returned, until the batch is
    /// complete; then the array of its responses is queued.
    fn respond(
        &self,
        message: TxJsonRpcMessage<RoleServer>,
        request: Option<Running>,
    ) -> io::Result<Option<Outgoing>> {
        let bytes = serde_json::to_vec(&message)?;
        drop(message);
        let Some(Running { lease, slot }) = request else {
            return Ok(Some(self.queue(bytes, None)));
        };
        let Some(slot) = slot else {
            return Ok(Some(self.queue(bytes, Some(lease))));
        };
        // The response, and its copy in the array.
        lease.settle(2 * bytes.len());
        let array = slot.end(Some((bytes, Some(lease))));
        Ok(array.map(|array| self.queue(array, slot.batch.0.lease.clone())))
    }

    fn queue(&self, mut bytes: Vec<u8>, lease: Option<Arc<Lease>>) -> Outgoing {
        bytes.push(b'\n');
        if let Some(lease) = &lease {
            lease.settle(bytes.len());
        }
        self.waiting.send_modify(|waiting| {
            waiting.bytes += bytes.len();
            waiting.messages += 1;
        });
        Outgoing {
            bytes,
            waiting: self.waiting.clone(),
            _lease: lease,
        }
    }

    async fn write(self, outgoing: Outgoing) -> io::Result<()> {
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
            has_batches: false,
            queued: VecDeque::new(),
            own_responses: JoinSet::new(),
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
                // The last line may have no line break.
                line.complete = !line.bytes.is_empty() || line.scan.refusal().is_some();
                return Ok(line.complete);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let piece = &available[..end.map_or(available.len(), |end| end + 1)];
            let taken = piece.len();
            // The line break is no part of the message.
            line.scan.feed(piece.strip_suffix(b"\n").unwrap_or(piece));
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

    /// What a complete line holds.
    async fn parse(&mut self) -> Parsed {
        let refused = |scan: &Scan, why: &str| {
            // A message without an id gets no response. A refused batch gets one with the id null.
            let id = scan.id().or_else(|| scan.is_array().then_some(Value::Null));
            id.map_or(Parsed::Nothing, |id| {
                Parsed::Response(envelope::error(&id, -32600, why))
            })
        };
        if let Some(why) = self.line.scan.refusal() {
            return refused(&self.line.scan, &why);
        }
        if let Some(lease) = &self.line.lease {
            let bytes =
                self.line.bytes.len() * BYTES_PER_BYTE + self.line.scan.values() * BYTES_PER_VALUE;
            if let Err(error) = lease.grow_to(bytes).await {
                return refused(&self.line.scan, &error.message);
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
            return Parsed::Nothing;
        }
        match batch::messages(line).filter(|_| self.has_batches) {
            None => read(line),
            Some(Err(why)) => Parsed::Response(envelope::error(&Value::Null, -32600, &why)),
            Some(Ok(messages)) => split(&messages, self.line.lease.clone()),
        }
    }

    /// Returns the message for the MCP server. A request is registered as running and carries its lease. The request
    /// that a notification cancels is ended.
    fn hand_over(
        &mut self,
        mut message: RxJsonRpcMessage<RoleServer>,
        lease: Option<Arc<Lease>>,
        slot: Option<Slot>,
    ) -> RxJsonRpcMessage<RoleServer> {
        let ended = match &message {
            JsonRpcMessage::Request(request) => match lease {
                Some(lease) => {
                    let id = request.id.clone();
                    message.insert_extension(lease.clone());
                    self.output.begin(id, Running { lease, slot })
                }
                None => None,
            },
            // A cancelled request gets no response.
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ClientNotification::CancelledNotification(cancelled) => {
                    let id = cancelled.params.request_id.as_ref();
                    id.and_then(|id| self.output.end(id))
                }
                _ => None,
            },
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => None,
        };
        if let Some(slot) = ended.and_then(|request| request.slot)
            && let Some(array) = slot.end(None)
        {
            self.write_own_response(array, slot.batch.0.lease.clone());
        }
        message
    }

    /// Writes a response in a task of its own: `receive` may be dropped at an await, and the response with it.
    fn write_own_response(&mut self, response: Vec<u8>, lease: Option<Arc<Lease>>) {
        let outgoing = self.output.queue(response, lease);
        self.own_responses
            .spawn(self.output.clone().write(outgoing));
    }
}

/// The message of a line, or of a part of a batch.
fn read(text: &[u8]) -> Parsed {
    match serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(text) {
        Ok(message) => Parsed::Message(Box::new(message)),
        Err(error) => unreadable(text, &error),
    }
}

/// The messages of a batch. For those that cannot be read, the responses are collected immediately.
fn split(messages: &[&RawValue], lease: Option<Arc<Lease>>) -> Parsed {
    let batch = Batch(Arc::new(BatchState {
        lease,
        responses: Mutex::default(),
    }));
    let mut queued = VecDeque::new();
    let mut responses = Responses::default();
    for message in messages {
        let text = message.get().as_bytes();
        let parsed = batch::misplaced(text).map_or_else(|| read(text), Parsed::Response);
        match parsed {
            Parsed::Message(message) => {
                responses.missing += usize::from(matches!(*message, JsonRpcMessage::Request(_)));
                queued.push_back(Queued {
                    message: *message,
                    slot: Slot {
                        batch: batch.clone(),
                        index: responses.collected.len(),
                    },
                });
                responses.collected.push(None);
            }
            Parsed::Response(response) => {
                let response = response.to_string().into_bytes();
                responses.collected.push(Some((response, None)));
            }
            Parsed::Batch(..) | Parsed::Nothing => {}
        }
    }
    *batch.responses() = responses;
    Parsed::Batch(batch, queued)
}

/// The outcome of a text that is not an MCP message.
fn unreadable(text: &[u8], error: &serde_json::Error) -> Parsed {
    match Envelope::read(text) {
        Some(envelope) if envelope.is_notification() => Parsed::Nothing,
        Some(envelope) if envelope.id.is_some() => {
            Parsed::Response(envelope.unreadable(&error.to_string()))
        }
        _ if error.classify() == Category::Data => Parsed::Response(envelope::error(
            &Value::Null,
            -32600,
            batch::not_a_message(text, "Invalid Request: not a JSON-RPC message"),
        )),
        // Responding to non-JSON input could loop forever with a peer that echoes it.
        _ => Parsed::Nothing,
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
        let request = id.and_then(|id| self.output.end(id));
        if let JsonRpcMessage::Response(response) = &message
            && let ServerResult::InitializeResult(result) = &response.result
        {
            self.has_batches = result.protocol_version.as_str() == batch::REVISION;
        }
        let outgoing = self.output.respond(message, request);
        let output = self.output.clone();
        async move {
            match outgoing? {
                Some(outgoing) => output.write(outgoing).await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            while self.own_responses.try_join_next().is_some() {}
            let mut waiting = self.output.waiting.subscribe();
            waiting
                .wait_for(|waiting| {
                    waiting.bytes < MAX_WAITING
                        && waiting.in_flight + waiting.messages < MAX_IN_FLIGHT
                })
                .await
                .ok()?;
            if !self.queued.is_empty() {
                // The message stays in the queue until there is a lease: `receive` may be dropped at this await.
                let lease = Arc::new(self.budget.enter_when_free(Caller::Anyone).await);
                if let Some(Queued { message, slot }) = self.queued.pop_front() {
                    return Some(self.hand_over(message, Some(lease), Some(slot)));
                }
            }
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => {
                    while self.own_responses.join_next().await.is_some() {}
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
                Parsed::Message(message) => return Some(self.hand_over(*message, lease, None)),
                Parsed::Nothing => {}
                Parsed::Response(response) => {
                    self.write_own_response(response.to_string().into_bytes(), lease)
                }
                Parsed::Batch(batch, queued) => {
                    self.queued = queued;
                    if let Some(array) = batch.array() {
                        self.write_own_response(array, batch.0.lease.clone());
                    }
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.writer.lock().await.take());
        Ok(())
    }
}
