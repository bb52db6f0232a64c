//! Runs one scenario through every client of a running service: gRPC, REST, MCP over HTTP and MCP over stdio.
//!
//! Each client gets its own fresh database and processes, and makes the same calls in the same order. It skips the
//! steps that it cannot express ([`Step`]). The [`Answer`]s must be equal key by key, except for values that depend on
//! the time or the machine, for generated values ([`Names`]), and for what MCP leaves out ([`Brief`]). The scenario
//! says what they must contain.

mod answer;
mod brief;
mod grpc;
pub mod keys;
mod mcp;
mod names;
mod process;
mod rest;
mod scenario;

pub use answer::Answer;
pub use brief::Brief;
pub use names::Names;
pub use process::Storage;
pub use scenario::{Scenario, Step, substitute};

use serde_json::Value;

/// A client of the operations.
pub enum Client {
    /// The generated gRPC client.
    Grpc(Box<grpc::Grpc>),
    /// HTTP and JSON.
    Rest(rest::Rest),
    /// Tool calls over streamable HTTP.
    McpHttp(mcp::Http),
    /// Tool calls over a pipe.
    McpStdio(mcp::Stdio),
}

impl Client {
    /// Starts a fresh service for every client, and a gateway where the client needs one.
    pub async fn open_all(storage: Storage) -> Vec<(&'static str, Self)> {
        vec![
            (
                "gRPC",
                Self::Grpc(Box::new(grpc::Grpc::start(storage).await)),
            ),
            ("REST", Self::Rest(rest::Rest::start(storage).await)),
            (
                "MCP over HTTP",
                Self::McpHttp(mcp::Http::start(storage).await),
            ),
            (
                "MCP over stdio",
                Self::McpStdio(mcp::Stdio::start(storage).await),
            ),
        ]
    }

    /// Starts a fresh service with a gateway on stdio.
    pub async fn open_mcp() -> Self {
        Self::McpStdio(mcp::Stdio::start(Storage::Sqlite).await)
    }

    /// Starts a service with these settings and a gRPC client.
    pub async fn open_grpc_with(settings: &[(&str, &str)]) -> Self {
        Self::Grpc(Box::new(grpc::Grpc::start_with(settings).await))
    }

    /// Starts a service with these settings and a gateway on stdio.
    pub async fn open_mcp_with(settings: &[(&str, &str)]) -> Self {
        Self::McpStdio(mcp::Stdio::start_with(settings).await)
    }

    /// Ends the processes that were started with this client. When it returns, no process has the database open.
    pub async fn close(self) {
        match self {
            Self::Grpc(client) => client.close(),
            Self::McpStdio(client) => client.close().await,
            // No test opens the databases of these clients again. Their processes end when they are dropped.
            Self::Rest(_) | Self::McpHttp(_) => {}
        }
    }

    /// Whether requests are JSON, so that a value can have the wrong type.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        !matches!(self, Self::Grpc(_))
    }

    /// Computes the shorter answers of MCP from those of the other transports. `None` for gRPC and REST.
    #[must_use]
    pub fn brief(&self) -> Option<Brief> {
        match self {
            Self::Grpc(_) | Self::Rest(_) => None,
            Self::McpHttp(_) => Some(Brief::default()),
            Self::McpStdio(_) => Some(Brief::on_stdio()),
        }
    }

    /// The text of a tool's reply, unchanged.
    ///
    /// # Panics
    /// If it is not a client on stdio, or if the reply has no text.
    pub async fn text(&mut self, tool: &str, arguments: &Value) -> String {
        let Self::McpStdio(client) = self else {
            panic!("only tools have texts");
        };
        let result = client.result(tool, arguments).await;
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("{tool}: {result}"))
            .to_owned()
    }

    /// Calls an operation by its tool name.
    pub async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let answer = match self {
            Self::Grpc(client) => client.call(tool, arguments).await,
            Self::Rest(client) => client.call(tool, arguments).await,
            Self::McpHttp(client) => client.call(tool, arguments).await,
            Self::McpStdio(client) => client.call(tool, arguments).await,
        };
        if tool.contains("artifact") {
            answer.sentence_alone()
        } else {
            answer
        }
    }
}
