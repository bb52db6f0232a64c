//! Accepts connections and serves HTTP/1.1 and HTTP/2 on them, within limits.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use context_edge::unread;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::app::App;
use crate::body::{Held, ReplyBody};
use crate::connection::{Connection, HEAD_TIMEOUT, Registry, network};
use crate::origin::{Origin, Peer};
use crate::write_timeout::WriteTimeout;

/// Interval of pings on a silent HTTP/2 connection, and how long the peer may take to respond.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// A connection is closed when a write to its socket makes no progress for this long.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which connection timeouts are checked.
const CHECK: Duration = Duration::from_secs(1);
/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 128;
/// Largest request headers on HTTP/2, in bytes. On HTTP/1.1 the limit is [`SEND_BUFFER_BYTES`].
const MAX_HEADER_BYTES: u32 = 32 * 1024;
/// Reply bytes in the buffers of a connection (HTTP/1.1) or stream (HTTP/2). They count as memory
/// until they are sent.
const SEND_BUFFER_BYTES: usize = 400 * 1024;
/// Pause after a failed accept, for example without file descriptors: an immediate retry would fail
/// again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener.
pub trait Listener: Send + Sync + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Accepts the next connection and returns it with the peer's address; `None` if the peer may
    /// not connect.
    fn accept(&self)
    -> impl Future<Output = io::Result<Option<(Self::Io, Option<IpAddr>)>>> + Send;

    /// The kind of peers that connect here.
    fn peer(&self) -> Peer;
}

impl Listener for TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<Option<(Self::Io, Option<IpAddr>)>> {
        let (stream, address) = Self::accept(self).await?;
        // Without TCP_NODELAY, small replies would be delayed.
        let _ = stream.set_nodelay(true);
        Ok(Some((stream, Some(address.ip()))))
    }

    fn peer(&self) -> Peer {
        Peer::Tcp
    }
}

impl Listener for UnixListener {
    type Io = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<Option<(Self::Io, Option<IpAddr>)>> {
        let (stream, _) = Self::accept(self).await?;
        let own = rustix::process::geteuid().as_raw();
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own || peer.uid() == 0 => Ok(Some((stream, None))),
            Ok(peer) => {
                tracing::warn!(
                    uid = peer.uid(),
                    "Refused a connection of another user on the Unix socket"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn peer(&self) -> Peer {
        Peer::Unix
    }
}

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Maximum for each listener.
    pub per_listener: usize,
    /// Maximum for one peer address, for each TCP listener.
    pub per_peer: usize,
}

/// The connections of all listeners.
#[derive(Clone)]
pub struct Connections {
    app: Arc<App>,
    limits: ConnectionLimits,
    tracker: TaskTracker,
    open: watch::Sender<usize>,
    /// Cancelled: no new connections; open ones finish their requests.
    pub drain: CancellationToken,
    /// Cancelled: open connections are closed immediately.
    pub cut: CancellationToken,
}

impl Connections {
    /// No connections yet. The limits apply to each listener separately, so that a client that
    /// takes all connections of the TCP port does not lock out clients of the socket.
    #[must_use]
    pub fn new(app: Arc<App>, limits: ConnectionLimits) -> Self {
        let per_listener = limits.per_listener.min(Semaphore::MAX_PERMITS);
        Self {
            drain: app.drain.clone(),
            app,
            limits: ConnectionLimits {
                per_listener,
                ..limits
            },
            tracker: TaskTracker::new(),
            open: watch::Sender::new(0),
            cut: CancellationToken::new(),
        }
    }

    /// The number of open connections.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// The connections of one more listener. They can be drained without the others, and are counted apart from them.
    /// When `self` is drained or cut, so are they.
    #[must_use]
    pub fn of_one_listener(&self) -> Self {
        Self {
            open: watch::Sender::new(0),
            drain: self.drain.child_token(),
            ..self.clone()
        }
    }

    /// Counts as an open connection until it is dropped.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        self.open.send_modify(|open| *open += 1);
        InUse(self.open.clone())
    }

    /// Whether any connection is open.
    #[must_use]
    pub fn are_open(&self) -> bool {
        *self.open.borrow() > 0
    }

    /// Waits until no connection has been open for `limit`.
    pub async fn idle(&self, limit: Duration) {
        let mut open = self.watch();
        loop {
            // The sender lives as long as this value, so waiting cannot fail.
            let _ = open.wait_for(|open| *open == 0).await;
            tokio::select! {
                () = tokio::time::sleep(limit) => return,
                _ = open.changed() => {}
            }
        }
    }

    /// Starts draining if at most one connection is open. A connection that opens at the same time is either
    /// counted or finds a service that is draining.
    #[must_use]
    pub fn drain_if_alone(&self) -> bool {
        let mut is_alone = false;
        self.open.send_if_modified(|open| {
            is_alone = *open <= 1;
            if is_alone {
                self.drain.cancel();
            }
            false
        });
        is_alone
    }

    /// Waits for all connections to close. After `timeout` the rest is closed by force.
    pub async fn closed(&self, timeout: Duration) {
        self.tracker.close();
        if tokio::time::timeout(timeout, self.tracker.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                connections = *self.open.borrow(),
                "Closing connections that did not finish in time"
            );
        }
        self.cut.cancel();
        self.tracker.wait().await;
    }

    /// Accepts and serves connections until draining starts.
    pub fn serve(&self, listener: impl Listener, router: Router) {
        let this = self.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = this.drain.cancelled() => {}
                () = this.accept(&listener, router) => {}
            }
        });
    }

    async fn accept(&self, listener: &impl Listener, router: Router) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .half_close(false)
            .max_buf_size(SEND_BUFFER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            // With the default of 64 KiB an image of 10 MB takes 160 round trips.
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024);
        let builder = Arc::new(builder);
        let slots = Arc::new(Semaphore::new(self.limits.per_listener));
        let registry = Registry::new(self.limits.per_peer);
        let _checks =
            tokio_util::task::AbortOnDropHandle::new(tokio::spawn(check(registry.clone())));
        loop {
            match listener.accept().await {
                Ok(Some((io, address))) => {
                    // After the accept, so that a connection is closed only for one that has come.
                    let Some(slot) = free_slot(&slots, &registry).await else {
                        return;
                    };
                    let peer = address.map(network);
                    let io = WriteTimeout::new(io, WRITE_TIMEOUT);
                    let connection = Connection::new(io.has_begun(), &self.drain, &self.cut);
                    // A peer beyond its limit is refused by closing the connection; the client
                    // decides whether to retry.
                    let Some(registered) = registry.admit(peer, connection.clone()) else {
                        self.app.metrics.refused_connections.inc();
                        continue;
                    };
                    let origin = Origin {
                        peer: listener.peer(),
                        network: peer,
                        connection,
                    };
                    // Created before the next accept, so that this connection is counted before any later one.
                    let open = Open::new(self);
                    let served =
                        serve_connection(io, Arc::new(origin), builder.clone(), router.clone());
                    self.tracker.spawn(async move {
                        served.await;
                        drop((registered, slot, open));
                    });
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(%error, "Failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Serves one connection until it closes.
async fn serve_connection(
    io: WriteTimeout<impl AsyncRead + AsyncWrite + Send + Unpin + 'static>,
    origin: Arc<Origin>,
    builder: Arc<auto::Builder<TokioExecutor>>,
    router: Router,
) {
    let connection = origin.connection.clone();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let exchange = origin.connection.begin();
        request.extensions_mut().insert(origin.clone());
        let mut router = router.clone();
        async move {
            let request = request.map(Body::new);
            let mut response = unread::respond(request, |request| router.call(request)).await?;
            let held = response.extensions_mut().remove::<Held>();
            Ok::<_, std::convert::Infallible>(
                response.map(|body| ReplyBody::new(body, held, exchange)),
            )
        }
    });
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
    tokio::select! {
        result = served.as_mut() => {
            log_broken(result);
            return;
        }
        () = connection.drain.cancelled() => served.as_mut().graceful_shutdown(),
        () = connection.cut.cancelled() => return,
    }
    tokio::select! {
        result = served.as_mut() => log_broken(result),
        () = connection.cut.cancelled() => {}
    }
}

fn log_broken(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(%error, "Connection failed");
    }
}

/// Closes connections that exceed a timeout, for as long as it is polled.
async fn check(registry: Arc<Registry>) {
    loop {
        tokio::time::sleep(CHECK).await;
        registry.end_overdue();
    }
}

/// Waits for a slot. While none is free, expendable connections are closed.
async fn free_slot(slots: &Arc<Semaphore>, registry: &Registry) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(slot) = slots.clone().try_acquire_owned() {
            return Some(slot);
        }
        registry.make_room();
        match tokio::time::timeout(CHECK, slots.clone().acquire_owned()).await {
            Ok(slot) => return slot.ok(),
            Err(_) => continue,
        }
    }
}

/// Counts as an open connection.
pub struct InUse(watch::Sender<usize>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Counts a connection while it is open.
struct Open {
    app: Arc<App>,
    _in_use: InUse,
}

impl Open {
    fn new(connections: &Connections) -> Self {
        connections.app.metrics.connections.inc();
        Self {
            app: connections.app.clone(),
            _in_use: connections.in_use(),
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.app.metrics.connections.dec();
    }
}
