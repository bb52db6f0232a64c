//! Accepting connections and serving HTTP/1.1 and HTTP/2 on them, within limits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::app::App;
use crate::edge::Peer;
use crate::patience::Patience;

/// A connection must say within this time whether it speaks HTTP/1.1 or HTTP/2; in HTTP/1.1 each request head must be
/// complete within it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a silent HTTP/2 connection is asked whether it still lives, and how long it may take to answer.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// A peer that takes nothing of a reply for this long is cut.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 512;
/// Bytes of request headers.
const MAX_HEADER_BYTES: u32 = 32 * 1024;
/// After a failed accept (out of file descriptors, say) there is no use in trying again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Something that accepts connections.
pub trait Listener: Send + Sync + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// The next connection of a peer that may connect; `None` when the peer may not.
    fn accept(&self) -> impl Future<Output = io::Result<Option<Self::Io>>> + Send;

    /// How its connections come.
    fn peer(&self) -> Peer;
}

impl Listener for TcpListener {
    type Io = tokio::net::TcpStream;

    async fn accept(&self) -> io::Result<Option<Self::Io>> {
        let (stream, _) = Self::accept(self).await?;
        // A reply that waits for more to send is a slow reply.
        let _ = stream.set_nodelay(true);
        Ok(Some(stream))
    }

    fn peer(&self) -> Peer {
        Peer::Tcp
    }
}

impl Listener for UnixListener {
    type Io = tokio::net::UnixStream;

    async fn accept(&self) -> io::Result<Option<Self::Io>> {
        let (stream, _) = Self::accept(self).await?;
        let own = rustix::process::geteuid().as_raw();
        match stream.peer_cred() {
            Ok(peer) if peer.uid() == own || peer.uid() == 0 => Ok(Some(stream)),
            Ok(peer) => {
                tracing::warn!(uid = peer.uid(), "Refused a connection of another user on the Unix socket");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn peer(&self) -> Peer {
        Peer::Unix
    }
}

/// The connections of a service, over all its listeners.
#[derive(Clone)]
pub struct Connections {
    app: Arc<App>,
    max_per_listener: usize,
    tracker: TaskTracker,
    open: watch::Sender<usize>,
    /// Cancelled: no new connections, and open ones finish what they have begun.
    pub drain: CancellationToken,
    /// Cancelled: open connections are cut.
    pub cut: CancellationToken,
}

impl Connections {
    /// No connections yet, and never more than this many through each listener: whoever takes every connection of the
    /// TCP port does not lock the socket's clients out.
    #[must_use]
    pub fn new(app: Arc<App>, max_per_listener: usize) -> Self {
        Self {
            app,
            max_per_listener: max_per_listener.min(Semaphore::MAX_PERMITS),
            tracker: TaskTracker::new(),
            open: watch::Sender::new(0),
            drain: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    /// How many are open now.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    /// Waits until all are closed, at most so long, and then cuts the rest.
    pub async fn closed(&self, timeout: Duration) {
        self.tracker.close();
        if tokio::time::timeout(timeout, self.tracker.wait()).await.is_err() {
            tracing::warn!(connections = *self.open.borrow(), "Cutting connections that did not finish in time");
        }
        self.cut.cancel();
        self.tracker.wait().await;
    }

    /// Accepts and serves connections until the drain begins.
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
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).half_close(false);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE)
            // The default of 64 KiB makes an image of 10 MB wait for 160 round trips.
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(4 * 1024 * 1024);
        let builder = Arc::new(builder);
        let slots = Arc::new(Semaphore::new(self.max_per_listener));
        while let Ok(slot) = slots.clone().acquire_owned().await {
            match listener.accept().await {
                Ok(Some(io)) => {
                    let connection = self.clone().connection(io, builder.clone(), router.clone(), listener.peer());
                    self.tracker.spawn(async move {
                        connection.await;
                        drop(slot);
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

    async fn connection(
        self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        builder: Arc<auto::Builder<TokioExecutor>>,
        router: Router,
        peer: Peer,
    ) {
        let _open = Open::new(&self);
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            router.clone().call(request.map(Body::new))
        });
        let io = Patience::new(io, WRITE_TIMEOUT);
        // A client of gRPC may connect long before it has something to ask: pings tell whether it lives.
        let speaks = io.has_begun();
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(io), service));
        let mut head_timeout = std::pin::pin!(tokio::time::sleep(HEAD_TIMEOUT));
        let mut waiting = true;
        let mut draining = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "A connection broke");
                    }
                    return;
                }
                () = self.drain.cancelled(), if !draining => {
                    draining = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = head_timeout.as_mut(), if waiting => {
                    if !speaks.load(Ordering::Relaxed) {
                        return;
                    }
                    waiting = false;
                }
                () = self.cut.cancelled() => return,
            }
        }
    }
}

/// Counts a connection while it is open.
struct Open<'a>(&'a Connections);

impl<'a> Open<'a> {
    fn new(connections: &'a Connections) -> Self {
        connections.app.metrics.connections.inc();
        connections.open.send_modify(|open| *open += 1);
        Self(connections)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.app.metrics.connections.dec();
        self.0.open.send_modify(|open| *open -= 1);
    }
}
