use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::Result;

/// The MCP revision of the requests. The servers keep no session, so they accept requests without `initialize`.
const MCP_REVISION: &str = "2025-11-25";

/// A persistent HTTP/1.1 connection.
pub struct Http1 {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Message {
    method: Method,
    path: String,
    body: Bytes,
    mcp: bool,
}

impl Message {
    /// A GET request.
    pub fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            body: Bytes::new(),
            mcp: false,
        }
    }

    /// A POST request with JSON.
    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            path: path.to_owned(),
            body: body.into(),
            mcp: false,
        }
    }

    /// A JSON-RPC request to an MCP server at `/mcp`.
    pub fn mcp(request: &Value) -> Self {
        Self {
            mcp: true,
            ..Self::post("/mcp", request.to_string())
        }
    }
}

impl Http1 {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self {
            address,
            sender: open(address).await?,
            host: HeaderValue::from_str(&address.to_string())?,
        })
    }

    /// Sends a request and returns the body of the reply.
    ///
    /// # Errors
    /// The connection breaks, or the status is not a success. The error contains the body.
    pub async fn send(&mut self, message: Message) -> Result<Bytes> {
        let Message {
            method,
            path,
            body,
            mcp,
        } = message;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host);
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request = if mcp {
            // The gateway does not need both media types. The floor, which is plain rmcp, requires them.
            request
                .header(header::ACCEPT, "application/json, text/event-stream")
                .header("mcp-protocol-version", MCP_REVISION)
        } else {
            request.header(header::ACCEPT, "application/json")
        };
        // Servers close connections that are idle for some time.
        if self.sender.is_closed() {
            self.sender = open(self.address).await?;
        }
        self.sender.ready().await?;
        let response = self
            .sender
            .send_request(request.body(Full::new(body))?)
            .await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status.is_success() {
            Ok(body)
        } else {
            Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into())
        }
    }
}

async fn open(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
