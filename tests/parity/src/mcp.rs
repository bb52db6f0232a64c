use std::process::Stdio as Pipe;

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::Answer;
use crate::grpc::start_answering;
use crate::process::{Service, Storage, command, free_port, wait_for};
use crate::rest::client;

/// The MCP door over streamable HTTP, without initialize.
pub struct Http {
    client: Client,
    url: String,
    _running: Option<(Child, Service)>,
}

/// The MCP door over a pipe. It finds its service by the database's socket.
pub struct Stdio {
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    next_id: i64,
    gateway: Child,
    service: Option<Service>,
}

impl Http {
    pub(crate) async fn start(storage: Storage) -> Self {
        let service = Service::start(storage).await;
        let address = format!("127.0.0.1:{}", free_port());
        let gateway = command("context-gateway", &service.dir)
            .arg("http")
            .env("GATEWAY_LISTEN", &address)
            .env("CONTEXT_BACKEND", format!("http://{}", service.address))
            .spawn()
            .expect("the gateway starts");
        wait_for(&address).await;
        Self {
            client: Client::new(),
            url: format!("http://{address}/mcp"),
            _running: Some((gateway, service)),
        }
    }

    /// To a gateway that runs already.
    pub(crate) fn connect(address: &str, key: &str) -> Self {
        Self {
            client: client(key),
            url: format!("http://{address}/mcp"),
            _running: None,
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let request = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        });
        let response = self
            .client
            .post(&self.url)
            .header("accept", "application/json")
            .header("mcp-protocol-version", "2025-06-18")
            .json(&request)
            .send()
            .await
            .expect("an HTTP response");
        assert!(
            response.status().is_success(),
            "{tool}: HTTP {}",
            response.status()
        );
        answer(tool, &response.json().await.expect("a JSON body"))
    }
}

impl Stdio {
    pub(crate) async fn start(storage: Storage) -> Self {
        let service = Service::start(storage).await;
        let door = Self::start_on(&service.dir, &service.settings).await;
        Self {
            service: Some(service),
            ..door
        }
    }

    /// To a service with these settings.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let service = start_answering(settings).await;
        let settings: Vec<(&str, String)> = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let door = Self::start_on(&service.dir, &settings).await;
        Self {
            service: Some(service),
            ..door
        }
    }

    /// Ends the gateway, and the service that was started with this door.
    pub(crate) async fn close(mut self) {
        self.gateway.kill().await.expect("the gateway ends");
        if let Some(service) = self.service {
            service.stop().await;
        }
    }

    /// A gateway for the service of this directory's database.
    pub(crate) async fn start_on(dir: &TempDir, settings: &[(&str, String)]) -> Self {
        let mut gateway = command("context-gateway", dir)
            .arg("stdio")
            .envs(settings.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .spawn()
            .expect("the gateway starts");
        let stdin = gateway.stdin.take().expect("a pipe");
        let stdout = BufReader::new(gateway.stdout.take().expect("a pipe")).lines();
        let mut door = Self {
            stdin,
            stdout,
            next_id: 0,
            gateway,
            service: None,
        };
        let client = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "parity", "version": "0"},
        });
        let reply = door.request("initialize", client).await;
        assert_eq!(reply["result"]["protocolVersion"], "2025-11-25", "{reply}");
        door.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        door
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.stdin
            .write_all(line.as_bytes())
            .await
            .expect("the gateway reads");
        self.stdin.flush().await.expect("the gateway reads");
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        loop {
            let line = self
                .stdout
                .next_line()
                .await
                .expect("the gateway writes")
                .expect("the gateway is there");
            let message: Value = serde_json::from_str(&line).expect("nothing but JSON on stdout");
            if message["id"] == json!(id) {
                return message;
            }
        }
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        let reply = self
            .request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await;
        answer(tool, &reply)
    }

    /// The result of a tool call as it stands.
    pub(crate) async fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))
            .await["result"]
            .take()
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
        // Tools documented to return a list give a list with the error in it.
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
    // Tools documented to return a list give the bare list as text.
    let shown = if text.is_array() {
        &structured["result"]
    } else {
        &structured
    };
    assert_eq!(&text, shown, "{tool}: text and structured content differ");
    Answer::ok(structured)
}
