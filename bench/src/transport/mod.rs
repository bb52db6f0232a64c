//! Clients of the service. Each has one connection and sends one request at a time.

mod grpc;
mod http1;
mod operation;
mod stdio;

pub use grpc::Grpc;
pub use http1::{Http1, Message};
pub use operation::{
    FULL_TEXT_LIMIT, Operation, Query, Question, SEARCH_LIMIT, THREAD_LIMIT, call, store,
};
pub use stdio::Stdio;

use std::net::SocketAddr;

use bytes::Bytes;
use serde_json::Value;

use crate::Result;

/// A connection to the service over one of the transports.
pub enum Connection {
    /// gRPC over TCP.
    Grpc(Grpc),
    /// REST over HTTP/1.1.
    Rest(Http1),
    /// MCP over stdin and stdout, with its own gateway.
    Stdio(Stdio),
    /// MCP through the HTTP gateway.
    McpHttp(Http1),
}

/// A request that is ready to send. Preparing it is not measured.
#[derive(Debug, Clone)]
pub enum Request {
    /// A typed message, which tonic encodes while sending.
    Grpc(Box<grpc::Message>),
    /// Method, path and body.
    Http(http1::Message),
    /// A line.
    Line(String),
}

/// A reply as received. Parsing JSON is not measured, because a benchmark is not a client.
#[derive(Debug)]
pub enum Reply {
    /// A typed message, decoded by tonic.
    Grpc(grpc::Reply),
    /// The body of a REST reply.
    Rest(Bytes),
    /// A JSON-RPC reply.
    Mcp(Vec<u8>),
}

impl Connection {
    /// Connects over REST.
    ///
    /// # Errors
    /// Nothing listens.
    pub async fn rest(address: SocketAddr) -> Result<Self> {
        Ok(Self::Rest(Http1::connect(address).await?))
    }

    /// Connects to an HTTP gateway.
    ///
    /// # Errors
    /// Nothing listens.
    pub async fn mcp_http(address: SocketAddr) -> Result<Self> {
        Ok(Self::McpHttp(Http1::connect(address).await?))
    }

    /// The request of an operation on this transport.
    pub fn request(&self, operation: &Operation) -> Request {
        match self {
            Self::Grpc(_) => Request::Grpc(Box::new(operation.grpc())),
            Self::Rest(_) => Request::Http(operation.rest()),
            Self::Stdio(_) => Request::Line(operation.mcp().to_string() + "\n"),
            Self::McpHttp(_) => Request::Http(http1::Message::mcp(&operation.mcp())),
        }
    }

    /// Sends a request and waits for the whole reply.
    ///
    /// # Errors
    /// The connection breaks, or the service rejects the request.
    pub async fn send(&mut self, request: Request) -> Result<Reply> {
        match (self, request) {
            (Self::Grpc(client), Request::Grpc(message)) => {
                Ok(Reply::Grpc(client.send(*message).await?))
            }
            (Self::Rest(client), Request::Http(message)) => {
                Ok(Reply::Rest(client.send(message).await?))
            }
            (Self::McpHttp(client), Request::Http(message)) => {
                Ok(Reply::Mcp(client.send(message).await?.to_vec()))
            }
            (Self::Stdio(client), Request::Line(line)) => Ok(Reply::Mcp(client.send(&line).await?)),
            _ => Err("a request for another transport".into()),
        }
    }

    /// Runs an operation.
    ///
    /// # Errors
    /// The connection breaks, or the service rejects the request.
    pub async fn run(&mut self, operation: &Operation) -> Result<Reply> {
        let request = self.request(operation);
        self.send(request).await
    }
}

impl Reply {
    /// The result as JSON, in the form that MCP tools and REST share.
    fn json(&self) -> Result<Value> {
        match self {
            Self::Grpc(_) => Err("not JSON".into()),
            Self::Rest(body) => Ok(serde_json::from_slice(body)?),
            Self::Mcp(body) => {
                let mut reply: Value = serde_json::from_slice(body)?;
                let result = &mut reply["result"];
                if result["isError"] != Value::Bool(false) {
                    return Err(format!("the tool failed: {reply}").into());
                }
                Ok(result["structuredContent"].take())
            }
        }
    }

    /// Checks that the reply has a result. MCP has the same status for a result and for an error of a tool.
    ///
    /// # Errors
    /// The tool failed.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Grpc(_) => Ok(()),
            Self::Rest(_) | Self::Mcp(_) => self.json().map(drop),
        }
    }

    /// The id of a stored entry.
    ///
    /// # Errors
    /// The reply is of another kind.
    pub fn stored_id(&self) -> Result<i64> {
        match self {
            Self::Grpc(reply) => reply.stored_id(),
            _ => self.json()?["context_id"]
                .as_i64()
                .ok_or_else(|| "no context_id".into()),
        }
    }

    /// The text of the single entry.
    ///
    /// # Errors
    /// The reply is of another kind.
    pub fn text(&self) -> Result<String> {
        match self {
            Self::Grpc(reply) => reply.text(),
            _ => {
                let json = self.json()?;
                let entry = json.get("result").map_or(&json, |list| &list[0]);
                entry["text_content"]
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| "no text_content".into())
            }
        }
    }

    /// The ids of the results, in order.
    ///
    /// # Errors
    /// The reply is of another kind.
    pub fn ids(&self) -> Result<Vec<i64>> {
        match self {
            Self::Grpc(reply) => reply.ids(),
            _ => {
                let json = self.json()?;
                let results = json["results"].as_array().ok_or("no results")?;
                Ok(results
                    .iter()
                    .filter_map(|entry| entry["id"].as_i64())
                    .collect())
            }
        }
    }

    /// The number of returned threads.
    ///
    /// # Errors
    /// The reply is of another kind.
    pub fn threads(&self) -> Result<usize> {
        match self {
            Self::Grpc(reply) => reply.threads(),
            _ => self.json()?["threads"]
                .as_array()
                .map(Vec::len)
                .ok_or_else(|| "no threads".into()),
        }
    }

    /// `total_entries`.
    ///
    /// # Errors
    /// The reply is of another kind.
    pub fn total(&self) -> Result<i64> {
        match self {
            Self::Grpc(reply) => reply.total(),
            _ => self.json()?["total_entries"]
                .as_i64()
                .ok_or_else(|| "no total_entries".into()),
        }
    }
}
