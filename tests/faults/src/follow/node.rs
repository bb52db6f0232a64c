//! The services of a round.

use std::sync::Arc;

use context_engine::{Admin, Engine};
use context_model::CreateApiKeyRequest;
use context_service::cli::Cli;
use context_service::{Started, config, start};
use context_test_support::{Home, Process};
use tokio::task::JoinHandle;

use super::endpoint::{Endpoint, Endpoints};

/// The keys of a round with authentication.
pub(super) struct Keys {
    /// For everything of the owner.
    pub all: String,
    /// For reading one thread.
    pub narrow: String,
    /// Of another owner.
    pub other: String,
}

impl Keys {
    pub async fn new(engine: &Engine) -> Self {
        Self {
            all: new_key(engine, "default", &["read", "write", "delete"], None).await,
            narrow: new_key(engine, "default", &["read"], Some("t0")).await,
            other: new_key(engine, "another", &["read", "write", "delete"], None).await,
        }
    }
}

/// A service inside the test's process, or a process of its own, which can be killed.
pub(super) enum Running {
    InProcess {
        engine: Arc<Engine>,
        stop: Box<dyn Fn() + Send>,
        task: JoinHandle<()>,
    },
    Subprocess(Process),
}

/// A service, which can be stopped and started.
pub(super) struct Node {
    number: usize,
    pub home: Home,
    /// The flags of a service in this process.
    pub flags: Vec<String>,
    /// Whether the service is a process of its own.
    pub is_subprocess: bool,
    running: Option<Running>,
}

impl Node {
    pub fn new(number: usize, database: Option<&str>, is_subprocess: bool) -> Self {
        let mut home = Home::new().with("EMBEDDING_PROVIDER", "none");
        let mut flags = Vec::new();
        if let Some(url) = database {
            home = home
                .with("STORAGE_BACKEND", "postgresql")
                .with("POSTGRESQL_CONNECTION_STRING", url);
            flags.push("--storage-backend=postgresql".to_owned());
            flags.push(format!("--postgresql-connection-string={url}"));
        }
        Self {
            number,
            home,
            flags,
            is_subprocess,
            running: None,
        }
    }

    pub async fn start(&mut self, endpoints: &Endpoints, epoch: usize) {
        let (running, address) = if self.is_subprocess {
            let mut process = self.home.spawn();
            process.listening().await;
            let address = process.address();
            (Running::Subprocess(process), address)
        } else {
            let database = format!("--db-path={}", self.home.database().display());
            let socket = format!("--socket={}", self.home.socket().display());
            let flags = [
                "context-service",
                "--listen=127.0.0.1:0",
                "--embedding-provider=none",
                &database,
                &socket,
            ];
            let flags = flags
                .into_iter()
                .chain(self.flags.iter().map(String::as_str));
            let cli: Cli =
                config::read(flags.map(Into::into), &|_| None).expect("settings that can be read");
            let Started::Running(service) = start(&cli.config).await.expect("the service starts")
            else {
                panic!("another service uses this database");
            };
            let (address, token) = (service.address().expect("an address"), service.stop());
            let engine = Arc::clone(service.engine());
            let stop = Box::new(move || token.cancel());
            let task = tokio::spawn(service.run());
            (Running::InProcess { engine, stop, task }, address)
        };
        self.running = Some(running);
        endpoints.set(self.number, Some(Endpoint { address, epoch }));
    }

    /// Stops the service: with `kill -9` if it has its own process and `kills`.
    pub async fn stop(&mut self, endpoints: &Endpoints, kills: bool) {
        match self.running.take() {
            Some(Running::Subprocess(mut process)) => {
                if kills {
                    process.kill();
                } else {
                    let status = process.terminate().await;
                    assert!(
                        status.success(),
                        "a service that gets SIGTERM ends with success"
                    );
                }
            }
            Some(Running::InProcess { stop, task, .. }) => {
                stop();
                task.await.expect("the service stops without a panic");
            }
            None => {}
        }
        endpoints.set(self.number, None);
    }

    /// The engine of a service that runs in this process.
    pub fn engine(&self) -> Option<&Arc<Engine>> {
        match &self.running {
            Some(Running::InProcess { engine, .. }) => Some(engine),
            Some(Running::Subprocess(_)) | None => None,
        }
    }
}

async fn new_key(engine: &Engine, owner: &str, scopes: &[&str], thread: Option<&str>) -> String {
    let key = CreateApiKeyRequest {
        name: "follow".to_owned(),
        scopes: Some(scopes.iter().map(ToString::to_string).collect()),
        threads: thread.map(|thread| vec![thread.to_owned()]),
        ..CreateApiKeyRequest::default()
    };
    let owner = owner.to_owned();
    let printed = engine
        .access
        .administer(Admin::CreateKey { owner, key })
        .await
        .expect("a key");
    printed
        .split_whitespace()
        .next()
        .expect("the key")
        .to_owned()
}
