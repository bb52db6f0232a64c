//! The stdio transport: JSON-RPC lines on stdin and stdout, and nothing else on either.

mod lines;

use std::io;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::service::{QuitReason, serve_server_with_ct};
use rmcp::transport::io::stdio_pipes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::handler::Gateway;
use crate::memory::Budget;
use lines::Lines;

/// Serves the client that started this process until it closes stdin or `stop` is cancelled.
///
/// # Errors
/// If the client does not speak MCP.
pub async fn serve(
    gateway: Arc<Gateway>,
    max_message_bytes: usize,
    budget: Arc<Budget>,
    stop: CancellationToken,
) -> io::Result<()> {
    let (reader, writer) = stdio_pipes();
    serve_on(gateway, reader, writer, max_message_bytes, budget, stop).await
}

/// Like [`serve`], on any pair of streams.
///
/// # Errors
/// If the peer's first message does not begin an MCP session.
pub async fn serve_on(
    gateway: Arc<Gateway>,
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    max_message_bytes: usize,
    budget: Arc<Budget>,
    stop: CancellationToken,
) -> io::Result<()> {
    let transport = Lines::new(reader, writer, max_message_bytes, budget);
    let changes = gateway.features().changes();
    let running = match serve_server_with_ct(gateway, transport, stop).await {
        Ok(running) => running,
        // A client that disconnects without sending anything is not an error.
        Err(
            rmcp::service::ServerInitializeError::ConnectionClosed(_)
            | rmcp::service::ServerInitializeError::Cancelled,
        ) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    let announcing = tokio::spawn(announce(changes, running.peer().clone()));
    let reason = running.waiting().await.map_err(io::Error::other)?;
    announcing.abort();
    if let QuitReason::JoinError(error) = reason {
        return Err(io::Error::other(error));
    }
    Ok(())
}

/// Notifies clients of the `initialize`-based revisions when the tool list changes. Clients of
/// later revisions subscribe instead.
async fn announce<T>(mut changes: tokio::sync::watch::Receiver<T>, peer: rmcp::Peer<RoleServer>) {
    while changes.changed().await.is_ok() {
        if peer.peer_info().is_some() && peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}
