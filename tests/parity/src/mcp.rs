use std::net::SocketAddr;

use context_test_support::http::{Reply, Request};
use context_test_support::{Mcp, Process};
use serde_json::{Value, json};

use crate::Answer;
use crate::process::{Service, Storage};

/// The MCP client over streamable HTTP, without initialize.
pub struct Http {
    address: SocketAddr,
    key: Option<String>,
    _running: Option<(Process, Service)>,
}

/// The MCP client over a pipe. Its gateway finds the service by the database's socket.
pub struct Stdio {
    gateway: Mcp,
    service: Option<Service>,
}

impl Http {
    pub(crate) async fn start(storage: Storage) -> Self {
        let service = Service::start(storage).await;
        let gateway = service.http_gateway(&[], &[]).await;
        Self {
            address: gateway.address(),
            key: None,
            _running: Some((gateway, service)),
        }
    }

    /// Connects to a running gateway.
    pub(crate) fn connect(address: SocketAddr, key: &str) -> Self {
        Self {
            address,
            key: Some(key.to_owned()),
            _running: None,
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        let authorization = self.key.as_ref().map(|key| format!("Bearer {key}"));
        let reply = post(self.address, &message, authorization.as_deref()).await;
        assert!(reply.status.is_success(), "{tool}: HTTP {}", reply.status);
        answer(tool, &reply.json())
    }
}

/// Posts a message to a gateway.
pub(crate) async fn post(
    address: SocketAddr,
    message: &Value,
    authorization: Option<&str>,
) -> Reply {
    let request = Request::post(address, "/mcp", message)
        .header("accept", "application/json")
        .header("mcp-protocol-version", "2025-06-18");
    let request = match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    };
    request.send().await
}

impl Stdio {
    pub(crate) async fn start(storage: Storage) -> Self {
        let service = Service::start(storage).await;
        Self {
            gateway: service.stdio_gateway(&service.settings).await,
            service: Some(service),
        }
    }

    /// Starts a service and a gateway with these settings.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let service = Service::start_with(settings).await;
        let settings: Vec<(&str, String)> = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        Self {
            gateway: service.stdio_gateway(&settings).await,
            service: Some(service),
        }
    }

    /// Starts a gateway to a running service.
    pub(crate) async fn connect(service: &Service, settings: &[(&str, String)]) -> Self {
        Self {
            gateway: service.stdio_gateway(settings).await,
            service: None,
        }
    }

    /// Ends the gateway, and the service if it was started with this client.
    pub(crate) async fn close(self) {
        self.gateway.leave().await;
        if let Some(service) = self.service {
            service.stop();
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        answer(tool, &self.gateway.tool(tool, arguments).await)
    }

    /// The unchanged result of a tool call.
    pub(crate) async fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        self.gateway.tool(tool, arguments).await["result"].take()
    }
}

fn answer(tool: &str, message: &Value) -> Answer {
    let result = &message["result"];
    assert!(result.is_object(), "{tool}: a protocol error: {message}");
    let text = result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{tool}: no text: {message}"));
    let text: Value = serde_json::from_str(text)
        .unwrap_or_else(|_| panic!("{tool}: the text is not JSON: {text}"));
    if result["isError"] == json!(true) {
        // Tools that are documented to return a list return errors as a list with one item.
        let text = if text.is_array() {
            text[0].clone()
        } else {
            text
        };
        let string = |key: &str| text[key].as_str().unwrap_or_default().to_owned();
        return Answer::err(
            &string("error"),
            &string("reason"),
            text["violations"].clone(),
        );
    }
    let structured = result["structuredContent"].clone();
    // If a tool is documented to return a list, the text is the list, and the structured content has it in `result`.
    let shown = if text.is_array() {
        &structured["result"]
    } else {
        &structured
    };
    assert_eq!(&text, shown, "{tool}: text and structured content differ");
    Answer::ok(structured)
}
