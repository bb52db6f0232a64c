//! The binaries under test as child processes, each with a directory of its own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use context_test_postgres::TestDatabase;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Where a service keeps entries.
#[derive(Debug, Clone, Copy)]
pub enum Storage {
    /// A file.
    Sqlite,
    /// A PostgreSQL server, on which each service gets a database of its own.
    Postgres,
}

/// A running service on a fresh database.
pub(crate) struct Service {
    pub(crate) dir: TempDir,
    pub(crate) address: String,
    /// What a gateway must know too to find it.
    pub(crate) settings: Vec<(&'static str, String)>,
    child: Child,
    _database: Option<TestDatabase>,
}

/// A binary of the workspace, in this program's own target directory.
pub(crate) fn binary(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    // target/<profile>/<program>, and target/<profile>/deps/<test>
    let found = program
        .ancestors()
        .skip(1)
        .take(2)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "{name} is not beside {}; build it first: cargo build --workspace",
            program.display()
        )
    })
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A command with nothing of this process's settings, so that a developer's own do not change the test.
pub(crate) fn command(name: &str, dir: &TempDir) -> Command {
    let mut command = Command::new(binary(name));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir.path())
        .env("EMBEDDING_PROVIDER", "none")
        .env("XDG_RUNTIME_DIR", dir.path())
        .env("DB_PATH", dir.path().join("contexts.db"))
        .kill_on_drop(true)
        .stdin(Stdio::null());
    command
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

    /// With settings beside the ones every test needs.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let address = format!("127.0.0.1:{}", free_port());
        let child = command("context-service", &dir)
            .env("CONTEXT_LISTEN", &address)
            .envs(settings.iter().copied())
            .spawn()
            .expect("the service starts");
        wait_for(&address).await;
        Self {
            dir,
            address,
            settings: Vec::new(),
            child,
            _database: None,
        }
    }

    /// Ends it. When this returns nobody holds its database any more.
    pub(crate) async fn stop(mut self) {
        self.child.kill().await.expect("the service ends");
    }
}

/// Waits until something listens there.
pub(crate) async fn wait_for(address: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while tokio::net::TcpStream::connect(address).await.is_err() {
        assert!(
            Instant::now() < deadline,
            "nothing listens on {address} after 30 seconds"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
