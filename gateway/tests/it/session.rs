//! Clients of the gateway: over HTTP without a network, and over a pair of streams as on stdio.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use context_gateway::http::{HttpConfig, app};
use context_gateway::memory::{BYTES_PER_BYTE, BYTES_PER_VALUE, Budget};
use context_gateway::scan::Scan;
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::fake::{MAX_MESSAGE_BYTES, Setup};

/// A protocol revision, and how its clients begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Clients begin with `initialize`. These tests leave it out where the transport allows that.
    Legacy(&'static str),
    /// Each request carries the protocol version and the client's capabilities.
    Modern,
}

pub const ERAS: [Era; 5] = [
    Era::Legacy("2024-11-05"),
    Era::Legacy("2025-03-26"),
    Era::Legacy("2025-06-18"),
    Era::Legacy("2025-11-25"),
    Era::Modern,
];

impl Era {
    pub fn request(self, id: u64, method: &str, mut params: Value) -> Value {
        if self == Self::Modern {
            params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}, "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }
}

pub fn router(setup: &Setup) -> Router {
    let config = HttpConfig {
        listen: "127.0.0.1:7421".parse().unwrap(),
        allowed_hosts: vec!["gateway.example".into()],
        allowed_origins: vec!["https://app.example:443".into()],
        guarded_as: None,
        max_message_bytes: MAX_MESSAGE_BYTES,
    };
    app(
        setup.gateway.clone(),
        &config,
        budget(),
        CancellationToken::new(),
    )
}

/// Enough memory for one message of the largest size.
pub fn budget() -> std::sync::Arc<Budget> {
    Budget::new(8 * MAX_MESSAGE_BYTES)
}

/// The memory that the gateway counts for a request over HTTP with this body.
pub fn memory_of(body: &str) -> usize {
    let mut scan = Scan::new(usize::MAX);
    scan.feed(body.as_bytes());
    body.len() * BYTES_PER_BYTE + scan.values() * BYTES_PER_VALUE
}

/// Requests that the gateway cannot read, and the code of the error that each must get. Their id is `ID`.
pub const UNREADABLE: [(&str, i64); 16] = [
    (r#"{"id":"ID","method":"tools/list"}"#, -32600),
    (
        r#"{"jsonrpc":"1.0","id":"ID","method":"tools/list"}"#,
        -32600,
    ),
    (r#"{"jsonrpc":2.0,"id":"ID","method":"tools/list"}"#, -32600),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"name":"list_threads","arguments":{"n":18446744073709551616}}}"#,
        -32600,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"name":"list_threads","arguments":{"n":-9223372036854775809}}}"#,
        -32600,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"name":"list_threads","arguments":{"n":1e999}}}"#,
        -32600,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"name":"list_threads","arguments":{"n":"\ud800"}}}"#,
        -32600,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"name":"list_threads","arguments":[]}}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"name":5,"arguments":{}}}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":{"arguments":{}}}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":["list_threads"]}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call","params":"list_threads"}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/call"}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"resources/read","params":{"uri":7}}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"prompts/get","params":{"name":"recall","arguments":[]}}"#,
        -32602,
    ),
    (
        r#"{"jsonrpc":"2.0","id":"ID","method":"tools/cull","params":[]}"#,
        -32602,
    ),
];

/// A POST to `/mcp` in the form of this protocol revision.
pub fn post(era: Era, message: &Value) -> Request<Body> {
    let mut request = Request::post("/mcp")
        .header("host", "127.0.0.1:7421")
        .header("content-type", "application/json")
        .header("accept", "application/json");
    match era {
        Era::Legacy(version) => request = request.header("mcp-protocol-version", version),
        Era::Modern => {
            request = request
                .header("mcp-protocol-version", "2026-07-28")
                .header("mcp-method", message["method"].as_str().unwrap());
            if let Some(name) = message["params"]["name"]
                .as_str()
                .or(message["params"]["uri"].as_str())
            {
                request = request.header("mcp-name", name);
            }
        }
    }
    request.body(Body::from(message.to_string())).unwrap()
}

/// Sends a request. Returns the status, and the body as JSON, or as a string if it is not JSON.
pub async fn exchange(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), MAX_MESSAGE_BYTES)
        .await
        .unwrap();
    (
        status,
        serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body))),
    )
}

/// Waits for an outcome that should be immediate. A test that would wait forever fails instead.
pub async fn within_a_minute<T>(what: &str, outcome: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), outcome)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within a minute"))
}

/// A client of a gateway on stdio.
pub struct Pipe {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    pub serving: tokio::task::JoinHandle<std::io::Result<()>>,
    pub stop: CancellationToken,
    next: u64,
    era: Era,
}

impl Pipe {
    /// Starts a gateway and a client. The client sends `initialize` if the protocol revision has it.
    pub async fn open(setup: &Setup, era: Era) -> Self {
        let (client, server) = tokio::io::duplex(1024 * 1024);
        let (server_reader, server_writer) = tokio::io::split(server);
        let (reader, writer) = tokio::io::split(client);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(context_gateway::stdio::serve_on(
            setup.gateway.clone(),
            server_reader,
            server_writer,
            MAX_MESSAGE_BYTES,
            budget(),
            stop.clone(),
        ));
        let mut pipe = Self {
            lines: BufReader::new(reader).lines(),
            writer,
            serving,
            stop,
            next: 0,
            era,
        };
        if let Era::Legacy(version) = era {
            let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
            let reply = pipe.request("initialize", params).await;
            assert_eq!(reply["result"]["protocolVersion"], version);
            pipe.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
                .await;
        } else {
            let reply = pipe.request("server/discover", json!({})).await;
            assert!(
                reply["result"]["supportedVersions"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("2026-07-28")),
                "{reply}"
            );
        }
        pipe
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_raw(&message.to_string()).await;
    }

    pub async fn send_raw(&mut self, line: &str) {
        self.writer
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// The next line, or `None` at the end.
    pub async fn line(&mut self) -> Option<Value> {
        within_a_minute("the next line", self.lines.next_line())
            .await
            .unwrap()
            .map(|line| serde_json::from_str(&line).unwrap())
    }

    pub async fn start(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message = self.era.request(self.next, method, params);
        self.send(&message).await;
        self.next
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start(method, params).await;
        let reply = self.line().await.expect("a reply");
        assert_eq!(reply["id"], id, "{reply}");
        reply
    }

    pub async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await["result"]
            .clone()
    }

    /// Closes stdin and waits for the gateway's end.
    pub async fn close(mut self) -> std::io::Result<()> {
        self.writer.shutdown().await.unwrap();
        drop(self.writer);
        drop(self.lines);
        within_a_minute("the gateway's end", self.serving)
            .await
            .unwrap()
    }
}

/// The JSON in the first text block of a tool result.
pub fn text(result: &Value) -> Value {
    assert_eq!(result["content"][0]["type"], "text", "{result}");
    serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
}
