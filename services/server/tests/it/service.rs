//! A running service for one test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use context_engine::{Admin, Caller, Engine, WriteContext};
use context_model::CreateApiKeyRequest;
use context_service::cli::Cli;
use context_service::{Started, config, start};
use context_test_support::http::Request;
use context_test_support::until;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A key: the secret and the id.
pub struct Key {
    pub text: String,
    pub id: String,
}

/// A service that stops when this value is dropped. Its directory is then removed, with the SQLite database, unless
/// flags name another database.
pub struct Service {
    pub address: SocketAddr,
    pub grpc_address: Option<SocketAddr>,
    pub socket: PathBuf,
    /// The key that the first start with keys prints.
    pub first_key: Option<String>,
    pub engine: Arc<Engine>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _directory: TempDir,
}

impl Service {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a service with these flags in addition to those that every test needs.
    pub async fn start_with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let config = settings(directory.path(), flags);
        let Started::Running(running) = start(&config).await.expect("the service starts") else {
            panic!("no other service uses this database");
        };
        Self {
            address: running.address().expect("an address"),
            grpc_address: running.start_report().grpc_address,
            socket: running.socket().to_owned(),
            first_key: running.start_report().first_key.clone(),
            engine: running.engine().clone(),
            stop: running.stop(),
            task: tokio::spawn(running.run()),
            _directory: directory,
        }
    }

    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path)
    }

    pub fn post(&self, path: &str, body: serde_json::Value) -> Request {
        self.request("POST", path).json(&body)
    }

    pub fn patch(&self, path: &str, body: serde_json::Value) -> Request {
        self.request("PATCH", path).json(&body)
    }

    pub fn delete(&self, path: &str) -> Request {
        self.request("DELETE", path)
    }

    pub fn request(&self, method: &str, path: &str) -> Request {
        Request::new(method, format!("http://{}{path}", self.address))
    }

    /// Stores an entry and returns its id.
    pub async fn store(&self, thread: &str, text: &str) -> i64 {
        let body = serde_json::json!({"thread_id": thread, "source": "user", "text": text});
        let reply = self.post("/v1/contexts", body).send().await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        reply.json()["context_id"].as_i64().expect("an id")
    }

    /// Stores an entry of the owner `default` without a request: it needs no key and no slot.
    pub async fn store_unseen(&self, entry: serde_json::Value) {
        let entry = serde_json::from_value(entry).expect("an entry");
        let (contexts, write) = (&self.engine.contexts, WriteContext::default());
        let stored = contexts.store_context(&Caller::local(), entry, write).await;
        stored.expect("it is stored");
    }

    /// Creates a key of this owner.
    pub async fn key(&self, owner: &str, scopes: &[&str]) -> Key {
        self.key_with(owner, scopes, CreateApiKeyRequest::default())
            .await
    }

    /// Creates a key of this owner with these options.
    pub async fn key_with(&self, owner: &str, scopes: &[&str], more: CreateApiKeyRequest) -> Key {
        let scopes = Some(scopes.iter().map(ToString::to_string).collect());
        let key = CreateApiKeyRequest {
            name: "test".to_owned(),
            scopes,
            ..more
        };
        let printed = self
            .engine
            .access
            .administer(Admin::CreateKey {
                owner: owner.to_owned(),
                key,
            })
            .await
            .expect("a key");
        let text = printed
            .split_whitespace()
            .next()
            .expect("the key")
            .to_owned();
        let id = printed
            .split("Its id is ")
            .nth(1)
            .and_then(|rest| rest.split('.').next())
            .expect("its id")
            .to_owned();
        Key { text, id }
    }

    /// A search that reaches its time limit on SQLite. Each condition scans a long array to its end.
    pub async fn endless_search(&self) -> Request {
        self.post("/v1/contexts/search", self.endless_search_body().await)
    }

    /// Stores the entries, and returns the body of such a search.
    pub async fn endless_search_body(&self) -> serde_json::Value {
        let mut labels = vec![0; 150_000];
        labels.push(1);
        for i in 0..10 {
            let entry = json!({"thread_id": "endless", "source": "user", "text": format!("entry {i}"), "metadata": {"labels": labels}});
            self.store_unseen(entry).await;
        }
        let condition = json!({"key": "labels", "operator": "array_contains", "value": 1});
        json!({"metadata_filters": vec![condition; 100]})
    }

    /// Waits until an operation runs. The request for metrics does not count as an operation.
    pub async fn until_busy(&self) {
        until("an operation runs", async || {
            let metrics = self.get("/metrics").send().await.body;
            metrics.contains("context_requests_in_flight 1\n")
        })
        .await;
    }

    /// Requests the service to stop.
    pub fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Waits until it has stopped.
    pub async fn stopped(mut self) {
        (&mut self.task).await.expect("it stops without a panic");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Settings for a service in this directory.
pub fn settings(directory: &Path, flags: &[&str]) -> config::Config {
    let database = format!("--db-path={}", directory.join("contexts.db").display());
    let socket = format!("--socket={}", directory.join("context.sock").display());
    let arguments = [
        "context-service",
        "--listen=127.0.0.1:0",
        "--embedding-provider=none",
        &database,
        &socket,
    ]
    .into_iter()
    .chain(flags.iter().copied());
    let cli: Cli =
        config::read(arguments.map(Into::into), &|_| None).expect("settings that can be read");
    cli.config
}
