//! The accept loop. It limits connections in total and for each address, closes connections that
//! are idle or do not receive, and drains them for a limited time at shutdown.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long connections are idle and replies wait"
)]

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::response::Response;
use context_edge::unread;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::http::held;

/// Largest request head, and largest single read, in bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;
/// How long requests may keep running after the stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Minimum time between two warnings that an attacker could trigger at will.
const WARN_AGAIN: Duration = Duration::from_secs(10);
/// Lowest rate at which a peer may receive a long reply, in bytes per second.
const REPLY_RATE: u64 = 64 * 1024;

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum number of connections. Beyond it, the one that has been idle longest is closed.
    pub connections: usize,
    /// Maximum number of connections from one address (IPv6: one /64 network). A proxy makes all
    /// its clients share one address.
    pub per_address: usize,
    /// How long a connection may be open without a request in flight: silent, in the middle of a
    /// head, or between two requests. It is longer than proxies keep idle connections, so that a
    /// proxy does not send into a connection that is being closed.
    pub idle: Duration,
    /// How long a peer may receive nothing of a reply. The whole reply has twice that, plus one
    /// second for each 64 KiB.
    pub reply: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            per_address: 512,
            idle: Duration::from_secs(75),
            reply: Duration::from_secs(30),
        }
    }
}

impl ConnectionLimits {
    /// These limits with fewer connections. One address keeps its share of them.
    #[must_use]
    pub fn reduced_to(self, connections: usize) -> Self {
        let share = self.per_address.saturating_mul(connections) / self.connections.max(1);
        Self {
            connections,
            per_address: share.min(connections).max(1),
            ..self
        }
    }
}

/// Serves `app` on `listener` until `stop` is cancelled, then gives running requests ten seconds to
/// finish.
///
/// # Errors
/// None at present. An error on one connection ends only that connection.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> io::Result<()> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(MAX_HEAD_BYTES).unwrap_or(u32::MAX))
        // The window limits the data that was received and not yet read, also before
        // authentication. It starts small and grows with what is read.
        .adaptive_window(true)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    let builder = Arc::new(builder);
    let open = Arc::new(Open {
        limits,
        connections: Mutex::default(),
    });
    let tracker = TaskTracker::new();
    let cut = CancellationToken::new();
    let mut warned: Option<Instant> = None;
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of file descriptors; accepting again immediately would spin.
                tracing::warn!(%error, "Could not accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let Some(connection) = open.admit(network(address.ip())) else {
            if warned.is_none_or(|at| at.elapsed() > WARN_AGAIN) {
                warned = Some(Instant::now());
                tracing::warn!(
                    address = %address.ip(),
                    "Closed a new connection: all connections of its address (GATEWAY_MAX_CONNECTIONS_PER_ADDRESS), or all connections, have requests in flight"
                );
            }
            continue;
        };
        // Replies are written whole; waiting for more data would only delay them.
        let _ = stream.set_nodelay(true);
        let serving = connection.serve(stream, builder.clone(), app.clone(), stop.clone());
        let cut = cut.clone();
        tracker.spawn(async move { cut.run_until_cancelled(serving).await });
    }
    drop(listener);
    tracker.close();
    if tokio::time::timeout(DRAIN, tracker.wait()).await.is_err() {
        tracing::warn!("Cancelled requests that were still running ten seconds after the stop");
        cut.cancel();
        tracker.wait().await;
    }
    Ok(())
}

/// What counts as one address: in IPv6 a /64 network, because a customer usually has a whole one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

/// The open connections.
#[derive(Debug)]
struct Open {
    limits: ConnectionLimits,
    connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    next: u64,
    by_number: HashMap<u64, Arc<Progress>>,
    by_address: HashMap<IpAddr, usize>,
}

impl Open {
    /// Returns a slot for a new connection. If the server or the address is at its limit, an idle
    /// connection is closed; `None` if none is idle.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Slot> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of_address = connections.by_address.get(&address).copied().unwrap_or(0);
        let crowded = of_address >= self.limits.per_address;
        if crowded || connections.by_number.len() >= self.limits.connections {
            let idle = connections
                .by_number
                .iter()
                .filter(|(_, other)| !crowded || other.address == address);
            let idle = idle
                .filter_map(|(number, other)| Some((other.idle_since()?, *number)))
                .min();
            let (_, number) = idle?;
            connections.remove(number)?.close.notify_one();
        }
        let number = connections.next;
        connections.next += 1;
        let progress = Arc::new(Progress::new(address));
        connections.by_number.insert(number, progress.clone());
        *connections.by_address.entry(address).or_default() += 1;
        Some(Slot {
            open: self.clone(),
            number,
            progress,
        })
    }
}

impl Connections {
    fn remove(&mut self, number: u64) -> Option<Arc<Progress>> {
        let removed = self.by_number.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&removed.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&removed.address);
            }
        }
        Some(removed)
    }
}

/// A connection's slot among the open ones. Dropping it frees the slot.
struct Slot {
    open: Arc<Open>,
    number: u64,
    progress: Arc<Progress>,
}

impl Slot {
    /// Serves requests until the peer leaves, is idle for too long, or stops receiving.
    async fn serve(
        self,
        stream: TcpStream,
        builder: Arc<auto::Builder<TokioExecutor>>,
        app: Router,
        stop: CancellationToken,
    ) {
        let limits = self.open.limits;
        let service = {
            let progress = self.progress.clone();
            hyper::service::service_fn(move |request: Request<Incoming>| {
                let work = InFlight::begin(progress.clone());
                let mut app = app.clone();
                async move {
                    let request = request.map(Body::new);
                    let response = unread::respond(request, |request| app.call(request)).await;
                    response.map(|response| work.until_sent(response, limits))
                }
            })
        };
        let mut connection =
            std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut check = tokio::time::interval(limits.idle.min(limits.reply) / 4);
        let mut stopping = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "Connection ended with an error");
                    }
                    return;
                }
                () = stop.cancelled(), if !stopping => {
                    stopping = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = self.progress.close.notified() => return,
                _ = check.tick() => {
                    let idle = self.progress.idle_since().is_some_and(|since| since.elapsed() > limits.idle);
                    if idle || self.progress.is_stuck(limits.reply) {
                        return;
                    }
                }
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.open
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(self.number);
    }
}

/// The state of one connection.
#[derive(Debug)]
struct Progress {
    address: IpAddr,
    close: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u64,
    in_flight: HashMap<u64, Step>,
    /// When the last request ended; before the first request, when the connection was opened.
    idle_since: Instant,
}

/// The progress of a request.
#[derive(Debug)]
enum Step {
    /// There is no response yet. The inner layers limit how long that takes.
    AwaitingResponse,
    /// Its reply is being sent.
    Reply {
        /// When the whole reply must have been received. `None` for a stream, which has no deadline
        /// while the peer keeps receiving.
        latest: Option<Instant>,
        /// When a part was last handed to the connection or received by the peer. Before the first part, when the
        /// response was ready.
        moved: Instant,
        /// Parts that were handed to the connection and not yet received.
        unsent: usize,
    },
}

impl Progress {
    fn new(address: IpAddr) -> Self {
        let state = State {
            next: 0,
            in_flight: HashMap::new(),
            idle_since: Instant::now(),
        };
        Self {
            address,
            close: Notify::new(),
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when no request has been in flight; `None` if one is.
    fn idle_since(&self) -> Option<Instant> {
        let state = self.state();
        state.in_flight.is_empty().then_some(state.idle_since)
    }

    /// Whether the peer receives nothing, or too slowly.
    fn is_stuck(&self, write_timeout: Duration) -> bool {
        self.state().in_flight.values().any(|step| match step {
            Step::AwaitingResponse
            | Step::Reply {
                latest: None,
                unsent: 0,
                ..
            } => false,
            Step::Reply { latest, moved, .. } => {
                moved.elapsed() > write_timeout
                    || latest.is_some_and(|latest| latest < Instant::now())
            }
        })
    }
}

/// A request in flight: until the last byte of its reply is received.
struct InFlight {
    progress: Arc<Progress>,
    number: u64,
}

impl InFlight {
    fn begin(progress: Arc<Progress>) -> Self {
        let mut state = progress.state();
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number, Step::AwaitingResponse);
        drop(state);
        Self { progress, number }
    }

    fn until_sent(self, response: Response, limits: ConnectionLimits) -> Response {
        let now = Instant::now();
        let latest = response
            .body()
            .size_hint()
            .exact()
            .map(|length| now + 2 * limits.reply + Duration::from_secs(length / REPLY_RATE));
        self.progress.state().in_flight.insert(
            self.number,
            Step::Reply {
                latest,
                moved: now,
                unsent: 0,
            },
        );
        let request = Arc::new(self);
        response.map(|body| held::until_sent(body, request))
    }

    fn moved(&self, change: impl FnOnce(&mut usize)) {
        if let Some(Step::Reply { moved, unsent, .. }) =
            self.progress.state().in_flight.get_mut(&self.number)
        {
            *moved = Instant::now();
            change(unsent);
        }
    }
}

impl held::Keep for InFlight {
    fn handed_over(&self) {
        self.moved(|unsent| *unsent += 1);
    }

    fn sent(&self) {
        self.moved(|unsent| *unsent -= 1);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut state = self.progress.state();
        state.in_flight.remove(&self.number);
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_keeps_its_share_of_fewer_connections() {
        for (per_address, expected) in [(512, 150), (1024, 300), (5000, 300), (1, 1)] {
            let limits = ConnectionLimits {
                per_address,
                ..ConnectionLimits::default()
            };
            let fewer = limits.reduced_to(300);
            assert_eq!((fewer.connections, fewer.per_address), (300, expected));
        }
    }
}
