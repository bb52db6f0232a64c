//! A service that authenticates its callers, and gateways to it.

use std::net::SocketAddr;
use std::time::Duration;

use context_proto::v1::context_service_client::ContextServiceClient;
use context_proto::v1::{ListThreadsRequest, ListThreadsResponse};
use context_test_support::http::{self, Request};
use context_test_support::{Process, grpc};
use serde_json::{Value, json};
use tonic::Status;

use crate::Client;
use crate::grpc::Grpc;
use crate::mcp::{Http, Stdio, post};
use crate::process::{Service, Storage};
use crate::rest::Rest;

/// Timeout of an operator's command.
const LIMIT: Duration = Duration::from_secs(90);

/// A service that requires a key for every operation. With `AUTH=oidc` it accepts tokens too.
pub struct KeyedService {
    service: Service,
}

impl KeyedService {
    /// Starts it on a fresh database.
    pub async fn start() -> Self {
        Self::start_with(&[("AUTH", "keys")]).await
    }

    /// Starts it on this database, with `AUTH=keys` and further settings.
    pub async fn start_on(storage: Storage, more: &[(&'static str, &str)]) -> Self {
        Self {
            service: Service::start_on(storage, &[&[("AUTH", "keys")], more].concat()).await,
        }
    }

    /// Starts it with these settings, which must include `AUTH`.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self {
            service: Service::start_with(settings).await,
        }
    }

    /// The address of its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Lists the threads over REST.
    pub async fn rest(&self, authorization: Option<&str>) -> Reply {
        let request = Request::get(self.service.address(), "/v1/threads");
        let request = match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        request.send().await.into()
    }

    /// Lists the threads over gRPC.
    ///
    /// # Errors
    /// The service's status.
    pub async fn grpc(&self, authorization: Option<&str>) -> Result<ListThreadsResponse, Status> {
        let mut client = ContextServiceClient::new(grpc::at(self.service.address()));
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
        let mut command = self.service.command("context-service");
        command.envs(settings).args(arguments);
        let output = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(LIMIT, output)
            .await
            .unwrap_or_else(|_| panic!("{arguments:?}: not within {LIMIT:?}"))
            .expect("the command runs");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    }

    /// Creates a key of the owner `default`, with the operator's command.
    pub async fn key(&self, name: &str, scopes: &[&str]) -> String {
        self.key_of("default", name, scopes).await
    }

    /// Creates a key of this owner.
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

    /// Creates a key of the owner `default` with the scopes read, write and delete, and these limits, as flags of
    /// `keys create`: `--threads one`.
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

    /// Revokes the key with this name.
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

    /// One client of each transport, with this key.
    pub async fn clients(&self, gateway: &Gateway, key: &str) -> Vec<(&'static str, Client)> {
        let address = self.service.address();
        let mut settings = self.service.settings.clone();
        settings.extend([
            ("CONTEXT_API_KEY", key.to_owned()),
            ("CONTEXT_TOOLS", "full".to_owned()),
        ]);
        vec![
            (
                "gRPC",
                Client::Grpc(Box::new(Grpc::connect(address, Some(key)))),
            ),
            ("REST", Client::Rest(Rest::connect(address, key))),
            (
                "MCP over HTTP",
                Client::McpHttp(Http::connect(gateway.address, key)),
            ),
            (
                "MCP over stdio",
                Client::McpStdio(Stdio::connect(&self.service, &settings).await),
            ),
        ]
    }

    /// Writes a file beside the database and returns its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.service.home.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}

/// A gateway over HTTP that authenticates its callers.
pub struct Gateway {
    /// The address it listens on.
    pub address: SocketAddr,
    _gateway: Process,
}

/// The reply to an HTTP request.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The header `WWW-Authenticate`, or "".
    pub challenge: String,
    /// The body.
    pub body: Value,
}

impl From<http::Reply> for Reply {
    fn from(reply: http::Reply) -> Self {
        Self {
            status: reply.status.as_u16(),
            challenge: reply
                .header("www-authenticate")
                .unwrap_or_default()
                .to_owned(),
            body: reply.json(),
        }
    }
}

impl Reply {
    /// The text of a tool's result.
    ///
    /// # Panics
    /// When it is no result of a tool, so that a text is not missing for that reason.
    #[must_use]
    pub fn text(&self) -> &str {
        let text = self.body["result"]["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no result of a tool: {self:?}"))
    }
}

impl Gateway {
    /// Starts a gateway over HTTP with `AUTH=keys`.
    pub async fn http(service: &KeyedService) -> Self {
        Self::http_with(service, &[("AUTH", "keys")]).await
    }

    /// Starts a gateway over HTTP with these settings, which must include `AUTH`.
    pub async fn http_with(service: &KeyedService, settings: &[(&str, &str)]) -> Self {
        let gateway = service
            .service
            .http_gateway(&["--tools", "full"], settings)
            .await;
        Self {
            address: gateway.address(),
            _gateway: gateway,
        }
    }

    /// Starts a gateway on stdio with these settings.
    pub async fn stdio(service: &KeyedService, environment: &[(&str, String)]) -> StdioGateway {
        StdioGateway(Stdio::connect(&service.service, environment).await)
    }

    async fn post(&self, message: Value, authorization: Option<&str>) -> Reply {
        post(self.address, &message, authorization).await.into()
    }

    /// Posts a batch of tool calls, in the protocol revision that has batches.
    pub async fn batch(&self, calls: &[(&str, Value)], authorization: Option<&str>) -> Reply {
        let batch: Value = (1..)
            .zip(calls)
            .map(|(id, (tool, arguments))| {
                let params = json!({"name": tool, "arguments": arguments});
                json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            })
            .collect();
        let request = Request::post(self.address, "/mcp", &batch)
            .header("accept", "application/json")
            .header("mcp-protocol-version", "2025-03-26");
        let request = match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        request.send().await.into()
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

    /// Gets a JSON document without credentials.
    pub async fn get(&self, path: &str) -> Value {
        let reply = Request::get(self.address, path).send().await;
        assert!(reply.status.is_success(), "{path}: {}", reply.status);
        reply.json()
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
