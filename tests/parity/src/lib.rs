//! One scenario through every door of a running service: gRPC, REST, MCP over HTTP and MCP over stdio.
//!
//! Each door gets its own fresh database and its own processes, and is asked the same questions in the same order.
//! [`Answer`]s are then equal key by key, times apart; the scenario says what they must contain.

mod answer;
mod grpc;
pub mod keys;
mod mcp;
mod names;
mod process;
mod rest;
mod scenario;

pub use answer::Answer;
pub use names::Names;
pub use process::Storage;
pub use scenario::{Scenario, Step, substitute};

use serde_json::Value;

/// A way to call the operations.
pub enum Door {
    /// The generated client.
    Grpc(grpc::Grpc),
    /// HTTP and JSON.
    Rest(rest::Rest),
    /// Tool calls over streamable HTTP.
    McpHttp(mcp::Http),
    /// Tool calls over a pipe.
    McpStdio(mcp::Stdio),
}

impl Door {
    /// Starts a fresh service, and a gateway where it needs one, for every door.
    pub async fn open_all(storage: Storage) -> Vec<(&'static str, Self)> {
        vec![
            ("gRPC", Self::Grpc(grpc::Grpc::start(storage).await)),
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

    /// Starts a service with these settings, to be asked over gRPC.
    pub async fn open_grpc_with(settings: &[(&str, &str)]) -> Self {
        Self::Grpc(grpc::Grpc::start_with(settings).await)
    }

    /// Starts a service with these settings and a gateway on stdio.
    pub async fn open_mcp_with(settings: &[(&str, &str)]) -> Self {
        Self::McpStdio(mcp::Stdio::start_with(settings).await)
    }

    /// Ends what was started with this door. When this returns nobody holds its database any more.
    pub async fn close(self) {
        match self {
            Self::Grpc(door) => door.close().await,
            Self::McpStdio(door) => door.close().await,
            // Nothing is opened anew on the databases of these: their processes end when they are dropped.
            Self::Rest(_) | Self::McpHttp(_) => {}
        }
    }

    /// Whether requests are JSON, so that they can be of a wrong type.
    #[must_use]
    pub const fn is_json(&self) -> bool {
        !matches!(self, Self::Grpc(_))
    }

    /// Calls an operation by its tool name.
    pub async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let answer = match self {
            Self::Grpc(door) => door.call(tool, arguments).await,
            Self::Rest(door) => door.call(tool, arguments).await,
            Self::McpHttp(door) => door.call(tool, arguments).await,
            Self::McpStdio(door) => door.call(tool, arguments).await,
        };
        if tool.contains("artifact") {
            answer.sentence_alone()
        } else {
            answer
        }
    }
}
