//! The accept loop: bounded connections, no waiting for slow heads, and a bounded drain at the end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Connections open at the same time; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 1024;
/// How long a client may take to send a request head, and how long an idle connection is kept.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long running requests may go on after the stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves `app` on `listener` until `stop` is cancelled, then lets running requests finish for ten seconds.
///
/// # Errors
/// None at present; a failed connection ends that connection alone.
pub async fn serve(listener: TcpListener, app: Router, stop: CancellationToken) -> io::Result<()> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    loop {
        let permit = tokio::select! {
            () = stop.cancelled() => break,
            permit = connections.clone().acquire_owned() => permit.map_err(io::Error::other)?,
        };
        let stream = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, mostly: accepting at once again would spin.
                    tracing::warn!(%error, "A connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        // Replies are written whole; waiting for more to send would only delay them.
        let _ = stream.set_nodelay(true);
        let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app.clone())).into_owned();
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "A connection ended with an error");
            }
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("Requests still ran ten seconds after the stop and were cut off");
    }
    Ok(())
}
