//! The floor of the gateway: an rmcp server with a single tool, which makes one bare tonic call.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::serve::ListenerExt as _;
use bytes::Bytes;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use tokio::net::TcpListener;

use super::echo::EchoClient;
use crate::Result;

/// Sends the argument `text` through the gRPC echo and replies with it.
#[derive(Debug, Clone)]
struct Hop(EchoClient);

impl ServerHandler for Hop {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> std::result::Result<CallToolResponse, ErrorData> {
        let text = request
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get("text"))
            .and_then(|text| text.as_str())
            .unwrap_or_default();
        let reply = self
            .0
            .clone()
            .echo(Bytes::copy_from_slice(text.as_bytes()))
            .await;
        let reply = reply.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let text = String::from_utf8_lossy(&reply).into_owned();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

/// Serves MCP on stdio until the client disconnects.
///
/// # Errors
/// The client does not speak MCP.
pub async fn serve_stdio(socket: &Path) -> Result<()> {
    let running = Hop(EchoClient::unix(socket))
        .serve(rmcp::transport::io::stdio_pipes())
        .await?;
    running.waiting().await?;
    Ok(())
}

/// Serves MCP over HTTP until the process is terminated.
///
/// # Errors
/// The server cannot listen.
pub async fn serve_http(socket: &Path, address: SocketAddr) -> Result<()> {
    let hop = Hop(EchoClient::unix(socket));
    let service = StreamableHttpService::new(
        move || Ok(hop.clone()),
        Arc::new(NeverSessionManager::default()),
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_retry(None),
    );
    let tcp = TcpListener::bind(address)
        .await?
        .tap_io(|stream| _ = stream.set_nodelay(true));
    axum::serve(tcp, Router::new().route_service("/mcp", service)).await?;
    Ok(())
}
