//! A service with keys, and gateways to it.

use std::process::Stdio as Pipe;

use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::v1::{ListThreadsRequest, ListThreadsResponse};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use tokio::process::Child;
use tonic::Status;

use crate::Door;
use crate::grpc::Grpc;
use crate::mcp::{Http, Stdio};
use crate::process::{Service, Storage, command, free_port, wait_for};
use crate::rest::Rest;

/// A service that wants a key for everything.
pub struct KeyedService {
    service: Service,
}

impl KeyedService {
    /// Starts it on a fresh database.
    pub async fn start() -> Self {
        Self::start_with(&[("AUTH", "keys")]).await
    }

    /// Starts it on this database.
    pub async fn start_on(storage: Storage) -> Self {
        Self {
            service: Service::start_on(storage, &[("AUTH", "keys")]).await,
        }
    }

    /// Starts it with these settings.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self {
            service: Service::start_with(settings).await,
        }
    }

    /// Lists the threads over REST.
    pub async fn rest(&self, authorization: Option<&str>) -> Reply {
        let request = Client::new().get(format!("http://{}/v1/threads", self.service.address));
        send(request, authorization).await
    }

    /// Lists the threads over gRPC.
    ///
    /// # Errors
    /// What the service says.
    pub async fn grpc(&self, authorization: Option<&str>) -> Result<ListThreadsResponse, Status> {
        let mut client = ContextServiceClient::connect(format!("http://{}", self.service.address))
            .await
            .expect("a connection");
        let mut request = tonic::Request::new(ListThreadsRequest::default());
        if let Some(value) = authorization {
            request
                .metadata_mut()
                .insert("authorization", value.parse().expect("a header"));
        }
        client
            .list_threads(request)
            .await
            .map(tonic::Response::into_inner)
    }

    async fn run(&self, arguments: &[&str]) -> String {
        let settings = self
            .service
            .settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let output = command("context-service", &self.service.dir)
            .envs(settings)
            .args(arguments)
            .output()
            .await
            .expect("the command runs");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Makes a key of the owner `default`, with the command that people use.
    pub async fn key(&self, name: &str, scopes: &[&str]) -> String {
        self.key_of("default", name, scopes).await
    }

    /// Makes a key of this owner.
    pub async fn key_of(&self, owner: &str, name: &str, scopes: &[&str]) -> String {
        let printed = self
            .run(&[
                "keys",
                "create",
                name,
                "--owner",
                owner,
                "--scopes",
                &scopes.join(","),
            ])
            .await;
        printed.lines().next().expect("the key").to_owned()
    }

    /// Makes a key of the owner `default` that may do everything, but only there or until then.
    pub async fn key_with(&self, name: &str, limits: &[&str]) -> String {
        let printed = self
            .run(
                &[
                    &["keys", "create", name, "--scopes", "read,write,delete"],
                    limits,
                ]
                .concat(),
            )
            .await;
        printed.lines().next().expect("the key").to_owned()
    }

    /// Switches the key with this name off.
    pub async fn revoke(&self, name: &str) {
        let listed = self.run(&["keys", "list"]).await;
        let keys = listed
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
        let key = keys
            .into_iter()
            .find(|key| key["name"] == name)
            .expect("the key is listed");
        self.run(&["keys", "revoke", key["id"].as_str().expect("an id")])
            .await;
    }

    /// Every door, with this key.
    pub async fn doors(&self, gateway: &Gateway, key: &str) -> Vec<(&'static str, Door)> {
        let address = &self.service.address;
        let mut settings = self.service.settings.clone();
        settings.extend([
            ("CONTEXT_API_KEY", key.to_owned()),
            ("CONTEXT_TOOLS", "full".to_owned()),
        ]);
        vec![
            ("gRPC", Door::Grpc(Grpc::connect(address, Some(key)).await)),
            ("REST", Door::Rest(Rest::connect(address, key))),
            (
                "MCP over HTTP",
                Door::McpHttp(Http::connect(&gateway.address, key)),
            ),
            (
                "MCP over stdio",
                Door::McpStdio(Stdio::start_on(&self.service.dir, &settings).await),
            ),
        ]
    }

    /// Writes a file beside the database and gives its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.service.dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}

/// A gateway that asks callers for keys, over HTTP.
pub struct Gateway {
    /// Where it listens.
    pub address: String,
    client: Client,
    _gateway: Child,
}

/// What an HTTP request got.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `WWW-Authenticate`, or "".
    pub challenge: String,
    /// The body.
    pub body: Value,
}

impl Reply {
    /// The text of a tool's result.
    #[must_use]
    pub fn text(&self) -> &str {
        self.body["result"]["content"][0]["text"]
            .as_str()
            .unwrap_or_default()
    }
}

impl Gateway {
    /// One over HTTP.
    pub async fn http(service: &KeyedService) -> Self {
        Self::http_with(service, &[("AUTH", "keys")]).await
    }

    /// One over HTTP, with these settings.
    pub async fn http_with(service: &KeyedService, settings: &[(&str, &str)]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let gateway = command("context-gateway", &service.service.dir)
            .args(["http", "--tools", "full"])
            .env("GATEWAY_LISTEN", &address)
            .envs(settings.iter().copied())
            .env(
                "CONTEXT_BACKEND",
                format!("http://{}", service.service.address),
            )
            .stderr(Pipe::null())
            .spawn()
            .expect("the gateway starts");
        wait_for(&address).await;
        Self {
            client: Client::new(),
            address,
            _gateway: gateway,
        }
    }

    /// One on stdio, with these settings.
    pub async fn stdio(service: &KeyedService, environment: &[(&str, String)]) -> StdioGateway {
        StdioGateway(Stdio::start_on(&service.service.dir, environment).await)
    }

    async fn post(&self, message: Value, authorization: Option<&str>) -> Reply {
        let request = self
            .client
            .post(format!("http://{}/mcp", self.address))
            .header("accept", "application/json")
            .json(&message);
        send(
            request.header("mcp-protocol-version", "2025-06-18"),
            authorization,
        )
        .await
    }

    /// Calls a tool without arguments.
    pub async fn call(&self, tool: &str, authorization: Option<&str>) -> Reply {
        let params = json!({"name": tool, "arguments": {}});
        self.post(
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}),
            authorization,
        )
        .await
    }

    /// The names of all tools.
    pub async fn tools(&self, key: &str) -> Vec<String> {
        let reply = self
            .post(
                json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
                Some(&format!("Bearer {key}")),
            )
            .await;
        let tools = reply.body["result"]["tools"]
            .as_array()
            .expect("tools")
            .clone();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().expect("a name").to_owned())
            .collect()
    }

    /// Reads a page without credentials.
    pub async fn get(&self, path: &str) -> Value {
        let response = self
            .client
            .get(format!("http://{}{path}", self.address))
            .send()
            .await
            .expect("a response");
        assert!(
            response.status().is_success(),
            "{path}: {}",
            response.status()
        );
        response.json().await.expect("a JSON body")
    }
}

async fn send(request: RequestBuilder, authorization: Option<&str>) -> Reply {
    let request = match authorization {
        Some(value) => request.header("authorization", value),
        None => request,
    };
    let response = request.send().await.expect("a response");
    let header = response
        .headers()
        .get("www-authenticate")
        .map(|value| value.to_str().unwrap_or_default().to_owned());
    let status = response.status().as_u16();
    Reply {
        status,
        challenge: header.unwrap_or_default(),
        body: response.json().await.expect("a JSON body"),
    }
}

/// A gateway on stdio.
pub struct StdioGateway(Stdio);

impl StdioGateway {
    /// The result of a tool call.
    pub async fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.0.result(tool, arguments).await
    }
}
