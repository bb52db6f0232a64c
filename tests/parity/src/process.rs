//! The service under test, with its own database.

use std::net::SocketAddr;
use std::process::Command;

use context_test_postgres::TestDatabase;
use context_test_support::{Home, Mcp, Process};

/// The database of a service.
#[derive(Debug, Clone, Copy)]
pub enum Storage {
    /// A SQLite file.
    Sqlite,
    /// A PostgreSQL server, on which each service gets its own database.
    Postgres,
}

/// A running service on a fresh database.
pub(crate) struct Service {
    process: Process,
    pub(crate) home: Home,
    /// The settings for commands and gateways of this service: its database, and those that [`Self::start_on`] was
    /// given. Empty after [`Self::start_with`].
    pub(crate) settings: Vec<(&'static str, String)>,
    _database: Option<TestDatabase>,
}

impl Service {
    pub(crate) async fn start(storage: Storage) -> Self {
        Self::start_on(storage, &[]).await
    }

    pub(crate) async fn start_on(storage: Storage, more: &[(&'static str, &str)]) -> Self {
        let database = match storage {
            Storage::Sqlite => None,
            Storage::Postgres => Some(TestDatabase::empty().await.expect("there is a server")),
        };
        let mut settings = Vec::new();
        if let Some(database) = &database {
            settings.push(("STORAGE_BACKEND", "postgresql".to_owned()));
            settings.push(("POSTGRESQL_CONNECTION_STRING", database.url().to_owned()));
        }
        settings.extend(
            more.iter()
                .map(|(name, value)| (*name, (*value).to_owned())),
        );
        let given: Vec<(&str, &str)> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let service = Self::start_with(&given).await;
        Self {
            settings,
            _database: database,
            ..service
        }
    }

    /// Starts a service with settings in addition to the ones that every test needs.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let home = Home::new().with("EMBEDDING_PROVIDER", "none");
        let mut service = command(&home, "context-service");
        service.envs(settings.iter().copied());
        Self {
            process: home.start_as(service).await,
            home,
            settings: Vec::new(),
            _database: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address()
    }

    /// A command with the settings of this service's database.
    pub(crate) fn command(&self, name: &str) -> Command {
        command(&self.home, name)
    }

    /// Starts a gateway over HTTP to this service, with these settings.
    pub(crate) async fn http_gateway(
        &self,
        arguments: &[&str],
        settings: &[(&str, &str)],
    ) -> Process {
        let mut gateway = self.command("context-gateway");
        gateway
            .arg("http")
            .args(arguments)
            .envs(settings.iter().copied())
            .env("CONTEXT_BACKEND", format!("http://{}", self.address()));
        self.home.start_as(gateway).await
    }

    /// Starts a gateway on stdio with these settings. It finds this service by its database's socket.
    pub(crate) async fn stdio_gateway(&self, settings: &[(&str, String)]) -> Mcp {
        let mut gateway = self.command("context-gateway");
        gateway.envs(settings.iter().map(|(name, value)| (*name, value.as_str())));
        Mcp::start(gateway).await
    }

    /// Stops the service. When it returns, the database is closed.
    pub(crate) fn stop(mut self) {
        self.process.kill();
    }
}

/// The socket's path follows from the database's path, not from a setting.
fn command(home: &Home, name: &str) -> Command {
    let mut command = home.command(name);
    command.env_remove("CONTEXT_SOCKET");
    command
}
